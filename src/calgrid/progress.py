"""Progress with the time left: a bar in a terminal, plain lines in a log."""

import sys
import time
from typing import TYPE_CHECKING, Self

from calgrid.errors import visible_lines

if TYPE_CHECKING:
    from tqdm import tqdm

#: nothing here changes a number of a result (calgrid.components.fingerprint)
NEUTRAL = True

#: seconds between two lines in a log
LOG_INTERVAL = 10.0


#: what :func:`warn` has said since the command began
WARNINGS: list[str] = []


def warn(*messages: str) -> None:
    """Log warnings, and keep them for the output of the command as JSON."""
    WARNINGS.extend(messages)
    for message in messages:
        log(f"Warning: {message}")


def log(message: str) -> None:
    """Write one line to standard error, which Snakemake redirects to log files."""
    if sys.stderr.isatty():
        from tqdm import tqdm  # noqa: PLC0415  (jobs have no terminal, and need no bar)

        tqdm.write(visible_lines(message), file=sys.stderr)
    else:
        sys.stderr.write(f"{visible_lines(message)}\n")


def duration(seconds: float) -> str:
    """Return a duration as ``1:05`` or ``2:01:05``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class Progress:
    """Progress over ``total`` equal steps; use as a context manager and call :meth:`advance`.

    Parameters
    ----------
    title : name of the task ("train digits/resnet8/ce/seed1").
    total : number of steps.
    unit : name of a step ("epoch").
    done : steps of an earlier, interrupted process; they are ignored for the time left.
    """

    def __init__(self, title: str, total: int, unit: str = "step", done: int = 0) -> None:
        self.title, self.total, self.unit, self.done = title, total, unit, done
        self._initial = done
        self._begin = time.monotonic()
        self._last = -float("inf")
        self._bar: tqdm | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from tqdm import tqdm  # noqa: PLC0415

            self._bar = tqdm(
                total=self.total, initial=self.done, desc=self.title, unit=self.unit, leave=False
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self, **shown: float) -> None:
        """Count one step; ``shown`` are numbers to print (loss, accuracy)."""
        self.done += 1
        if self._bar is not None:
            self._bar.set_postfix(
                {name: f"{value:.4g}" for name, value in shown.items()}, refresh=False
            )
            self._bar.update(1)
            return
        now = time.monotonic()
        if now - self._last < LOG_INTERVAL and self.done < self.total:
            return
        self._last = now
        left = (now - self._begin) / max(self.done - self._initial, 1) * (self.total - self.done)
        numbers = "".join(f", {name} {value:.4g}" for name, value in shown.items())
        log(f"{self.title}: {self.unit} {self.done}/{self.total}{numbers}, {duration(left)} left")
