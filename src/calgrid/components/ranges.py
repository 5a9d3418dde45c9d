"""Ranges of numbers in interval notation: ``[0, 1)``, ``(0, inf)``; ``(-inf, inf)`` is any number."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calgrid.errors import ConfigError

_END = r"(-inf|inf|-?[0-9][0-9.e+-]*|[A-Za-z_][A-Za-z0-9_]*)"
_INTERVAL = re.compile(rf"([\[(])\s*{_END}\s*,\s*{_END}\s*([\])])")


@dataclass(frozen=True)
class Range:
    """An interval; each end is a number or the name of another hyper-parameter."""

    low: str
    high: str
    above: bool
    below: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Hyper-parameters that are ends of the range."""
        return tuple(end for end in (self.low, self.high) if end.isidentifier() and end != "inf")

    def check(self, value: Any, where: str, others: Mapping[str, Any]) -> None:
        """Raise ConfigError with the location ``where`` unless a number, or each member of a list,
        is in the range.

        ``others`` are the values of the hyper-parameters.
        """
        members = value if isinstance(value, list | tuple) else [value]
        if not members:
            raise ConfigError(f"{where} must not be empty.")
        for member in members:
            number = isinstance(member, int | float) and not isinstance(member, bool)
            if number and not is_finite(member):
                raise ConfigError(f"{where} {not_finite(member)}.")
            if not number or not self._holds(member, others):
                raise ConfigError(f"{where} must be {self.words(others)}, got {member!r}.")

    def words(self, others: Mapping[str, Any]) -> str:
        """Description of the range, after "must be"."""
        low = (
            ()
            if self.low == "-inf"
            else (f"{'above' if self.above else 'at least'} {_named(self.low, others)}",)
        )
        high = (
            ()
            if self.high == "inf"
            else (f"{'below' if self.below else 'at most'} {_named(self.high, others)}",)
        )
        return " and ".join((*low, *high)) or "a finite number"

    def _holds(self, number: float, others: Mapping[str, Any]) -> bool:
        low, high = (float(others.get(end, end)) for end in (self.low, self.high))
        return (number > low if self.above else number >= low) and (
            number < high if self.below else number <= high
        )


def read_range(text: Any, where: str) -> Range:
    """Return the range of interval notation; ConfigError with the location ``where`` for any other
    text.
    """
    found = _INTERVAL.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ConfigError(f"{where} must be a range such as '[0, 1)' or '(0, inf)', got {text!r}.")
    opening, low, high, closing = found.groups()
    return Range(low, high, above=opening == "(", below=closing == ")")


def is_finite(value: float) -> bool:
    """Whether a number is finite, also when converted to float."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def not_finite(value: float) -> str:
    """End of the error message for a number that is not finite."""
    return (
        f"must be a finite number, got {'one beyond 1.0e+308' if isinstance(value, int) else value}"
    )


def _named(end: str, others: Mapping[str, Any]) -> str:
    return f"{end}, which is {others[end]}" if end in others else end
