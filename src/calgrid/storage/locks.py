"""Owner locks: at most one writer per folder, across processes and hosts.

Snakemake's own lock is not enough: after a ``kill -9`` it blocks the next call although no process
runs, and does not protect against orphaned children. Our lock stores its owner (host, pid, start of
the process, SLURM job), which refreshes the lock by a heartbeat: only a dead owner's lock is taken
over.
"""

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from calgrid.errors import ConfigError, StateError
from calgrid.progress import log
from calgrid.storage.atomic import flush, parse_json

HEARTBEAT_SECONDS = 15.0
#: an owner on another host is presumed dead after this time without a heartbeat, by the times of
#: files or by our watching; a suspended job has none, and lives
STALE_SECONDS = 600.0
#: ... and after watching the lock for this time without a heartbeat: on some file systems mtimes
#: follow the clock of the writing host, which may be wrong; others show a new mtime a minute late
WATCH_SECONDS = 90.0
#: default time to wait for an owner: long enough to find a dead one, also if its last heartbeat was
#: seen late
WAIT_SECONDS = STALE_SECONDS + 2 * WATCH_SECONDS
POLL_SECONDS = 0.5
TOKEN_DIGITS = 32
#: content of a lock file: host, pid, start of the process, SLURM job, token, since
Owner = Mapping[str, object]


def _process_start(pid: int) -> str:
    """Start of a process in clock ticks since boot, because pids are reused.

    Empty if unknown, and for a zombie: it has ended, but its parent has not waited for it (in a
    container perhaps never).
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in ("Z", "X") else fields[19]


def described(owner: Owner) -> str:
    """Return process, host, SLURM job and begin of the owner of a lock, for a message."""
    job = f", SLURM job {owner['slurm_job']}" if owner.get("slurm_job") else ""
    process, host, since = (owner.get(name, "?") for name in ("pid", "host", "since"))
    return f"process {process} on {host}{job} since {since}"


def _lives_here(holder: Owner) -> bool:
    """Whether the owner of a lock of this host is running."""
    pid = holder.get("pid")
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it belongs to another user
    return _process_start(pid) == holder.get("process_start", "")


def live_owner(path: Path) -> Owner | None:
    """Return the owner of a lock (host, pid, slurm_job, since, ...), or None, without writing.

    An owner on another host is alive while its heartbeat is younger than ``STALE_SECONDS`` by our
    clock.
    """
    holder = OwnerLock._read(path)
    if not holder:
        return None
    if holder.get("host") == socket.gethostname():
        return holder if _lives_here(holder) else None
    try:
        return holder if abs(time.time() - path.stat().st_mtime) < STALE_SECONDS else None
    except OSError:  # released a moment ago
        return None


class OwnerLock:
    """A lock file with its owner; use as a context manager.

    Parameters
    ----------
    path : the lock file; its folder is created.
    what : name of the protected result, for messages ("run digits/resnet8/ce/seed1").
    wait : seconds to wait for a live owner before refusing; None reads ``CALGRID_LOCK_WAIT``
        (default ``WAIT_SECONDS``).

    Raises
    ------
    StateError : a live owner still holds the lock after ``wait`` seconds.
    """

    def __init__(self, path: Path, what: str, wait: float | None = None) -> None:
        self.path = Path(path)
        self.what = what
        text = os.environ.get("CALGRID_LOCK_WAIT", WAIT_SECONDS)
        try:
            self.wait = float(text) if wait is None else wait
        except ValueError:
            raise ConfigError(
                f"CALGRID_LOCK_WAIT must be a number of seconds, got {text!r}."
            ) from None
        self.owner = {
            "token": uuid.uuid4().hex,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "process_start": _process_start(os.getpid()),
            "slurm_job": os.environ.get("SLURM_JOB_ID", ""),
            "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        }
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        #: last heartbeat of an owner on another host, and when we first saw it
        self._watched: dict[Path, tuple[int, float]] = {}

    def __enter__(self) -> Self:
        deadline = time.monotonic() + self.wait
        told = False
        while not self._take(self.path):
            holder = self._read(self.path)
            if not self.path.exists():  # released a moment ago
                continue
            if time.monotonic() >= deadline:
                raise StateError(self._refusal(holder))
            if not told:
                log(f"{self._refusal(holder)} Waiting up to {self.wait:.0f} s.")
                told = True
            time.sleep(POLL_SECONDS)
        self._remove_leftovers()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()
        return self

    def _remove_leftovers(self) -> None:
        """Remove temporary files of processes of this host killed while taking the lock."""
        for path in self.path.parent.glob(f"{self.path.name}.{'[0-9a-f]' * TOKEN_DIGITS}"):
            holder = self._read(path)
            if holder.get("host") == self.owner["host"] and not _lives_here(holder):
                path.unlink(missing_ok=True)

    def check(self) -> None:
        """Raise StateError if another process has taken over the lock, for example while this host
        was suspended.
        """
        holder = self._read(self.path)
        if holder.get("token") != self.owner["token"]:
            raise StateError(
                f"{self._refusal(holder)[:-1]}; this process lost the lock and stops writing."
            )

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._read(self.path).get("token") == self.owner["token"]:
            self.path.unlink(missing_ok=True)

    def _refusal(self, holder: Owner) -> str:
        return (
            f"The {self.what} is being written by {described(holder)}; wait for it to end, or stop "
            "it, then run again."
        )

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            with contextlib.suppress(OSError):
                os.utime(self.path)

    def _take(self, path: Path) -> bool:
        """Acquire ``path`` unless a live owner holds it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise StateError(f"The lock {path} is a folder; remove it and run again.")
        mine = path.with_name(f"{path.name}.{self.owner['token']}")
        try:
            mine.write_text(json.dumps(self.owner), encoding="utf-8")
            flush(mine)
            if _claim(mine, path):
                return True
            holder = self._read(path)
            return not self._is_alive(path, holder) and self._take_over(path, holder, mine)
        finally:
            mine.unlink(missing_ok=True)

    def _take_over(self, path: Path, holder: Owner, mine: Path) -> bool:
        """Replace the lock of a dead ``holder`` by ``mine``.

        A process first locks the holder's token (a lock that can be taken over in the same way),
        then reads the holder again, because another process may have replaced it in between.
        """
        claim = path.with_name(f"{path.name}.takeover-{holder.get('token', 'unreadable')}")
        if not self._take(claim):
            return False
        try:
            if self._read(path) != holder:
                return False
            mine.replace(path)
            # left if the holder was killed right after it had taken the lock
            path.with_name(f"{path.name}.{holder.get('token')}").unlink(missing_ok=True)
            return True
        finally:
            claim.unlink(missing_ok=True)

    @staticmethod
    def _read(path: Path) -> Owner:
        try:
            holder = parse_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return holder if isinstance(holder, dict) else {}

    def _is_alive(self, path: Path, holder: Owner) -> bool:
        if holder.get("host") == self.owner["host"]:
            return _lives_here(holder)
        # both times come from the file system, so that a wrong clock of one host does not matter
        probe = path.with_name(f"{path.name}.{self.owner['token']}.now")
        try:
            probe.touch()
            beat = path.stat().st_mtime_ns
            age = probe.stat().st_mtime - beat / 1e9
        except OSError:  # released a moment ago: ask again
            return True
        finally:
            probe.unlink(missing_ok=True)
        now = time.monotonic()
        seen, since = self._watched.setdefault(path, (beat, now))
        if seen != beat:
            self._watched[path] = (beat, now)
            return True
        watched = now - since
        # an unreadable lock is only watched
        stale = not holder or max(abs(age), watched) >= STALE_SECONDS
        return not stale or watched < WATCH_SECONDS


def _claim(source: Path, target: Path) -> bool:
    """Create ``target`` with the content of ``source`` if missing; return whether it was."""
    try:
        os.link(source, target)
        return True
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        try:
            descriptor = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return False
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(source.read_bytes())
        return True
