"""The pinned release (envs/requirements.lock), the conda files of the stages and pyproject.toml say the same."""

import argparse
import ast
import importlib.metadata
import re
import runpy
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from calgrid import registry
from calgrid.cli.main import build_parser

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"
RULE_FILES = sorted((ROOT / "workflow" / "rules").glob("*.smk"))
ENVIRONMENTS = sorted(path.stem for path in (ROOT / "envs").glob("*.yaml"))
PIN = runpy.run_path(str(ROOT / "envs" / "pin.py"))
#: kinds of components that a stage loads by identifier (it imports their files through the registry)
TRAINING = {"loss", "procedure", "backbone"}
LOADED_KINDS = {"data": {"dataset"}, "train": TRAINING, "probe": {*TRAINING, "probe"}, "calibrate": {"calibrator"}}
#: packages that no calgrid module imports, with the library that does
NEEDED_BY_LIBRARIES = {"data": {"pillow": "scikit-learn reads its sample photographs with it"}}


# the lock ---------------------------------------------------------------------------------------------------------


def lock_lines() -> list[str]:
    lines = (ROOT / "envs" / "requirements.lock").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@cache
def locked() -> dict[str, str]:
    """PyPI name (canonical) -> version."""
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lock_lines())}


def declared(extra: str | None = None) -> list[Requirement]:
    """Requirements of pyproject.toml: those of the package, or of one extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = project["optional-dependencies"][extra] if extra else project["dependencies"]
    return [Requirement(text) for text in texts]


def test_lock_has_one_exact_public_version_a_line_and_nothing_else():
    assert [line for line in lock_lines() if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", line)] == []


def test_lock_is_sorted_and_names_each_package_once():
    names = [line.split("==")[0].lower() for line in lock_lines()]
    assert names == sorted(names)
    assert len(locked()) == len(names)


@pytest.mark.parametrize("extra", [None, "slurm", "dev"])
def test_every_declared_dependency_is_locked_at_a_version_that_it_accepts(extra):
    for requirement in declared(extra):
        version = locked()[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} is locked at {version}"


def test_everything_that_a_locked_package_requires_is_locked_too():
    missing = {}
    for name in locked():
        for text in importlib.metadata.requires(name) or ():
            required = Requirement(text)
            applies = required.marker is None or required.marker.evaluate({"extra": ""})
            if applies and not required.specifier.contains(locked().get(canonicalize_name(required.name), "")):
                missing[text] = name
    assert missing == {}


def test_release_is_not_tested_with_another_version_than_it_is_locked_to():
    tested = ("torch", "numpy", "pandas", "pyarrow", "scipy", "scikit-learn", "snakemake")
    assert {name: importlib.metadata.version(name) for name in tested} == {name: locked()[name] for name in tested}


def test_torch_is_the_version_that_torchvision_is_built_for():
    pair = next(text for text in importlib.metadata.requires("torchvision") if Requirement(text).name == "torch")
    assert Requirement(pair).specifier.contains(locked()["torch"])
    assert locked()["torch"] != "2.13.0"  # no torchvision goes with it


# conda files ------------------------------------------------------------------------------------------------------


def conda_file(environment: str) -> dict[str, list[str]]:
    return yaml.safe_load((ROOT / "envs" / f"{environment}.yaml").read_text(encoding="utf-8"))


def conda_pins(environment: str) -> dict[str, str]:
    """PyPI name -> version of everything that a conda file lists, except Python."""
    pins = dict(text.split("=") for text in conda_file(environment)["dependencies"])
    return {PIN["CONDA_TO_PYPI"].get(name, name): version for name, version in pins.items() if name != "python"}


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_conda_file_has_only_public_channels_and_the_oldest_supported_python(environment):
    content = conda_file(environment)
    assert set(content) == {"channels", "dependencies"}
    assert content["channels"] == ["conda-forge", "nodefaults"]
    assert content["dependencies"][0] == "python=3.11"
    assert content["dependencies"][1:] == sorted(content["dependencies"][1:])


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_conda_file_is_as_make_lock_writes_it(environment):
    path = ROOT / "envs" / f"{environment}.yaml"
    lock = (ROOT / "envs" / "requirements.lock").read_text(encoding="utf-8")
    text = path.read_text(encoding="utf-8")
    assert PIN["pin"](text, lock) == text
    pins = conda_pins(environment)
    assert pins == {name: locked()[canonicalize_name(name)] for name in pins}


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_conda_file_lists_what_its_stages_import_and_nothing_else(environment):
    imported = set().union(*(third_party(command, environment) for command in commands()[environment]))
    assert set(conda_pins(environment)) == imported | set(NEEDED_BY_LIBRARIES.get(environment, {}))


# what a stage imports ---------------------------------------------------------------------------------------------


@cache
def commands() -> dict[str, set[str]]:
    """Conda file -> commands ``python -m calgrid <command>`` that rules run in it."""
    found: dict[str, set[str]] = {}
    for name, body in rules():
        for command in re.findall(r"python -m calgrid (\w+)", body):
            environment = re.search(r'"\.\./\.\./envs/(\w+)\.yaml"', body)
            assert environment, f"rule {name} runs calgrid {command} without an environment"
            found.setdefault(environment[1], set()).add(command)
    return found


def third_party(command: str, environment: str) -> set[str]:
    """Distributions that a command's function, and every calgrid module behind it, names in import statements."""
    subparsers = next(action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    module, _, function = subparsers.choices[command].get_default("run").partition(":")
    kinds = frozenset(LOADED_KINDS.get(environment, ()))
    waiting = [*_imports_of_function(f"calgrid.cli.{module}", function, kinds), "calgrid.__main__"]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in seen and name.split(".")[0] == "calgrid":
            waiting.extend(_imports_of_module(name, kinds))
        seen.add(name)
    return _distributions({name.split(".")[0] for name in seen})


def _distributions(modules: set[str]) -> set[str]:
    """PyPI names of the third-party ones among top-level modules."""
    known = _modules_of_distributions()
    return {canonicalize_name(known[name][0]) for name in modules - sys.stdlib_module_names - {"calgrid"}}


@cache
def _modules_of_distributions() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


def _imports_of_function(module: str, function: str, kinds: frozenset[str]) -> set[str]:
    tree = ast.parse(_source(module).read_text(encoding="utf-8"))
    chosen = [node for node in tree.body if not isinstance(node, ast.FunctionDef) or node.name == function]
    return set(_imported(ast.Module(chosen, []), kinds))


@cache
def _imports_of_module(name: str, kinds: frozenset[str]) -> frozenset[str]:
    path = _source(name)
    if path is None:  # a function or class of its package
        return frozenset()
    packages = {name.rsplit(".", count)[0] for count in range(1, name.count(".") + 1)}
    return frozenset({*packages, *_imported(ast.parse(path.read_text(encoding="utf-8")), kinds)})


def _source(module: str) -> Path | None:
    base = SRC.joinpath(*module.split("."))
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def _imported(tree: ast.AST, kinds: frozenset[str]) -> Iterator[str]:
    if isinstance(tree, ast.If) and ast.unparse(tree.test) == "TYPE_CHECKING":
        return
    if isinstance(tree, ast.Import):
        yield from (alias.name for alias in tree.names)
    elif isinstance(tree, ast.ImportFrom) and tree.module:
        yield tree.module
        yield from (f"{tree.module}.{alias.name}" for alias in tree.names)
    elif isinstance(tree, ast.Call) and tree.args and isinstance(tree.args[0], ast.Constant):
        called, argument = ast.unparse(tree.func).rpartition(".")[2], tree.args[0].value
        if called == "import_module":
            yield argument
        elif called == "load" and argument in kinds:
            yield from (spec.module.partition(":")[0] for spec in registry.specs(argument).values())
    for child in ast.iter_child_nodes(tree):
        yield from _imported(child, kinds)


def test_every_library_that_the_package_imports_is_a_declared_dependency():
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SRC.rglob("*.py"))]
    top = {name.split(".")[0] for tree in trees for name in _imported(tree, frozenset())}
    imported = _distributions(top)
    assert imported <= {canonicalize_name(requirement.name) for requirement in declared()}


def test_closure_finds_imports_in_functions_of_components_and_by_name():
    assert third_party("data", "data") >= {"numpy", "scikit-learn"}
    assert "torch" in third_party("train", "train")
    assert "torch" not in third_party("evaluate", "calibrate")
    assert "scikit-learn" not in third_party("train", "train")


# rules ------------------------------------------------------------------------------------------------------------


@cache
def rules() -> list[tuple[str, str]]:
    """Name and text of every rule of the workflow."""
    found = []
    for path in RULE_FILES:
        text = path.read_text(encoding="utf-8")
        for match in re.finditer(r"^( *)rule\b *(\w*):\n((?:\1 {4}.*\n|\n)+)", text, flags=re.MULTILINE):
            found.append((match[2] or path.stem, match[3]))
    return found


def directives(body: str) -> set[str]:
    indent = re.match(r" *", body)[0]
    return set(re.findall(rf"^{indent}(\w+):", body, flags=re.MULTILINE))


def test_rules_are_found():
    names = {name for name, _ in rules()}
    assert {"prepare_data", "train", "predict", "calibrate", "aggregate", "tables", "figures", "report"} <= names
    assert set(commands()) == set(ENVIRONMENTS)


@pytest.mark.parametrize(("name", "body"), rules(), ids=[name for name, _ in rules()])
def test_rule_with_a_shell_says_environment_log_benchmark_and_threads(name, body):
    needed = {"conda", "log", "benchmark", "threads"} if "shell" in directives(body) else {"log"}
    assert needed <= directives(body), f"rule {name} lacks {sorted(needed - directives(body))}"
