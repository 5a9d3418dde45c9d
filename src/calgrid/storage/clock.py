"""Files whose time lies in the future, because a clock that was ahead wrote them."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

#: so far ahead may the clock of a file server be; the times of such files are in the past soon
TOLERANCE_SECONDS = 60.0


def mend_future(paths: Iterable[str | Path]) -> list[str]:
    """Give files with a time in the future the present time, all the same; return their names.

    What is made of such a file looks older than the file until that future has come, so that Snakemake would make it
    again in each call. With the present time it does so once; what was made of it under the same wrong clock gets the
    same time, and is not made again.

    Parameters
    ----------
    paths : files; those that do not exist, or whose time may not be set, are left alone.
    """
    now, mended = time.time(), []
    for path in map(Path, paths):
        try:
            if path.stat().st_mtime > now + TOLERANCE_SECONDS:
                os.utime(path, (now, now))
                mended.append(str(path))
        except OSError:
            continue
    return mended
