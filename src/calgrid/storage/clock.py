"""Files whose time lies in the future, because a clock that was ahead wrote them."""

import os
from collections.abc import Iterable
from pathlib import Path

#: so far ahead may the clock of a file server be; the times of such files are in the past soon
TOLERANCE_SECONDS = 60.0


def clamp_future_mtimes(paths: Iterable[Path], now: float) -> list[str]:
    """Give files with a time in the future the time ``now``; return their names.

    Parameters
    ----------
    paths : files; those that do not exist, or whose time may not be set, are left alone.
    now : Unix time of this moment, the same for all that are looked over together: what was made of a file under the
        same wrong clock then has the same time, and is not made again.
    """
    clamped = []
    for path in paths:
        try:
            if path.stat().st_mtime > now + TOLERANCE_SECONDS:
                os.utime(path, (now, now))
                clamped.append(str(path))
        except OSError:
            continue
    return clamped
