"""What holds for the whole repository: no traces of a machine, links, safe reading, tests."""

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import yaml
from benchmarks.mutation import MUTATIONS

ROOT = Path(__file__).parents[1]
#: folders at the root of somebody's machine, which no file may name
MACHINE_FOLDERS = ("work", "root", "farm", "opt", "home")
#: what git ignores
MADE_HERE = {".git", ".venv", ".snakemake", ".hypothesis", "__pycache__", "results"}
MADE_HERE |= {".pytest_cache", ".ruff_cache"}


@cache
def tracked() -> tuple[Path, ...]:
    """Files that git knows or would take in; without git, all but what is made here."""
    if not (ROOT / ".git").exists():
        found = (path for path in sorted(ROOT.rglob("*")) if path.is_file())
        return tuple(path for path in found if MADE_HERE.isdisjoint(path.relative_to(ROOT).parts))
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    return tuple(path for path in (ROOT / name for name in names if name) if path.is_file())


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="ignore")


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All nodes of the syntax tree of a file."""
    return list(ast.walk(ast.parse(text_of(path))))


def last_name(call: ast.Call) -> str:
    """``raises`` of ``pytest.raises(...)``."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def python_files(*folders: str) -> list[Path]:
    return [
        path
        for path in tracked()
        if path.suffix == ".py" and path.is_relative_to(ROOT.joinpath(*folders))
    ]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


# traces of a machine


def test_what_is_made_here_is_not_tracked():
    assert [
        relative(path)
        for path in tracked()
        if not MADE_HERE.isdisjoint(path.relative_to(ROOT).parts)
    ] == ["results/README.md"]


def test_no_file_names_a_path_of_a_machine():
    pattern = re.compile(rf"(?<![\w.*}}])/(?:{'|'.join(MACHINE_FOLDERS)})/[\w.-]")
    found = [
        f"{relative(path)}:{number}: {line.strip()[:100]}"
        for path in tracked()
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


def test_profiles_are_found_from_the_root_and_the_default_one_takes_no_key_from_the_other():
    """Snakemake lets the default profile win over the one that a call names."""
    profiles = ROOT / "workflow" / "profiles"
    assert (ROOT / "slurm").samefile(profiles / "slurm")
    assert (ROOT / "profiles").samefile(profiles)
    default, slurm = (
        yaml.safe_load(text_of(profiles / name / "config.yaml")) for name in ("default", "slurm")
    )
    assert default["rerun-triggers"] == ["mtime"]
    assert default.keys().isdisjoint(slurm)


def test_the_profile_of_a_cluster_has_each_key_once_also_in_its_comments():
    # of a key that is repeated YAML keeps the last alone, so that an uncommented partition would be
    # lost in silence
    lines = text_of(ROOT / "workflow/profiles/slurm/config.yaml").splitlines()
    keys = [found[1] for line in lines if (found := re.match(r"(?:# ?)?([a-z-]+):(?: |$)", line))]
    assert {"default-resources", "set-resources"} <= set(keys)
    assert len(keys) == len(set(keys))


# README and Makefile


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):(?!=)", text_of(ROOT / "Makefile"), flags=re.MULTILINE))


def test_make_commands_of_the_readme_exist():
    blocks = re.findall(
        r"^```\w*\n(.*?)^```", text_of(ROOT / "README.md"), flags=re.MULTILINE | re.DOTALL
    )
    named = set(re.findall(r"^\s*make ([a-z-]+)", "\n".join(blocks), flags=re.MULTILINE))
    assert named >= {"demo", "test"}
    assert named <= make_targets()


def test_files_that_documents_link_to_exist():
    broken = [
        f"{relative(path)}: {name}"
        for path in tracked()
        if path.suffix == ".md"
        for name in re.findall(r"\]\(([^)#:]+)\)", text_of(path))
        if not (path.parent / name).exists()
    ]
    assert broken == []


def test_makefile_and_default_configuration_name_the_same_study():
    config = yaml.safe_load(text_of(ROOT / "config" / "config.yaml"))
    study = re.search(r"^STUDY := (\S+)$", text_of(ROOT / "Makefile"), flags=re.MULTILINE)
    assert study[1] == f"{config.get('results', 'results')}/{config['study']}"


# safe reading


def test_no_file_is_read_in_a_way_that_could_run_what_it_holds():
    """What ruff's rules (S, TID251) do not see: arguments. Refusals are tested beside readers."""
    loads, found = 0, []
    for path in [*python_files("src"), *python_files("benchmarks"), *python_files(".ci")]:
        for call in (node for node in nodes_of(path) if isinstance(node, ast.Call)):
            given = {each.arg: getattr(each.value, "value", None) for each in call.keywords}
            is_load = last_name(call) == "load" and ast.unparse(call.func) == "torch.load"
            loads += is_load
            if given.get("allow_pickle") is True or (
                is_load and given.get("weights_only") is not True
            ):
                found.append(f"{relative(path)}:{call.lineno}")
    assert found == []
    assert loads > 0


# tests that test


def called(node: ast.AST) -> set[str]:
    """Last names of everything that is called."""
    return {last_name(each) for each in ast.walk(node) if isinstance(each, ast.Call)}


def asserts_itself(node: ast.AST) -> bool:
    names = called(node)
    direct = any(isinstance(each, ast.Assert) for each in ast.walk(node))
    return (
        direct
        or "raises" in names
        or "warns" in names
        or any(n.startswith("assert_") for n in names)
    )


def test_every_test_asserts_something():
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    defined = [
        (path, node)
        for path in python_files("tests")
        for node in nodes_of(path)
        if isinstance(node, kinds)
    ]
    helpers: dict[str, list[ast.AST]] = defaultdict(list)
    for _, function in defined:
        if not function.name.startswith("test_"):
            helpers[function.name].append(function)
    asserting = {
        name for name, bodies in helpers.items() if all(asserts_itself(body) for body in bodies)
    }
    tests = [(path, function) for path, function in defined if function.name.startswith("test_")]
    silent = [
        f"{relative(path)}:{function.name}"
        for path, function in tests
        if not asserts_itself(function) and not called(function) & asserting
    ]
    assert silent == []
    assert tests


COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def comprehensions(node: ast.AST) -> Iterator[ast.AST]:
    """Comprehensions of a statement, without those of the statements in its body."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            if isinstance(child, COMPREHENSIONS):
                yield child
            yield from comprehensions(child)


def test_no_statement_has_two_comprehensions():
    crowded = []
    for path in python_files("src"):
        for node in nodes_of(path):
            if isinstance(node, ast.stmt) and len(list(comprehensions(node))) > 1:
                crowded.append(f"{relative(path)}:{node.lineno}")
    assert crowded == []


#: first words of what to do in messages: "place: problem; fix."
FIXES = ("choose", "correct", "give", "prepare", "remove", "rename", "replace", "run", "set", "use")


def literal_text(node: ast.AST) -> str:
    """Text of a message, with ``{}`` for what is filled in."""
    if isinstance(node, ast.JoinedStr):
        return "".join(literal_text(value) for value in node.values)
    return str(node.value) if isinstance(node, ast.Constant) else "{}"


def test_messages_say_what_to_do_after_a_semicolon():
    after_colon = re.compile(rf"(?:\S+ ){{3,}}\S*: (?:{'|'.join(FIXES)})\b")
    other = []
    for path in python_files("src"):
        for node in nodes_of(path):
            is_message = isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
            if is_message and any(map(after_colon.search, map(literal_text, node.exc.args))):
                other.append(f"{relative(path)}:{node.lineno}")
    assert other == []


def test_docstrings_list_errors_in_a_block():
    other = []
    for path in python_files("src"):
        for node in nodes_of(path):
            described = isinstance(node, ast.FunctionDef | ast.ClassDef)
            if described and re.search(r"Raises\s+[A-Z]\w*Error", ast.get_docstring(node) or ""):
                other.append(f"{relative(path)}:{node.name}")
    assert other == []


def test_every_line_that_make_mutation_breaks_is_in_the_source():
    for mutation in MUTATIONS:
        assert mutation.file(ROOT).read_text().count(mutation.old) == 1, mutation.name
