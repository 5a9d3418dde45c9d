"""Hyper-parameters of components: types, choices and ranges, and the check of a value."""

import ast
import inspect
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calgrid.errors import ConfigError, check_ids, number_as_text

#: values of options, or facts, by name
Options = Mapping[str, Any]
END = r"(-inf|inf|-?[0-9][0-9.e+-]*|[A-Za-z_][A-Za-z0-9_]*)"
INTERVAL = re.compile(rf"([\[(])\s*{END}\s*,\s*{END}\s*([\])])")
#: annotations: a choice of literals, or types that are joined by |
CHOICE = re.compile(r"Literal\[([^\[\]]+)\]")
TYPE = r"(bool|int|float|str|None|(list|tuple|Sequence)\[[^\[\]]+\])"
TYPES = re.compile(rf"{TYPE}( \| {TYPE})*")
#: types of values that are returned as they are
NAMES: Mapping[type, str] = {bool: "bool", int: "int", str: "str", type(None): "None"}
#: names of types in messages
WORDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "None": "null",
    "list[int]": "a list of whole numbers",
    "list[float]": "a list of numbers",
    "list[str]": "a list of texts",
}


@dataclass(frozen=True)
class Range:
    """An interval; each end is a number or the name of another hyper-parameter.

    Attributes
    ----------
    above, below : whether the lower, and the upper end is excluded.
    """

    low: str
    high: str
    above: bool
    below: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Hyper-parameters that are ends of the range."""
        return tuple(end for end in (self.low, self.high) if end.isidentifier() and end != "inf")

    def check(self, value: Any, where: str, others: Options) -> None:
        """Raise ConfigError with the location ``where`` unless a number, or each member of a list,
        is in the range.

        ``others`` are the values of the hyper-parameters.
        """
        members = value if isinstance(value, list | tuple) else [value]
        if not members:
            raise ConfigError(f"{where} must not be empty.")
        low = float(others.get(self.low, self.low))
        high = float(others.get(self.high, self.high))
        for member in members:
            if is_number(member) and not is_finite(member):
                raise ConfigError(f"{where} {not_finite(member)}.")
            inside = is_number(member) and low <= member <= high
            excluded = (self.above and member == low) or (self.below and member == high)
            if not inside or excluded:
                raise ConfigError(f"{where} must be {self.words(others)}, got {member!r}.")

    def words(self, others: Options) -> str:
        """Description of the range, after "must be"."""
        limits = []
        if self.low != "-inf":
            limits.append(f"{'above' if self.above else 'at least'} {_end(self.low, others)}")
        if self.high != "inf":
            limits.append(f"{'below' if self.below else 'at most'} {_end(self.high, others)}")
        return " and ".join(limits) or "a finite number"


def _end(end: str, others: Options) -> str:
    return f"{end}, which is {others[end]}" if end in others else end


def read_range(text: Any, where: str) -> Range:
    """Return the range of interval notation: ``[0, 1)``, ``(0, inf)``; ``(-inf, inf)`` is any
    number.

    Raises
    ------
    ConfigError : any other text; the message begins with the location ``where``.
    """
    match = INTERVAL.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ConfigError(f"{where} must be a range such as '[0, 1)' or '(0, inf)', got {text!r}.")
    opening, low, high, closing = match.groups()
    return Range(low, high, above=opening == "(", below=closing == ")")


def is_number(value: Any) -> bool:
    """Whether a value is a number, which true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_finite(value: float) -> bool:
    """Whether a number is finite, also when converted to float."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def not_finite(value: float) -> str:
    """End of the error message for a number that is not finite."""
    given = "one beyond 1.0e+308" if isinstance(value, int) else value
    return f"must be a finite number, got {given}"


@dataclass(frozen=True)
class Option:
    """One hyper-parameter; ``range`` bounds a number or the members of a list, ``meaning`` is its
    text in the docstring.
    """

    name: str
    default: Any
    type: str
    choices: tuple[Any, ...] = ()
    range: Range | None = None
    meaning: str = ""

    def check(self, value: Any, where: str) -> Any:
        """Return ``value`` in the declared type, or raise ConfigError with the place ``where``."""
        if self.choices:
            if value in self.choices:
                return value
            raise ConfigError(f"{where} must be one of {list(self.choices)}, got {value!r}.")
        types = [part.strip() for part in self.type.split("|")]
        takes_numbers = "float" in types or "int" in types
        if takes_numbers and is_number(value) and not is_finite(value):
            raise ConfigError(f"{where} {not_finite(value)}.")
        if is_number(value) and "float" in types:
            return float(value)
        if NAMES.get(type(value)) in types:
            return value
        if isinstance(value, list | tuple) and "[" in self.type:
            return list(value)
        hint = number_as_text(value, whole="float" not in types) if takes_numbers else ""
        words = " or ".join(WORDS.get(each, each) for each in types)
        raise ConfigError(f"{where} must be {words}, got {value!r}{hint}.")


def read_options(
    parameters: Mapping[str, inspect.Parameter], limits: Options, where: str
) -> dict[str, Option]:
    """Return the options that keyword-only parameters declare, with their ranges.

    Parameters
    ----------
    parameters : keyword-only parameters of a constructor. limits : option -> its range in interval
        notation.
    where : file of the component, for messages.

    Raises
    ------
    ConfigError : a parameter lacks its default or annotation, or has another annotation than
        :meth:`Option.check` supports; ``limits`` has an unknown option or an invalid range, or
        one without the default.
    """
    ranges = {}
    for name, text in limits.items():
        ranges[name] = read_range(text, f"{where}: limits of {name}")
        named = (name, *ranges[name].names)
        check_ids("hyper-parameter", named, parameters, f"{where}: limits")
    options = {}
    for name, parameter in parameters.items():
        for fact, value in (("default", parameter.default), ("annotation", parameter.annotation)):
            if value is parameter.empty:
                article = "an" if fact == "annotation" else "a"
                raise ConfigError(
                    f"{where}: the hyper-parameter {name} of __init__ needs {article} {fact}."
                )
        annotation, choices = parameter.annotation, ()
        if not isinstance(annotation, str):  # as it stands in the file
            annotation = inspect.formatannotation(annotation).replace("collections.abc.", "")
        if match := CHOICE.fullmatch(annotation):
            choices = ast.literal_eval(f"({match[1]},)")
        elif not TYPES.fullmatch(annotation):
            raise ConfigError(
                f"{where}: the annotation of {name} must be a Literal, or bool, int, float, str, "
                f"None and lists of them joined by |, got {annotation}."
            )
        options[name] = Option(name, parameter.default, annotation, choices, ranges.get(name))
    defaults = {name: option.default for name, option in options.items()}
    for name, allowed in ranges.items():
        if defaults[name] is not None:
            allowed.check(defaults[name], f"{where}: the default of {name}", defaults)
    return options
