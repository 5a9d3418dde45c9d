"""Copies of plugins: exactly the files that fingerprints cover, in a folder named by a digest of
its content. Jobs and planning import plugins from the copy.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from calgrid.components import fingerprint, plugins
from calgrid.errors import StateError


def name_of(code: Iterable[str]) -> str:
    """Name of the copy of the plugins in some code, a result of ``fingerprint.code_digests``."""
    files = {place: digest for place, (_, digest) in fingerprint.plugin_files(code).items()}
    return fingerprint.digest(
        {**files, plugins.PACKAGES: fingerprint.raw(_packages(files).encode())}
    )


def fill(folder: Path, code: Iterable[str]) -> None:
    """Copy the files of plugins in some code that are not in a folder yet."""
    files = fingerprint.plugin_files(code)
    for place, (path, _) in files.items():
        target = folder / place
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / plugins.PACKAGES).write_text(_packages(files))


def _packages(places: Iterable[str]) -> str:
    """Lines of the file that lists the packages of plugins with files at these places."""
    used = []
    for plugin in plugins.in_use():
        top = f"{plugin.package.replace('.', '/')}/"
        if any(place.startswith(top) for place in places):
            used.append(plugin.package)
    return "\n".join(used)


def files_of(copy: Path) -> list[str]:
    """Files in a copy, without bytecode."""
    paths = (path for path in copy.rglob("*") if path.parent.name != "__pycache__")
    return [path.relative_to(copy).as_posix() for path in paths if path.is_file()]


def is_intact(copy: Path) -> bool:
    """Whether the content of a copy has the digest in its name."""
    content = {name: fingerprint.raw((copy / name).read_bytes()) for name in files_of(copy)}
    return fingerprint.digest(content) == copy.name


def publish(copy: Path, code: Iterable[str]) -> None:
    """Make the missing copy of the plugins in some code, named by :func:`name_of`.

    Raises
    ------
    StateError : a file was edited since its digest was computed.
    """
    if is_intact(copy):
        return
    copy.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=copy.parent) as folder:
        partial = Path(folder, copy.name)
        fill(partial, code)
        if not is_intact(partial):
            raise StateError("A plugin was edited while the study was planned; run again.")
        shutil.rmtree(copy, ignore_errors=True)
        with contextlib.suppress(OSError):  # another process has just made it
            partial.rename(copy)
