"""Published files below data_root: verified if they exist, else downloaded.

Size and checksum of a file are registered with its data set. For weights of backbones only a prefix
of the checksum is published, and the server gives the size. For a file without a published
checksum, its checksum at the first use is recorded beside the file and verified later. A download
goes to a hidden ``.part`` file, which later attempts and calls resume, and is renamed after its
checksum is verified. Existing files are never replaced, removed or downloaded again. Connections
are encrypted, also after redirects.
"""

import hashlib
import http.client
import math
import os
import re
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, BinaryIO, NotRequired, TypedDict
from urllib.parse import urlsplit

from calgrid.errors import DataError
from calgrid.progress import Progress, log
from calgrid.storage.atomic import disk_error, flush, write_text
from calgrid.storage.locks import OwnerLock
from calgrid.storage.sources import record

#: attempts without a new byte, and seconds before the second one; each further pause is twice as
#: long
ATTEMPTS, PAUSE = 5, 2.0
#: seconds without a byte after which a connection counts as broken
TIMEOUT = 60.0
MEGABYTE = 1_000_000
#: HTTP errors that are retried; others are final
PASSING = (408, 425, 429, 500, 502, 503, 504)
#: allowed URL schemes
SCHEMES = ("https",)
#: HTTP status of a range request beyond the end
BEYOND_THE_END = 416


class PublishedFile(TypedDict):
    """A registered published file: ``size`` in bytes, and one checksum if published.

    ``sha256_prefix`` is a prefix of the SHA-256, for weights.
    """

    name: str
    url: str
    size: NotRequired[int]
    sha256: NotRequired[str]
    md5: NotRequired[str]
    sha256_prefix: NotRequired[str]


def download(file: PublishedFile, folder: Path | None) -> Path:
    """Return the path of a published file, after downloading it if it does not exist.

    Raises DataError: the existing file differs, or the download failed; the message says how to get
    the file by hand.

    Parameters
    ----------
    file : with a checksum, and with its size unless that is a prefix.
    folder : folder of the file: data_root, or for weights the cache of torch.hub.
    """
    if folder is None:
        raise DataError(f"Give a data_root, the folder to which to download {published(file)}.")
    path = folder / file["name"]
    if path.exists():
        if difference := _difference(path, file):
            raise DataError(
                f"{path} is not the published file ({difference}): remove it or replace it by "
                f"{published(file)}."
            )
        return path
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{file['name']}.part"
    with OwnerLock(part.with_suffix(".lock"), f"download of {path}"):
        if not path.exists():  # another process may have been faster
            _complete(file, part, path)
            flush(part)
            part.replace(path)
    return path


def download_pinned(file: PublishedFile, folder: Path | None) -> Path:
    """Return the path of a file without a published checksum; see :func:`download`.

    The file of the first call, existing or downloaded, is trusted: its SHA-256 is recorded as
    ``sha256sum`` writes it, and from then on the file must be that one. Raises DataError: the file
    is no longer the recorded one, the record is damaged, or the file could not be downloaded.
    """
    if folder is None:
        return download(file, folder)  # its error names the missing file
    path, note = folder / file["name"], folder / f"{file['name']}.sha256"
    if not note.is_file():
        download(file, folder)
        if os.access(folder, os.W_OK):  # else nobody changes the file either
            write_text(note, f"{record(path, path.name)['sha256']}  {path.name}\n")
        return path
    known, _, _ = note.read_text(encoding="utf-8", errors="replace").partition(" ")
    if not re.fullmatch("[0-9a-f]{64}", known):
        raise DataError(
            f"{note} does not begin with a SHA-256: restore it, or remove it to trust {path} as it "
            f"is now."
        )
    if path.exists() and (difference := _difference(path, {**file, "sha256": known})):
        raise DataError(
            f"{path} has changed since its first use ({difference} in {note.name}): put the old "
            f"file back, or remove "
            f"{note.name} to trust the new one."
        )
    return download({**file, "sha256": known}, folder)


def unpacked_or_download(file: PublishedFile, folder: Path | None, unpacked: str) -> Path:
    """Return the archive (:func:`download`), or its folder ``unpacked`` if the archive is not below
    data_root.
    """
    if folder is not None and not (folder / file["name"]).exists() and (folder / unpacked).is_dir():
        return folder / unpacked
    return download(file, folder)


def find_local(file: PublishedFile, folder: Path | None) -> Path | None:
    """Return the path of a published file that must be downloaded by hand, or None if it does not
    exist.

    Raises DataError: the existing file differs.
    """
    if folder is None or not (path := folder / file["name"]).exists():
        return None
    if difference := _difference(path, file):
        raise DataError(
            f"{path} is not the published file ({difference}): replace it by {published(file)}."
        )
    return path


def published(file: PublishedFile) -> str:
    """Describe a published file: name, size as far as known, checksum, source."""
    size = f" of {file['size']:,} bytes" if "size" in file else ""
    kind, digits, words = _checksum(file)
    checksum = f"{kind} {words}{digits}" if kind else "no published checksum"
    return f"{file['name']}{size} ({checksum}) from {file['url']}"


def _checksum(file: PublishedFile) -> tuple[str, str, str]:
    """Kind of the published checksum, its digits, and what to say of them; all empty if there is
    none.

    Without one nothing shows that a partial download belongs to another file.
    """
    if "sha256_prefix" in file:
        return "sha256", file["sha256_prefix"], "beginning with "
    if "sha256" in file:
        return "sha256", file["sha256"], ""
    return ("md5", file["md5"], "") if "md5" in file else ("", "", "")


def _difference(path: Path, file: PublishedFile) -> str:
    """Describe the difference of a file from the published one; empty if equal."""
    if not path.is_file():
        return "a folder, FIFO or device"
    size = path.stat().st_size
    if size != file.get("size", size):
        return f"{size:,} bytes instead of {file['size']:,}"
    kind, digits, words = _checksum(file)
    if not kind:
        return ""
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, kind).hexdigest()
    return "" if found.startswith(digits) else f"{kind} {found} instead of {words}{digits}"


def _complete(file: PublishedFile, part: Path, path: Path) -> None:
    """Fill ``part`` until it is the published file."""
    _check_scheme(file["url"], file)
    if not any(_checksum(file)):
        part.unlink(missing_ok=True)
    continued = part.is_file() and part.stat().st_size > 0
    _fetch(file, part, path)
    difference = _difference(part, file)
    if difference and continued:  # the partial download may belong to another file
        log(
            f"The partial download of {path} does not match the published file ({difference}): it "
            f"is downloaded again."
        )
        part.unlink()
        _fetch(file, part, path)
        difference = _difference(part, file)
    if difference:
        part.unlink()
        raise DataError(
            f"The download from {file['url']} is not the published file ({difference}): put "
            f"{published(file)} into "
            f"{path.parent} by hand."
        )


def _fetch(file: PublishedFile, part: Path, path: Path) -> None:
    """Download the rest of ``part``, with retries while attempts make progress."""
    failures, reason, most = 0, "", 0
    known = {
        "size": file.get("size", math.inf)
    }  # without a registered size that of the first response
    while (have := _size(part)) < known["size"]:
        most = max(most, have)
        try:
            _attempt(file, part, have, known)
            reason = "the connection ended early"
        except urllib.error.HTTPError as error:
            if error.code == BEYOND_THE_END and known["size"] == math.inf:
                return  # the file may be complete; the checksum is verified later
            reason = f"HTTP {error.code} {error.reason}"
            failures += 0 if error.code in PASSING else ATTEMPTS
        except (
            http.client.HTTPException,
            TimeoutError,
            urllib.error.URLError,
            ConnectionError,
        ) as error:
            reason = str(getattr(error, "reason", error)) or type(error).__name__
        except OSError as error:
            raise disk_error(error, part) from error
        now = _size(part)
        failures = 0 if now > most else failures + 1
        if failures >= ATTEMPTS:
            raise DataError(
                f"{file['url']} could not be downloaded ({reason}): run again to resume, or put "
                f"{published(file)} into "
                f"{path.parent} by hand."
            )
        if now < known["size"]:
            total = "" if known["size"] == math.inf else f" of {known['size']:,}"
            log(f"{file['name']}: {reason} after {now:,}{total} bytes, trying again.")
            time.sleep(PAUSE * 2 ** max(0, failures - 1))


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _attempt(file: PublishedFile, part: Path, have: int, known: dict[str, float]) -> None:
    """Request the bytes from ``have`` on and append them; sets an unknown size in ``known``."""
    headers = {
        "User-Agent": "calgrid",
        "Accept-Encoding": "identity",
        **({"Range": f"bytes={have}-"} if have else {}),
    }
    request = urllib.request.Request(file["url"], headers=headers)
    opener = urllib.request.build_opener(_Redirects(file))
    with opener.open(request, timeout=TIMEOUT) as answer:
        goes_on = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(
            f"bytes {have}-"
        )
        begin = have if goes_on else 0
        if known["size"] == math.inf:
            if answer.length is None:
                raise http.client.HTTPException("the server does not give the size of the file")
            known["size"] = begin + answer.length
        with part.open("ab" if goes_on else "wb") as target:
            _copy(answer, target, {**file, "size": int(known["size"])}, begin)


def _copy(
    answer: http.client.HTTPResponse, target: BinaryIO, file: PublishedFile, begin: int
) -> None:
    """Append an answer to a file, never more than the published size."""
    left = file["size"] - begin
    total = -(-file["size"] // MEGABYTE)
    with Progress(f"download {file['name']}", total, "MB", done=begin // MEGABYTE) as progress:
        while left > 0 and (block := answer.read1(min(MEGABYTE, left))):
            target.write(block)
            left -= len(block)
            while progress.done < (file["size"] - left) // MEGABYTE:
                progress.advance()


def _check_scheme(url: str, file: PublishedFile) -> None:
    if urlsplit(url).scheme not in SCHEMES:
        raise DataError(
            f"{file['name']} would be downloaded over an unencrypted connection ({url}): get "
            f"{published(file)} by hand."
        )


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but never to an unencrypted connection."""

    def __init__(self, file: PublishedFile) -> None:
        self.file = file

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> Any:
        """Return the request for the new address, or raise DataError; see the base class."""
        _check_scheme(newurl, self.file)
        return super().redirect_request(req, fp, code, msg, headers, newurl)
