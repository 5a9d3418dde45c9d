"""Reading of YAML files: strict parsing, validation against a JSON schema, defaults.

Each error message is one sentence that gives the location of the mistake.
"""

import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from calgrid.components.options import is_finite, not_finite
from calgrid.errors import ConfigError, number_as_text, unknown_id

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
    """The safe loader, which also raises _RepeatedKeyError for a repeated key (YAML would keep the
    last).

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
                raise _RepeatedKeyError(
                    f"line {line}: the key '{key.value}' is already in line {lines[name]}"
                )
            lines[name] = line
        return node

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        # Python does not print integers of thousands of digits
        if len(node.value) > LONGEST_INTEGER:
            raise yaml.constructor.ConstructorError(
                None, None, "a number is too long", node.start_mark
            )
        return super().construct_yaml_int(node)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def read_yaml(path: Path, what: str) -> Any:
    """Read a YAML file, which messages call ``what``, for example ``The configuration study.yaml``.

    Raises ConfigError: the file is missing, is not valid YAML in UTF-8, or has a key twice in one
    mapping.
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
        raise ConfigError(
            f"{what} is not UTF-8 from byte {error.start} on; save it as UTF-8."
        ) from None
    except _RepeatedKeyError as error:
        raise ConfigError(f"{what}, {error}; remove one of them.") from None
    except RecursionError:
        raise ConfigError(f"{what} is nested too deeply; use fewer levels.") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}," if mark else ""
        start = (
            f", which starts in line {error.context_mark.line + 1}" if error.context_mark else ""
        )
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


@functools.cache
def _validator(schema_path: Path) -> Any:
    import jsonschema  # noqa: PLC0415  (slow, and `calgrid list` validates nothing)

    # JSON Schema accepts 1.0 as an integer, and NaN as a number
    types = {
        "integer": lambda _, value: isinstance(value, int) and not isinstance(value, bool),
        "number": lambda _, value: (
            isinstance(value, int | float) and not isinstance(value, bool) and is_finite(value)
        ),
    }
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
        parts = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path
        )
        place = f"{what}: {parts.lstrip('.')}" if parts else what
        raise _refusal(error, place)


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
    return (
        -len(error.path),
        error.validator == "additionalProperties",
        error.validator not in ("anyOf", "oneOf"),
    )


def _refusal(error: "ValidationError", place: str) -> ConfigError:
    given, wanted, said = error.instance, error.validator_value, f": {error.message}"
    match error.validator:
        case "additionalProperties":
            known = error.schema.get("properties", {})
            return unknown_id("key", next(key for key in given if key not in known), known, place)
        case "required":
            said = f": the key '{next(key for key in wanted if key not in given)}' is missing"
        case "anyOf" if not error.absolute_path:
            said = ": give 'grids', 'external' or both"
        case "anyOf":
            said = f" must be an identifier or a list of identifiers, got {_shown(given)}"
        case "minItems" | "minProperties":
            said = " must not be empty" if wanted == 1 else f" must have at least {wanted} entries"
        case "uniqueItems":
            said = f" contains {next(item for item in given if given.count(item) > 1)!r} twice; remove one"
        case "type" if "propertyNames" in error.absolute_schema_path:
            said = f": {_shown(given)} is not a valid name; use text that starts with a letter"
        case "type":
            said = f" {_wrong_type(given, [wanted] if isinstance(wanted, str) else wanted)}"
        case "enum":
            said = f" must be one of {', '.join(map(str, wanted))}, got {_shown(given)}"
        case "maxLength":
            said = f" must have at most {wanted} characters, got {len(given)}"
        case "not":
            said = f": the name {given!r} is reserved; choose another one"
        case "pattern":
            said = f": {_shown(given)} is not a valid name (pattern {wanted})"
    return ConfigError(f"{place}{said}.")


def _wrong_type(given: Any, wanted: Sequence[str]) -> str:
    numbers = {"number", "integer"} & set(wanted)
    whole = numbers == {"integer"}
    hint = number_as_text(given, whole) if numbers else ""
    if numbers and isinstance(given, int | float) and not isinstance(given, bool):
        if not is_finite(given):
            return not_finite(given)
        hint = f" (write {int(given)})" if whole and given == int(given) else ""
    if (
        "array" in wanted
        and isinstance(given, str | int | float)
        and str(given).isprintable()
        and given != ""
    ):
        hint = f" (write [{given}])"
    return f"must be of type {' or '.join(wanted)}, got {_shown(given)}{hint}"


def _shown(value: Any) -> str:
    """Value for a message, truncated."""
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]} ..."


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
        children = {
            key: _resolve(child, root) for key, child in schema.get("properties", {}).items()
        }
        others = schema.get("additionalProperties")
        others = others if isinstance(others, Mapping) else {}
        missing = {
            key: child["default"]
            for key, child in children.items()
            if key not in value and "default" in child
        }
        return {
            **{key: _filled(item, children.get(key, others), root) for key, item in value.items()},
            **missing,
        }
    if isinstance(value, list):
        return [_filled(item, schema.get("items", {}), root) for item in value]
    return value


def is_path(text: str) -> bool:
    """Whether the file system can encode a path."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False
