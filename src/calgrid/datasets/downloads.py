"""Published files below data_root: verified if they exist, else downloaded by pooch.

Size and checksum of a file are registered with its data set. For weights of backbones only the
first digits of the checksum are published. For a file without a published checksum, its checksum at
the first use is recorded beside the file and verified later. A download gets its name after its
checksum is verified. Existing files are never replaced, removed or downloaded again. Connections
are encrypted, also after redirects.
"""

import hashlib
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any, NotRequired, TypedDict
from urllib.parse import urljoin, urlsplit

import pooch
import requests
from tqdm import tqdm

from calgrid.errors import DataError
from calgrid.progress import LOG_INTERVAL
from calgrid.storage.atomic import disk_error, flush, write_text
from calgrid.storage.locks import OwnerLock
from calgrid.storage.records import sha256_of

#: nothing here changes a number of a result (calgrid.components.fingerprint)
NEUTRAL = True

#: further attempts after a broken connection
RETRIES = 3
#: seconds without a byte after which a connection counts as broken
TIMEOUT = 60
MEGABYTE = 1_000_000
#: allowed URL schemes
SCHEMES = ("https",)
#: some servers would send an archive as a compressed web page, which clients unpack
HEADERS = {"User-Agent": "calgrid", "Accept-Encoding": "identity"}
SHA256_DIGITS = 64


class PublishedFile(TypedDict):
    """A registered published file: ``size`` in bytes, and one checksum if published.

    ``sha256`` may have the first digits of the checksum only.
    """

    name: str
    url: str
    size: NotRequired[int]
    sha256: NotRequired[str]
    md5: NotRequired[str]


def download(file: PublishedFile, folder: Path | None) -> Path:
    """Return the path of a published file; download a missing file first.

    A file without a published checksum is trusted at the first call: its SHA-256 is recorded as
    ``sha256sum`` writes it, and from then on the file must be that one.

    Parameters
    ----------
    file : the published file.
    folder : folder of the file: data_root, or for weights the cache of torch.hub.

    Raises
    ------
    DataError : the existing file differs from the published or recorded one, the record is damaged,
        or the download failed; the message says how to get the file by hand.
    """
    if folder is None:
        raise DataError(f"Give a data_root, the folder to which to download {published(file)}.")
    path = folder / file["name"]
    note = folder / f"{file['name']}.sha256"
    pinned = not _checksum(file)[0]
    if pinned and note.is_file():
        sha256, _, _ = note.read_text(encoding="utf-8", errors="replace").partition(" ")
        if not re.fullmatch("[0-9a-f]{64}", sha256):
            raise DataError(
                f"{note} does not begin with a SHA-256; restore it, or remove it to trust {path} "
                "as it is now."
            )
        file = {**file, "sha256": sha256}
        if path.exists():
            if difference := _difference(path, file):
                raise DataError(
                    f"{path} has changed since its first use ({difference} in {note.name}); put "
                    f"the old file back, or remove {note.name} to trust the new one."
                )
            return path
    if find_local(file, folder) is None:
        _check_encrypted(file["url"], file)
        folder.mkdir(parents=True, exist_ok=True)
        with OwnerLock(folder / f".{file['name']}.lock", f"download of {path}"):
            if not path.exists():  # another process may have been faster
                _fetch(file, path)
    if pinned and not note.is_file() and os.access(folder, os.W_OK):
        write_text(note, f"{sha256_of(path)}  {path.name}\n")
    return path


def unpacked_or_download(file: PublishedFile, folder: Path | None, unpacked: str) -> Path:
    """Return the archive (:func:`download`), or its folder ``unpacked`` if the archive is not below
    data_root.
    """
    if folder is not None and not (folder / file["name"]).exists() and (folder / unpacked).is_dir():
        return folder / unpacked
    return download(file, folder)


def find_local(file: PublishedFile, folder: Path | None) -> Path | None:
    """Return the path of a published file, or None if it does not exist.

    Raises
    ------
    DataError : the existing file differs.
    """
    if folder is None or not (folder / file["name"]).exists():
        return None
    path = folder / file["name"]
    difference = _difference(path, file)
    if difference:
        raise DataError(
            f"{path} is not the published file ({difference}); remove it or replace it by "
            f"{published(file)}."
        )
    return path


def published(file: PublishedFile) -> str:
    """Describe a published file: name, size as far as known, checksum, source."""
    size = f" of {file['size']:,} bytes" if "size" in file else ""
    algorithm, _, shown = _checksum(file)
    checksum = f"{algorithm} {shown}" if algorithm else "no published checksum"
    return f"{file['name']}{size} ({checksum}) from {file['url']}"


def _checksum(file: PublishedFile) -> tuple[str, str, str]:
    """Algorithm and digits of the published checksum, and the digits for messages; empty if there
    is none.
    """
    if "sha256" in file:
        digits = file["sha256"]
        return "sha256", digits, digits if len(digits) == SHA256_DIGITS else f"{digits}..."
    return ("md5", file["md5"], file["md5"]) if "md5" in file else ("", "", "")


def _difference(path: Path, file: PublishedFile) -> str:
    """Describe the difference of a file from the published one; empty if equal."""
    if not path.is_file():
        return "a folder, FIFO or device"
    size = path.stat().st_size
    if size != file.get("size", size):
        return f"{size:,} bytes instead of {file['size']:,}"
    algorithm, digits, shown = _checksum(file)
    if not algorithm:
        return ""
    with path.open("rb") as stream:
        actual = hashlib.file_digest(stream, algorithm).hexdigest()
    if actual.startswith(digits):
        return ""
    return f"{algorithm} {actual} instead of {shown}"


def _fetch(file: PublishedFile, path: Path) -> None:
    """Download a file into a hidden sibling folder, verify and rename it."""

    def refuse_unencrypted_redirect(response: requests.Response, **_: Any) -> None:
        if response.is_redirect:
            _check_encrypted(urljoin(response.url, response.headers["location"]), file)

    def verified(url: str, temporary: str, _: pooch.Pooch) -> None:
        target = Path(temporary)
        target.unlink()  # pooch has made it readable for its owner alone
        bar = tqdm(
            desc=f"download {path.name}",
            total=file.get("size", 1),  # pooch takes that of the answer, but needs one before
            unit="B",
            unit_scale=True,
            mininterval=0.1 if sys.stderr.isatty() else LOG_INTERVAL,
        )
        with bar:
            get = pooch.HTTPDownloader(
                progressbar=bar,
                chunk_size=MEGABYTE,
                timeout=TIMEOUT,
                headers=HEADERS,
                hooks={"response": refuse_unencrypted_redirect},
            )
            get(url, temporary, None)
        difference = _difference(target, file)
        if difference:
            raise DataError(
                f"The download from {url} is not the published file ({difference}); put "
                f"{published(file)} into {path.parent} by hand."
            )
        flush(target)

    partial = path.with_name(f".{path.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a call that was killed
    files = pooch.Pooch(
        path=partial,
        base_url="",
        registry={path.name: None},  # `verified` knows sizes and shortened checksums too
        urls={path.name: file["url"]},
        retry_if_failed=RETRIES,
    )
    try:
        Path(files.fetch(path.name, downloader=verified)).replace(path)
    except requests.RequestException as error:
        raise DataError(
            f"{file['url']} could not be downloaded ({_reason(error)}); run again, or put "
            f"{published(file)} into {path.parent} by hand."
        ) from None
    except OSError as error:
        raise disk_error(error, path) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _reason(error: requests.RequestException) -> str:
    """Reason of a failed download, without the layers of libraries."""
    if error.response is not None:
        return f"HTTP {error.response.status_code} {error.response.reason}"
    cause = error.args[0] if error.args else error
    return str(getattr(cause, "reason", cause))


def _check_encrypted(url: str, file: PublishedFile) -> None:
    if urlsplit(url).scheme not in SCHEMES:
        raise DataError(
            f"{file['name']} would be downloaded over an unencrypted connection ({url}); get "
            f"{published(file)} by hand."
        )
