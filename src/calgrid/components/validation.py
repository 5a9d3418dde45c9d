"""Validation of YAML values by pydantic models; an invalid value raises ConfigError with one
sentence: where the mistake is, and what is expected there.
"""

from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    WrapValidator,
    model_validator,
)

from calgrid.components.options import is_finite, is_number, not_finite
from calgrid.errors import ConfigError, number_as_text, unknown_id

#: maximum characters of a value quoted in a message
LONGEST_SHOWN = 80
#: error of pydantic -> type of the expected value, in words of JSON
TYPES = {
    "string_type": "string",
    "int_type": "integer",
    "float_type": "number",
    "bool_type": "boolean",
    "list_type": "array",
    "dict_type": "object",
    "model_type": "object",
}
#: other error of pydantic -> what follows the location in the message
PROBLEMS = {
    "missing": ": the key '{key}' is missing",
    "invalid_key": ": {given} is not a valid name; use text that starts with a letter",
    "empty": " must not be empty",
    "string_too_short": " must not be empty",
    "string_too_long": " must have at most {max_length} characters, got {length}",
    "string_pattern_mismatch": ": {given} is not a valid name (pattern {pattern})",
    "string_unicode": ": {given} contains a character that is invalid in paths; remove it",
    "too_short": " must have at least {min_length} entries",
    "greater_than_equal": " must be at least {ge}, got {given}",
    "greater_than": " must be above {gt}, got {given}",
    "less_than_equal": " must be at most {le}, got {given}",
    "less_than": " must be below {lt}, got {given}",
    "literal_error": " must be one of {choices}, got {given}",
    "value_error": "{error}",
}


class InvalidOptionError(ValueError):
    """Raised by validators; the message continues after the location of the value."""


class UnknownKeyError(ValueError):
    """Raised by validators for a key that is not among the ``known`` ones."""

    def __init__(self, key: object, known: Iterable[str]) -> None:
        super().__init__(key)
        self.key, self.known = str(key), list(known)


class Model(BaseModel):
    """Options that a file may set. Unknown keys are errors, and no type is converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, value: Any) -> Any:
        # first: report a misspelt key rather than the resulting missing key
        if isinstance(value, dict):
            for key in value:
                if key not in cls.model_fields:
                    raise UnknownKeyError(key, cls.model_fields)
        return value


Checked = TypeVar("Checked", bound=BaseModel)
Item = TypeVar("Item")


def _distinct(values: list[Item]) -> list[Item]:
    for value in values:
        if values.count(value) > 1:
            raise InvalidOptionError(f" contains {value!r} twice; remove one")
    return values


def _as_list(value: Any, validate: Callable[[Any], list[str]]) -> list[str]:
    if not isinstance(value, str | list):
        raise InvalidOptionError(
            f" must be an identifier or a list of identifiers, got {shown(value)}"
        )
    return validate([value] if isinstance(value, str) else value)


Distinct = AfterValidator(_distinct)
#: a list of identifiers without repetition
Names = Annotated[list[str], Field(min_length=1), Distinct]
#: an identifier, or a list of them; always a list once validated
OneOrMore = Annotated[Names, WrapValidator(_as_list, json_schema_input_type=str | list[str])]


def validated(model: type[Checked], value: Any, what: str) -> Checked:
    """Return a value as a model, with all defaults.

    Raises
    ------
    ConfigError : the value is invalid; the message begins with its name ``what``.
    """
    try:
        return model.model_validate(value)
    except ValidationError as invalid:
        error = invalid.errors(include_url=False)[0]
    kind, given = error["type"], error["input"]
    context = error.get("ctx", {})
    location = list(error["loc"])
    if location[-1:] == ["[key]"]:
        del location[-2:]
        kind = "invalid_key" if kind == "string_type" else kind
    if kind == "missing":
        context = {"key": location.pop()}
    if kind == "too_short" and context["min_length"] == 1:
        kind = "empty"
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in location]
    place = f"{what}: {''.join(parts).lstrip('.')}" if parts else what
    if isinstance(unknown := context.get("error"), UnknownKeyError):
        raise unknown_id("key", unknown.key, unknown.known, place)
    if kind == "finite_number":
        raise ConfigError(f"{place} {not_finite(given)}.")
    if kind in TYPES:
        raise ConfigError(f"{place} {_wrong_type(given, TYPES[kind])}.")
    problem = PROBLEMS.get(kind, ": {message}").format(
        given=shown(given),
        length=len(given) if isinstance(given, str) else 0,
        choices=context.get("expected", "").replace("'", "").replace(" or ", ", "),
        message=error["msg"],
        **context,
    )
    raise ConfigError(f"{place}{problem}.")


def _wrong_type(given: Any, expected: str) -> str:
    number, hint = is_number(given), ""
    if expected in ("number", "integer"):
        if number and not is_finite(given):
            return not_finite(given)
        hint = number_as_text(given, whole=expected == "integer")
        if number and given == int(given):
            hint = f" (write {int(given)})"
    elif expected == "array" and isinstance(given, str | int | float) and str(given).isprintable():
        hint = f" (write [{given}])"
    return f"must be of type {expected}, got {shown(given)}{hint}"


def shown(value: Any) -> str:
    """Value for a message, truncated."""
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]} ..."
