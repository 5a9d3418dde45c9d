"""What holds for the repository as a whole: layout, licence, no traces of a machine, sizes, tests that assert."""

import ast
import re
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
FOLDERS = ("benchmarks", "config", "envs", "src/calgrid", "tests", "workflow/rules", "workflow/schemas")
FILES = (".ci/run", "LICENSE", "Makefile", "README.md", "Snakefile", "config/config.yaml", "pyproject.toml")
#: folders at the root of somebody's machine, which no file may name
MACHINE_FOLDERS = ("work", "root", "farm", "opt", "home")
#: what git ignores
MADE_HERE = {".git", ".venv", ".snakemake", ".hypothesis", ".pytest_cache", ".ruff_cache", "__pycache__", "results"}
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60


@cache
def tracked() -> tuple[Path, ...]:
    """Files that git knows or would take in; without git (an unpacked archive), all but what is made here."""
    if not (ROOT / ".git").exists():
        found = (path for path in sorted(ROOT.rglob("*")) if path.is_file())
        return tuple(path for path in found if MADE_HERE.isdisjoint(path.relative_to(ROOT).parts))
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    return tuple(path for path in (ROOT / name for name in names if name) if path.is_file())


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="ignore")


def python_files(*folders: str) -> list[Path]:
    return [path for path in tracked() if path.suffix == ".py" and path.is_relative_to(ROOT.joinpath(*folders))]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


# layout -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FOLDERS)
def test_folder_is_there(name):
    assert (ROOT / name).is_dir()


@pytest.mark.parametrize("name", FILES)
def test_file_is_there(name):
    assert (ROOT / name).is_file()


def test_profiles_are_found_from_the_root_and_the_default_one_takes_no_key_from_the_other():
    """Snakemake lets the default profile win over the one that a call names."""
    profiles = ROOT / "workflow" / "profiles"
    assert (ROOT / "slurm").samefile(profiles / "slurm")
    assert (ROOT / "profiles").samefile(profiles)
    default, slurm = (yaml.safe_load(text_of(profiles / name / "config.yaml")) for name in ("default", "slurm"))
    assert default == {"rerun-triggers": ["mtime", "params"]}
    assert default.keys().isdisjoint(slurm)


def test_licence_is_the_one_that_the_package_declares():
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    assert project["license"] == "MIT"
    assert text_of(ROOT / "LICENSE").startswith("MIT License")


def test_what_is_made_here_is_not_tracked():
    assert [relative(path) for path in tracked() if not MADE_HERE.isdisjoint(path.relative_to(ROOT).parts)] == []


def test_ci_script_is_executable():
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


# traces of a machine ----------------------------------------------------------------------------------------------


def test_no_file_names_a_path_of_a_machine():
    pattern = re.compile(rf"(?<![\w.*}}])/(?:{'|'.join(MACHINE_FOLDERS)})/[\w.-]")
    found = [
        f"{relative(path)}:{number}: {line.strip()[:100]}"
        for path in tracked()
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


# README and Makefile ----------------------------------------------------------------------------------------------


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):(?!=)", text_of(ROOT / "Makefile"), flags=re.MULTILINE))


def test_make_commands_of_the_readme_exist():
    blocks = re.findall(r"^```\w*\n(.*?)^```", text_of(ROOT / "README.md"), flags=re.MULTILINE | re.DOTALL)
    named = set(re.findall(r"^\s*make ([a-z-]+)", "\n".join(blocks), flags=re.MULTILINE))
    assert named >= {"demo", "test"}
    assert named <= make_targets()


def test_files_that_the_readme_shows_exist():
    linked = re.findall(r"\]\(([^)#:]+)\)", text_of(ROOT / "README.md"))
    assert [name for name in linked if not (ROOT / name).exists()] == []


def test_makefile_and_default_configuration_name_the_same_study():
    config = yaml.safe_load(text_of(ROOT / "config" / "config.yaml"))
    study = re.search(r"^STUDY := (\S+)$", text_of(ROOT / "Makefile"), flags=re.MULTILINE)
    assert study[1] == f"{config.get('results', 'results')}/{config['study']}"


# sizes ------------------------------------------------------------------------------------------------------------


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_no_source_file_is_too_long():
    lengths = {relative(path): len(text_of(path).splitlines()) for path in python_files("src")}
    assert {name: length for name, length in lengths.items() if length > MAX_FILE_LINES} == {}
    assert lengths


def test_no_function_is_too_long_and_each_is_annotated():
    found = []
    for path in python_files("src"):
        for function in functions(ast.parse(text_of(path))):
            lines = function.end_lineno - function.lineno + 1
            if lines > MAX_FUNCTION_LINES or (function.returns is None and function.name != "__init__"):
                found.append(f"{relative(path)}:{function.name} ({lines} lines)")
    assert found == []


# tests that test --------------------------------------------------------------------------------------------------


def called(node: ast.AST) -> set[str]:
    """Last names of everything that is called: ``pytest.raises`` gives ``raises``."""
    calls = (each for each in ast.walk(node) if isinstance(each, ast.Call))
    return {ast.unparse(each.func).rpartition(".")[2] for each in calls}


def asserts_itself(node: ast.AST) -> bool:
    names = called(node)
    direct = any(isinstance(each, ast.Assert) for each in ast.walk(node))
    return direct or "raises" in names or "warns" in names or any(n.startswith("assert_") for n in names)


def test_every_test_asserts_something():
    trees = {path: ast.parse(text_of(path)) for path in python_files("tests")}
    defined = [(path, function) for path, tree in trees.items() for function in functions(tree)]
    helpers: dict[str, list[ast.AST]] = defaultdict(list)
    for _, function in defined:
        if not function.name.startswith("test_"):
            helpers[function.name].append(function)
    asserting = {name for name, bodies in helpers.items() if all(asserts_itself(body) for body in bodies)}
    tests = [(path, function) for path, function in defined if function.name.startswith("test_")]
    silent = [
        f"{relative(path)}:{function.name}"
        for path, function in tests
        if not asserts_itself(function) and not called(function) & asserting
    ]
    assert silent == []
    assert tests
