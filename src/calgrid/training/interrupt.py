"""Requests to stop: SIGTERM (time limit, preemption, scancel), SIGUSR1 (SLURM's early warning),
SIGINT (Ctrl-C).
"""

import signal
from types import FrameType, TracebackType
from typing import Any, Self

from calgrid.errors import CalgridError


class StoppedError(CalgridError):
    """A run was stopped by a signal; its state is saved and the next call resumes it."""


class StopRequest:
    """Context manager that catches stop signals; the training loop checks it between steps."""

    SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)

    def __init__(self) -> None:
        self.requested: str = ""
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in self.SIGNALS:
            self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        self.requested = signal.Signals(number).name

    def check(self) -> None:
        """Raise StoppedError if a signal has come."""
        if self.requested:
            raise StoppedError(
                f"Stopped by {self.requested}: the state is saved; run again to continue."
            )
