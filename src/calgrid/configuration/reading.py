"""YAML files as people write them: a mistake that YAML takes silently is refused, with the line it is in."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from calgrid.errors import ConfigError

MERGE = "tag:yaml.org,2002:merge"
#: characters of a whole number
LONGEST_INTEGER = 40


class _RepeatedKeyError(Exception):
    """A mapping has a key twice, of which YAML would keep the last."""


class _Loader(yaml.SafeLoader):
    """The safe loader; a mapping in which a key is written twice raises _RepeatedKeyError.

    Keys are compared as they are written, before a merge (``<<``) adds those of another mapping.
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
        """Refuse what no number of a configuration needs, and Python would not print."""
        if len(node.value) > LONGEST_INTEGER:
            raise yaml.constructor.ConstructorError(None, None, "a number is too long", node.start_mark)
        return super().construct_yaml_int(node)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def read_yaml(path: Path, what: str) -> Any:
    """Read a YAML file.

    Parameters
    ----------
    what : names the file in messages, as their first words.

    Raises
    ------
    ConfigError : the file is missing, no YAML, or has a key twice in one mapping.
    """
    try:
        loader = _Loader(path.read_text(encoding="utf-8"))
        try:
            found = loader.get_single_data()
        finally:
            loader.dispose()
        json.dumps(found, default=str, skipkeys=True)  # raises ValueError for an alias within what it repeats
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


def read_mapping(path: Path, what: str) -> dict[str, Any]:
    """Read a YAML file that holds keys and values; see :func:`read_yaml`."""
    found = read_yaml(path, what)
    if not isinstance(found, Mapping):
        raise ConfigError(f"{what} must be a mapping of keys to values.")
    return dict(found)


def read_configuration(path: Path) -> dict[str, Any]:
    """Read the file of a configuration."""
    return read_mapping(path, f"The configuration {path}")
