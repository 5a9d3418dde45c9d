"""Strict reading of YAML files; an error message gives the line of the mistake."""

import os
from pathlib import Path
from typing import Any

import yaml

from calgrid.components.options import Options
from calgrid.errors import ConfigError, check_ids

MERGE = "tag:yaml.org,2002:merge"
#: maximum characters of an integer
LONGEST_INTEGER = 40
#: maximum values of a file, with aliases expanded
MOST_VALUES = 1_000_000
#: keys of a file that configurations include
SHARED = ("datasets", "methods", "calibrators", "probes", "protocols")


class _RepeatedKeyError(Exception):
    pass


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """The safe loader; raises _RepeatedKeyError for a repeated key (YAML would keep the last).

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
    """Read a YAML file; ``what`` is its name in messages, such as ``The configuration study.yaml``.

    Raises
    ------
    ConfigError : the file is missing, is not valid YAML in UTF-8, or has a key twice in one
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
            f"{what} is not UTF-8 from byte {error.start} on; save it as UTF-8, or give "
            "another file."
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


def read_mapping(path: Path, what: str) -> Options:
    """Read a YAML file whose top level is a mapping; see :func:`read_yaml`."""
    found = read_yaml(path, what)
    if not isinstance(found, dict):
        raise ConfigError(f"{what} must be a mapping of keys to values.")
    return found


def read_names(path: Path, what: str) -> list[str]:
    """Read a list of names: one a line; ``#`` begins a comment.

    Raises
    ------
    ConfigError : the file, called ``what`` in messages, cannot be read or has no names.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ConfigError(f"{what} is no readable text file ({error}); correct it.") from None
    names = [name for line in lines if (name := line.partition("#")[0].strip())]
    if not names:
        raise ConfigError(f"{what} has no names; write one a line.")
    return names


def read_configuration(path: Path) -> Options:
    """Read a configuration; see :func:`read_yaml`."""
    return read_mapping(path, f"The configuration {path}")


def with_plugins(config: Options, file: Path) -> Options:
    """The configuration with paths of plugins beside its file made relative to the working
    directory, if not found there: the same for each process of a call.
    """
    if not isinstance(config.get("plugins"), list):
        return config
    folders = list(config["plugins"])
    for number, folder in enumerate(folders):
        beside = file.parent / str(folder)
        if isinstance(folder, str) and not Path(folder).is_dir() and beside.is_dir():
            folders[number] = os.path.relpath(beside)
    return {**config, "plugins": folders}


def here_or_ours(path: str, home: Path) -> Path:
    """A file in the working directory, or else in ``home``."""
    return Path(path) if Path(path).exists() else home / path


def with_include(config: Options, home: Path) -> Options:
    """The configuration merged over the entries of the file in ``include``: own entries win.

    Raises
    ------
    ConfigError : the file cannot be read, or has other keys than ``SHARED``.
    """
    full = dict(config)
    if isinstance(path := config.get("include"), str):
        del full["include"]
        what = f"include: the file {path}"
        shared = read_mapping(here_or_ours(path, home), what)
        check_ids("key", shared, SHARED, what)
        for key, entries in shared.items():
            own = full.get(key, {})
            # what is no mapping, the checks of the configuration refuse
            mappings = isinstance(entries, dict) and isinstance(own, dict)
            full[key] = {**entries, **own} if mappings else entries
    return full


def is_path(text: str) -> bool:
    """Whether the file system can encode a path."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False
