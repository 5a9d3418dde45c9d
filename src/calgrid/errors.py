"""Errors caused by user input: one sentence with the problem, its location and the fix."""

import contextlib
import difflib
from collections.abc import Iterable, Iterator

#: nothing here changes a number of a result (calgrid.components.fingerprint)
NEUTRAL = True

#: shortest beginning of an identifier, or of a given name, that suggests the other
FEWEST_LETTERS = 3
#: most identifiers listed in an error; of more, only the closest
MOST_LISTED, CLOSEST = 30, 3


class CalgridError(Exception):
    """Base of all errors caused by invalid input; the command line prints the message and exits
    with 2.
    """


class ConfigError(CalgridError):
    """The configuration is invalid."""


class DataError(CalgridError):
    """A data set, logits file or other input file is missing, damaged or inconsistent with its
    description.
    """


class StateError(CalgridError):
    """A checkpoint, resume state, lock or result on disk is damaged or belongs to another run."""


def visible(text: object) -> str:
    r"""Return text with control characters as escapes (``\x1b``), which a terminal would obey in a
    name chosen by a stranger.
    """
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in str(text)
    )


def row_at(number: int) -> str:
    """Return how messages name a row: ``row 3 (counted from 0)``."""
    return f"row {number} (counted from 0)"


def visible_lines(text: object) -> str:
    """Return text of several lines, each passed through :func:`visible`."""
    return "\n".join(visible(line) for line in str(text).split("\n"))


@contextlib.contextmanager
def located(where: str) -> Iterator[None]:
    """Convert errors of data into ConfigError that begin with their place in the configuration."""
    try:
        yield
    except DataError as error:
        raise ConfigError(f"{where}: {error}") from None


def refuse(*mistakes: tuple[object, str], error: type[CalgridError] = ConfigError) -> None:
    """Raise an error for the first mistake: each is a pair of a condition and a message."""
    for is_made, message in mistakes:
        if is_made:
            raise error(message)


def check_ids(kind: str, names: Iterable[object], known: Iterable[object], where: str = "") -> None:
    """Raise :func:`unknown_id` of the first name that is not a known one."""
    options = set(map(str, known))
    for name in map(str, names):
        if name not in options:
            raise unknown_id(kind, name, options, where)


def unknown_id(
    kind: str, name: str, known: Iterable[str], where: str = "", listing: str = ""
) -> ConfigError:
    """Return the error for an unknown identifier, with the closest valid ones.

    Parameters
    ----------
    kind : kind of the identifier, in the singular ("method", "calibrator").
    name : the unknown identifier.
    known : all valid identifiers.
    where : its location, for example "grids[0].methods".
    listing : command that lists all valid identifiers.
    """
    options = sorted(known)
    small, given = {option.lower(): option for option in options}, str(name).lower()
    begun = []
    for option in small:
        short, long = sorted((option, given), key=len)
        if len(short) >= FEWEST_LETTERS and long.startswith(short):
            begun.append(option)
    near = difflib.get_close_matches(given, small, n=1) or begun
    place = f" in {where}" if where else ""
    if near:
        hint = f"did you mean '{small[near[0]]}'?"
    elif len(options) > MOST_LISTED:
        closest = difflib.get_close_matches(given, small, n=CLOSEST, cutoff=0.0)
        hint = f"the closest of {len(options)} are {', '.join(small[each] for each in closest)}"
        hint += f"; {listing} shows all." if listing else "."
    else:
        hint = f"valid: {', '.join(options) or '(none)'}."
    return ConfigError(f"Unknown {kind} '{visible(name)}'{place}: {hint}")


def number_as_text(value: object, whole: bool = False) -> str:
    """Return a hint for an error message if YAML parsed a number as text (``1e-3``), else ''.

    ``whole``: the number should be an integer.
    """
    if not isinstance(value, str):
        return ""
    try:
        float(value)
    except ValueError:
        return ""
    if whole:
        return (
            ", which is text (write whole numbers without quotes and in digits alone, as in 1000)"
        )
    return ", which is text (write numbers without quotes and with a point, as in 1.0e-3)"
