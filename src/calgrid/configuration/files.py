"""Configuration files in YAML: read strictly, checked against a JSON schema, with defaults filled in.

Every error is one sentence with the place of the mistake.
"""

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from calgrid.errors import ConfigError, number_as_text, unknown_id
from calgrid.ranges import is_finite, not_finite

if TYPE_CHECKING:
    from jsonschema import ValidationError

MERGE = "tag:yaml.org,2002:merge"
#: maximum characters of an integer, and of a wrong value in a message
LONGEST_INTEGER, LONGEST_SHOWN = 40, 80
#: maximum number of values in a file, counting repetitions by aliases
MOST_VALUES = 1_000_000


class _RepeatedKeyError(Exception):
    """A mapping has a key twice; YAML would keep the last one."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """The safe loader, but a repeated key in a mapping raises _RepeatedKeyError.

    Keys are compared as written, before a merge (``<<``) adds those of another mapping.
    """

    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == MERGE:
                continue
            line, name = key.start_mark.line + 1, (key.tag, key.value)
            if name in lines:
                raise _RepeatedKeyError(f"line {line}: the key '{key.value}' is in line {lines[name]} already")
            lines[name] = line
        return node

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Refuse very long integers, which Python would not print in a message."""
        if len(node.value) > LONGEST_INTEGER:
            raise yaml.constructor.ConstructorError(None, None, "a number is too long", node.start_mark)
        return super().construct_yaml_int(node)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def read_yaml(path: Path, what: str) -> Any:
    """Read a YAML file.

    Raises ConfigError: the file is missing, not valid YAML, or has a key twice in one mapping.

    Parameters
    ----------
    what : name of the file at the beginning of messages.
    """
    try:
        loader = _Loader(path.read_text(encoding="utf-8"))
        try:
            found = loader.get_single_data()
        finally:
            loader.dispose()
        if _count(found, {}) > MOST_VALUES:
            raise ValueError(f"its aliases repeat more than {MOST_VALUES:,} values")
        return found
    except FileNotFoundError:
        raise ConfigError(f"{what} does not exist.") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{what} is not UTF-8 from byte {error.start} on: save it as UTF-8.") from None
    except _RepeatedKeyError as error:
        raise ConfigError(f"{what}, {error}: join the two or remove one.") from None
    except RecursionError:
        raise ConfigError(f"{what} is nested too deeply: write it with fewer levels.") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}," if mark else ""
        begun = f", begun in line {error.context_mark.line + 1}" if error.context_mark else ""
        during = f" ({error.context}{begun})" if error.context else ""
        raise ConfigError(f"{what}{place} is not valid YAML: {error.problem}{during}.") from None
    except (yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).split()).replace('in "<unicode string>", ', "")
        raise ConfigError(f"{what} is not valid YAML: {reason}.") from None


def _count(value: Any, known: dict[int, int | None]) -> int:
    """Count values, including repetitions by aliases. Raises ValueError: an alias contains itself."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        known[id(value)] = None
        parts = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_count(part, known) for part in parts)
    count = known[id(value)]
    if count is None:
        raise ValueError("an alias contains itself")
    return count


def read_mapping(path: Path, what: str) -> dict[str, Any]:
    """Read a YAML file with a mapping; see :func:`read_yaml`."""
    found = read_yaml(path, what)
    if not isinstance(found, Mapping):
        raise ConfigError(f"{what} must be a mapping of keys to values.")
    return dict(found)


def read_configuration(path: Path) -> dict[str, Any]:
    """Read the file of a configuration."""
    return read_mapping(path, f"The configuration {path}")


def _is_integer(_: Any, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(_: Any, value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and is_finite(value)


@functools.cache
def _validator(schema_path: Path) -> Any:
    import jsonschema  # noqa: PLC0415  (`calgrid list` imports this module, but checks no configuration)

    # JSON accepts 1.0 as an integer, which no seed or count may be, and has no NaN
    types = {"integer": _is_integer, "number": _is_number}
    checker = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many(types)
    strict = jsonschema.validators.extend(jsonschema.Draft202012Validator, type_checker=checker)
    return strict(load_schema(schema_path))


@functools.cache
def load_schema(path: Path) -> Mapping[str, Any]:
    """Read a JSON schema written in YAML."""
    return read_yaml(Path(path), f"The schema {path}")


def validate(value: Any, schema_path: Path, what: str) -> None:
    """Raise ConfigError if ``value`` does not follow the schema; ``what`` names it in the message."""
    errors = _validator(schema_path).iter_errors(value)
    from jsonschema.exceptions import best_match  # noqa: PLC0415

    error = best_match(errors, key=_relevance)
    if error is not None:
        raise ConfigError(_sentence(error, what))


def read_valid(path: Path, schema_path: Path, what: str) -> Any:
    """Read a YAML file that must follow a schema; see :func:`read_yaml` and :func:`validate`."""
    found = read_yaml(path, what)
    validate(found, schema_path, what)
    return found


def fill_defaults(value: dict[str, Any], schema_path: Path) -> dict[str, Any]:
    """Return a copy with the schema's defaults for missing keys, also in nested objects."""
    root = load_schema(schema_path)
    return _filled(value, root, root)


def _relevance(error: "ValidationError") -> tuple[Any, ...]:
    # misspelt keys first: they may be the reason why another key is missing
    return (-len(error.path), error.validator == "additionalProperties", error.validator not in ("anyOf", "oneOf"))


def _place(error: "ValidationError", what: str) -> str:
    parts = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    return f"{what}: {parts.lstrip('.')}" if parts else what


def _sentence(error: "ValidationError", what: str) -> str:
    place = _place(error, what)
    explain = _EXPLANATIONS.get(str(error.validator))
    return explain(error, place) if explain else f"{place}: {error.message}."


def _unknown_key(error: "ValidationError", place: str) -> str:
    known = error.schema.get("properties", {})
    extra = next(key for key in error.instance if key not in known)
    return str(unknown_id("key", extra, known, place))


def _missing_key(error: "ValidationError", place: str) -> str:
    missing = next(key for key in error.validator_value if key not in error.instance)
    return f"{place}: the key '{missing}' is missing."


def _alternatives(error: "ValidationError", place: str) -> str:
    if not error.absolute_path:
        return f"{place}: it needs 'grids' or 'external', or there is nothing to do."
    return f"{place} must be one identifier or a list of them, got {_shown(error.instance)}."


def _repeated(error: "ValidationError", place: str) -> str:
    double = next(item for item in error.instance if error.instance.count(item) > 1)
    return f"{place} contains {double!r} twice: remove one."


def _wrong_type(error: "ValidationError", place: str) -> str:
    if "propertyNames" in error.absolute_schema_path:
        return f"{place}: {_shown(error.instance)} is not a valid name: write text that starts with a letter."
    wanted = [error.validator_value] if isinstance(error.validator_value, str) else error.validator_value
    given, numbers = error.instance, {"number", "integer"} & set(wanted)
    whole = numbers == {"integer"}
    hint = number_as_text(given, whole) if numbers else ""
    if numbers and isinstance(given, int | float) and not isinstance(given, bool):
        if not is_finite(given):
            return f"{place} {not_finite(given)}."
        hint = f" (write {int(given)})" if whole and given == int(given) else ""
    if "array" in wanted and isinstance(given, str | int | float) and str(given).isprintable() and given != "":
        hint = f" (write [{given}])"
    return f"{place} must be of type {' or '.join(wanted)}, got {_shown(given)}{hint}."


def _shown(value: Any) -> str:
    """A value in a message, truncated if it is long."""
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]} ..."


def _empty(error: "ValidationError", place: str) -> str:
    least = error.validator_value
    return f"{place} must not be empty." if least == 1 else f"{place} must have at least {least} entries."


_EXPLANATIONS: Mapping[str, Callable[["ValidationError", str], str]] = {
    "additionalProperties": _unknown_key,
    "required": _missing_key,
    "anyOf": _alternatives,
    "minItems": _empty,
    "minProperties": _empty,
    "uniqueItems": _repeated,
    "type": _wrong_type,
    "enum": lambda error, place: (
        f"{place} must be one of {', '.join(map(str, error.validator_value))}, got {_shown(error.instance)}."
    ),
    "maxLength": lambda error, place: (
        f"{place} must have at most {error.validator_value} characters, got {len(error.instance)}."
    ),
    "not": lambda error, place: f"{place} must not be {error.instance!r}: that name is taken.",
    "pattern": lambda error, place: (
        f"{place}: {_shown(error.instance)} is not a valid name (pattern {error.validator_value})."
    ),
}


def _resolve(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in schema:
        target: Any = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema


def _filled(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> Any:
    schema = _resolve(schema, root)
    if isinstance(value, Mapping):
        result = {key: _filled(item, _child(schema, key), root) for key, item in value.items()}
        for key, child in schema.get("properties", {}).items():
            if key not in result and "default" in _resolve(child, root):
                result[key] = _resolve(child, root)["default"]
        return result
    if isinstance(value, list):
        return [_filled(item, schema.get("items", {}), root) for item in value]
    return value


def _child(schema: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    fallback = schema.get("additionalProperties", {})
    return schema.get("properties", {}).get(key, fallback if isinstance(fallback, Mapping) else {})


def is_path(text: str) -> bool:
    """Whether a text can be a path."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False
