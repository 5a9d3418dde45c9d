"""Messages and the page of faults name commands, options and keys that exist."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from snakemake.cli import get_argument_parser
from tests.conftest import HOME

from calgrid.cli.commands import COMMANDS
from calgrid.cli.main import build_parser
from calgrid.components import registry
from calgrid.study.model import Config
from calgrid.training.protocol import TrainingProtocol

FAULTS = (HOME / "docs" / "faults.md").read_text()
#: verbs of an advice, up to the first name with an underscore
ADVICE = re.compile(
    r"\b(?:set|add|use|give|raise|lower|remove|correct|write|change)\b[^.;:]*?\b"
    r"([a-z]+(?:_[a-z]+)+)\b(?!\()"
)
#: methods and attributes of other libraries' objects
OF_OTHERS = {"predict_proba", "decision_function_shape"}


@functools.cache
def tree(path: Path) -> ast.Module:
    """Syntax tree of a file."""
    return ast.parse(path.read_text())


@functools.cache
def arguments(path: Path) -> set[str]:
    """Names of the arguments of all functions of a file."""
    return {each.arg for each in ast.walk(tree(path)) if isinstance(each, ast.arg)}


@functools.cache
def texts() -> list[tuple[Path, str]]:
    return list(read_texts())


def read_texts() -> Iterator[tuple[Path, str]]:
    """File and text of each raised message and each warning; ``{}`` stands for values."""
    for path in sorted((HOME / "src" / "calgrid").rglob("*.py")):
        for node in ast.walk(tree(path)):
            called = getattr(node, "func", None)
            name = getattr(called, "id", getattr(called, "attr", ""))
            if isinstance(node, ast.Raise) or name in ("warn", "log", "say"):
                parts = [each for each in ast.walk(node) if isinstance(each, ast.JoinedStr)]
                inside = {id(value) for part in parts for value in part.values}
                for each in ast.walk(node):
                    if isinstance(each, ast.JoinedStr):
                        shown = "".join(
                            str(value.value) if isinstance(value, ast.Constant) else "{}"
                            for value in each.values
                        )
                        yield path, shown
                    elif isinstance(each, ast.Constant) and id(each) not in inside:
                        yield path, str(each.value)


def keys_of(content: object) -> Iterator[str]:
    """All keys of mappings, at any depth."""
    if isinstance(content, dict):
        yield from content
    for each in content.values() if isinstance(content, dict) else content:
        if isinstance(each, dict | list):
            yield from keys_of(each)


@pytest.fixture(scope="module")
def keys():
    """Keys of configurations, protocols, options of components, and of profiles of Snakemake."""
    found = {*keys_of(Config.model_json_schema()), *keys_of(TrainingProtocol.model_json_schema())}
    for kind in registry.KINDS:
        for component in registry.descriptions(kind).values():
            found |= {*component.options}
    profile = yaml.safe_load((HOME / "profiles" / "slurm" / "config.yaml").read_text())
    found |= {*keys_of(profile)}
    return found


@pytest.fixture(scope="module")
def options():
    """Options of all commands, and those of Snakemake, which ``calgrid run`` passes on."""
    (commands,) = (each for each in build_parser()._actions if each.dest == "command")
    found = {*get_argument_parser()._option_string_actions}
    for parser in commands.choices.values():
        found |= {*parser._option_string_actions}
    return found


def test_messages_name_commands_and_options_that_exist(options):
    wrong = []
    for path, text in texts():
        commands = re.findall(r"'calgrid ([a-z-]+)", text)
        wrong += [(path.name, name) for name in commands if name not in COMMANDS]
        named = re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)
        if "torchrun" not in text:  # which has options of its own
            wrong += [(path.name, name) for name in named if name not in options]
    assert wrong == []


def test_messages_advise_keys_and_arguments_that_exist(keys):
    """An argument is one of a function in the file of the message."""
    wrong = []
    for path, text in texts():
        named = {*ADVICE.findall(text)} - keys - arguments(path) - OF_OTHERS
        wrong += [(path.name, name, text) for name in named]
    assert wrong == []


def test_the_page_of_faults_names_commands_options_and_keys_that_exist(options, keys):
    quoted = re.findall(r"`([^`]+)`", FAULTS)
    commands = [text.split()[1] for text in quoted if text.startswith("calgrid ")]
    assert commands
    assert {*commands} <= {*COMMANDS}
    assert {*re.findall(r"(?<![\w-])--[a-z][a-z-]+", FAULTS)} <= options
    named = re.findall(r"`([a-z]+(?:[_-][a-z]+)+)`|`([a-z_-]+): ", FAULTS)
    assert {name for each in named for name in each if name} <= keys
