"""Reading of YAML files: strict parsing, validation against a JSON schema, defaults.

Each error message is one sentence that gives the location of the mistake.
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
#: maximum characters of an integer, and of a value quoted in a message
LONGEST_INTEGER, LONGEST_SHOWN = 40, 80
#: maximum values of a file, with aliases expanded
MOST_VALUES = 1_000_000


class _RepeatedKeyError(Exception):
    pass


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """The safe loader, which also raises _RepeatedKeyError for a repeated key (YAML would keep the last).

    Keys that a merge (``<<``) adds are not compared.
    """

    def compose_mapping_node(self, anchor: str | None) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == MERGE:
                continue
            line, name = key.start_mark.line + 1, (key.tag, key.value)
            if name in lines:
                raise _RepeatedKeyError(f"line {line}: the key '{key.value}' is already in line {lines[name]}")
            lines[name] = line
        return node

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        # Python does not print integers of thousands of digits
        if len(node.value) > LONGEST_INTEGER:
            raise yaml.constructor.ConstructorError(None, None, "a number is too long", node.start_mark)
        return super().construct_yaml_int(node)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def read_yaml(path: Path, what: str) -> Any:
    """Read a YAML file.

    Parameters
    ----------
    what : subject of error messages, for example ``The configuration study.yaml``.

    Raises
    ------
    ConfigError : the file is missing, is not valid YAML in UTF-8, or has a key twice in one mapping.
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
        raise ConfigError(f"{what} is not UTF-8 from byte {error.start} on; save it as UTF-8.") from None
    except _RepeatedKeyError as error:
        raise ConfigError(f"{what}, {error}; remove one of them.") from None
    except RecursionError:
        raise ConfigError(f"{what} is nested too deeply; use fewer levels.") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}," if mark else ""
        start = f", which starts in line {error.context_mark.line + 1}" if error.context_mark else ""
        during = f" ({error.context}{start})" if error.context else ""
        raise ConfigError(f"{what}{place} is not valid YAML: {error.problem}{during}.") from None
    except (yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).split()).replace('in "<unicode string>", ', "")
        raise ConfigError(f"{what} is not valid YAML: {reason}.") from None


def _count(value: Any, known: dict[int, int | None]) -> int:
    """Count values with aliases expanded; a recursive alias raises ValueError."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        known[id(value)] = None
        parts = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_count(part, known) for part in parts)
    count = known[id(value)]
    if count is None:
        raise ValueError("an alias refers to a value that contains it")
    return count


def read_mapping(path: Path, what: str) -> dict[str, Any]:
    """Read a YAML file whose top level is a mapping; see :func:`read_yaml`."""
    found = read_yaml(path, what)
    if not isinstance(found, dict):
        raise ConfigError(f"{what} must be a mapping of keys to values.")
    return found


def read_configuration(path: Path) -> dict[str, Any]:
    """Read a configuration; see :func:`read_yaml`."""
    return read_mapping(path, f"The configuration {path}")


def _is_integer(_: Any, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(_: Any, value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and is_finite(value)


@functools.cache
def _validator(schema_path: Path) -> Any:
    import jsonschema  # noqa: PLC0415  (slow, and `calgrid list` validates nothing)

    # JSON Schema accepts 1.0 as an integer, and NaN as a number
    types = {"integer": _is_integer, "number": _is_number}
    checker = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many(types)
    strict = jsonschema.validators.extend(jsonschema.Draft202012Validator, type_checker=checker)
    return strict(load_schema(schema_path))


@functools.cache
def load_schema(path: Path) -> Mapping[str, Any]:
    """Read a JSON schema written in YAML."""
    return read_yaml(path, f"The schema {path}")


def validate(value: Any, schema_path: Path, what: str) -> None:
    """Raise ConfigError if ``value``, which messages call ``what``, does not follow the schema."""
    errors = _validator(schema_path).iter_errors(value)
    from jsonschema.exceptions import best_match  # noqa: PLC0415

    error = best_match(errors, key=_relevance)
    if error is not None:
        parts = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
        place = f"{what}: {parts.lstrip('.')}" if parts else what
        explain = _EXPLANATIONS.get(str(error.validator))
        raise ConfigError(explain(error, place) if explain else f"{place}: {error.message}.")


def read_valid(path: Path, schema_path: Path, what: str) -> Any:
    """Read and validate a YAML file; see :func:`read_yaml` and :func:`validate`."""
    found = read_yaml(path, what)
    validate(found, schema_path, what)
    return found


def fill_defaults(value: dict[str, Any], schema_path: Path) -> dict[str, Any]:
    """Return a copy in which missing keys have the defaults of the schema, also in nested objects."""
    root = load_schema(schema_path)
    return _filled(value, root, root)


def _relevance(error: "ValidationError") -> tuple[Any, ...]:
    # report a misspelt key before the missing key that it causes
    return (-len(error.path), error.validator == "additionalProperties", error.validator not in ("anyOf", "oneOf"))


def _unknown_key(error: "ValidationError", place: str) -> str:
    known = error.schema.get("properties", {})
    extra = next(key for key in error.instance if key not in known)
    return str(unknown_id("key", extra, known, place))


def _missing_key(error: "ValidationError", place: str) -> str:
    missing = next(key for key in error.validator_value if key not in error.instance)
    return f"{place}: the key '{missing}' is missing."


def _alternatives(error: "ValidationError", place: str) -> str:
    if not error.absolute_path:
        return f"{place}: give 'grids', 'external' or both."
    return f"{place} must be an identifier or a list of identifiers, got {_shown(error.instance)}."


def _repeated(error: "ValidationError", place: str) -> str:
    double = next(item for item in error.instance if error.instance.count(item) > 1)
    return f"{place} contains {double!r} twice; remove one."


def _wrong_type(error: "ValidationError", place: str) -> str:
    if "propertyNames" in error.absolute_schema_path:
        return f"{place}: {_shown(error.instance)} is not a valid name; use text that starts with a letter."
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
    """Value for a message, truncated."""
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
    "not": lambda error, place: f"{place}: the name {error.instance!r} is reserved; choose another one.",
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
    """Whether the file system can encode a path."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False
