"""Errors that a user can mend: one sentence saying what is wrong, where, and what to do about it."""

import difflib
from collections.abc import Iterable


class CalgridError(Exception):
    """Base of all errors that are the input's fault; the command line prints its message and exits with 2."""


class ConfigError(CalgridError):
    """The configuration asks for something that does not exist or does not fit together."""


class DataError(CalgridError):
    """A data set, logits file or other input file is missing, damaged or does not fit its description."""


class StateError(CalgridError):
    """A checkpoint, resume state or lock on disk does not belong to what is being run."""


def unknown_id(kind: str, name: str, known: Iterable[str], where: str = "") -> ConfigError:
    """Build the error for an unknown identifier, suggesting the nearest valid ones.

    Parameters
    ----------
    kind : what the identifier names, in the singular ("method", "calibrator").
    name : the unknown identifier.
    known : all valid identifiers.
    where : where it was found, for example "grids[0].methods".
    """
    options = sorted(known)
    small = {option.lower(): option for option in options}
    near = difflib.get_close_matches(str(name).lower(), small, n=1, cutoff=0.5)
    place = f" in {where}" if where else ""
    hint = f"did you mean '{small[near[0]]}'?" if near else f"valid: {', '.join(options) or '(none)'}."
    shown = name if str(name).isprintable() else ascii(name)[1:-1]
    return ConfigError(f"Unknown {kind} '{shown}'{place}: {hint}")


def number_as_text(value: object, whole: bool = False) -> str:
    """Return a hint, to stand behind a value that should be a number, if YAML took it for text (``1e-3``), else ''.

    ``whole`` says that it should be a whole one.
    """
    if not isinstance(value, str):
        return ""
    try:
        float(value)
    except ValueError:
        return ""
    if whole:
        return ", which is text (write whole numbers without quotes and in digits alone, as in 1000)"
    return ", which is text (write numbers without quotes and with a point, as in 1.0e-3)"
