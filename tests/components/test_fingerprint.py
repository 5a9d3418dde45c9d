"""Fingerprints: what changes a number changes them, and nothing else does."""

import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from calgrid.components import fingerprint, registry
from calgrid.plan.plan import KINDS, Plan
from calgrid.storage.records import STUDY_STAGES
from calgrid.study.study import Study

PACKAGE = Path(fingerprint.__file__).parents[1]
SOURCE = """
def scale(x, power=2):
    for k in range(3):
        x = x * (power + k)
    return f"{x:.3f}"


class Scaled:
    y = 1
"""
#: other formatting than docstrings: the test of renames writes all files anew
HARMLESS = {
    "comment": SOURCE.replace("    return", "    # a remark\n    return"),
    "docstring of a function": SOURCE.replace(
        "    for", '    """Scale it.\n\n    Much.\n    """\n    for'
    ),
    "docstring of the module": '"""A module."""\n' + SOURCE,
    "docstring of a class": SOURCE.replace(
        "class Scaled:", 'class Scaled:\n    """A scaled one."""\n'
    ),
}
#: beside the random edits of numbers, names and texts
HARMFUL = {
    "format of an f-string": SOURCE.replace(".3f", ".4f"),
    "text of an f-string": SOURCE.replace("{x", "#{x"),
    "a string that is no docstring": SOURCE.replace("    for", '    y = "text"\n    for'),
    # a text below an attribute is no docstring for Python: a program could not tell, so it counts
    "docstring of an attribute": SOURCE.replace("y = 1\n", 'y = 1\n    "about y"\n'),
    "an operator": SOURCE.replace("power + k", "power - k"),
    "nesting": SOURCE.replace("    return", "        return"),
}


def syntax(source):
    parts = []
    fingerprint._write(ast.parse(source), parts)
    return [part for part in parts if isinstance(part, str)]


@pytest.mark.parametrize("edit", HARMLESS)
def test_comments_docstrings_and_formatting_do_not_count(edit):
    assert HARMLESS[edit] != SOURCE
    assert syntax(HARMLESS[edit]) == syntax(SOURCE)


@pytest.mark.parametrize("edit", HARMFUL)
def test_everything_else_counts(edit):
    assert HARMFUL[edit] != SOURCE
    assert syntax(HARMFUL[edit]) != syntax(SOURCE)


def test_other_python_versions_here_give_the_same_fingerprints(run_python):
    """The syntax of the whole package, in every Python that this machine has."""
    program = (
        "import ast\nfrom pathlib import Path\nfrom calgrid.components import fingerprint\n"
        "files = sorted(Path(fingerprint.__file__).parents[1].rglob('*.py'))\n"
        "parts = []\n"
        "for f in files: fingerprint._write(ast.parse(f.read_text('utf-8')), parts)\n"
        "print(fingerprint.digest([part for part in parts if isinstance(part, str)]))"
    )
    here, compared = "", 0
    for minor in range(11, 20):
        other = shutil.which(f"python3.{minor}")
        if other is None or minor == sys.version_info.minor:
            continue
        env = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
        done = subprocess.run(
            [other, "-c", program], capture_output=True, text=True, env=env, check=False
        )
        if done.returncode == 0:
            here = here or run_python(program)
            assert done.stdout == here, other
            compared += 1
    if not compared:
        pytest.skip("no other Python from 3.11 on that runs here")


def test_digests_are_short_hexadecimal_and_differ_with_the_value_and_not_with_the_order_of_keys():
    nested, turned = {"a": [{"b": 1, "c": 2.5}], "d": None}, {"d": None, "a": [{"c": 2.5, "b": 1}]}
    assert fingerprint.digest(nested) == fingerprint.digest(turned)
    values = [{"a": 1}, {"a": 2}, {"b": 1}, {"a": "1"}, {"a": 1.5}, [1, 2], [2, 1], None, ""]
    digests = {fingerprint.digest(value) for value in values}
    assert len(digests) == len(values)
    assert all(len(digest) == 16 and int(digest, 16) >= 0 for digest in digests)


def test_roots_count_as_a_set():
    one, two = "calgrid.losses.mbls", "calgrid.losses.ce"
    assert fingerprint.of_job({}, [one, two]) == fingerprint.of_job({}, [two, one, two])
    assert fingerprint.of_job({}, [one]) != fingerprint.of_job({}, [two])
    assert fingerprint.of_job({"seed": 1}, [one]) != fingerprint.of_job({"seed": 2}, [one])


@pytest.mark.parametrize("stage", ["train", "predict", "calibrate", "import_logits", "aggregate"])
def test_neutral_modules_are_in_no_closure(stage):
    used = {name.split(".")[1] for name in fingerprint.code_digests([f"calgrid.jobs.{stage}"])}
    assert not used & {"components", "errors", "plan", "progress", "storage", "study", "cli"}


def test_a_stage_whose_module_does_not_exist_has_no_fingerprint():
    with pytest.raises(FileNotFoundError, match=r"calgrid\.losses\.nothing"):
        fingerprint.of_job({}, ["calgrid.losses.mbls", "calgrid.losses.nothing"])


def test_every_stage_after_calibration_has_a_fingerprint_of_its_own(make_config, home):
    plan = Plan(Study(make_config(), home))
    assert len({plan.stage(name).fingerprint for name in STUDY_STAGES}) == len(STUDY_STAGES)


def test_no_module_imports_in_a_way_that_the_closure_does_not_see():
    relative = re.compile(r"^\s*from \.", re.MULTILINE)
    found = [path for path in PACKAGE.rglob("*.py") if relative.search(path.read_text("utf-8"))]
    assert found == []


# Edits of a copy of the package. Each edit is seen by a fresh process (a fork that has imported
# nothing of calgrid).
METHODS = ("ce", "ls", "mbls", "tst", "tst+mbls")
PLACE = {"protocol": "digits", "datasets": ["digits"], "backbones": ["resnet8"]}
PUBLISHED_PLACE = {
    "protocol": "focal_calibration",
    "datasets": ["cifar10"],
    "backbones": ["densenet121"],
}
CONFIG = {
    "study": "small",
    "data_root": "data",
    "grids": [
        {
            **PLACE,
            "methods": list(METHODS),
            "seeds": [1],
            "calibrators": ["none", "ts"],
            "shifts": ["digits_c"],
        },
        {**PUBLISHED_PLACE, "methods": ["ce"], "seeds": [1], "calibrators": ["none", "ts"]},
    ],
}
PROGRAM = """
import json, os, sys
from pathlib import Path
from calgrid.components import fingerprint, plugins
from calgrid.plan.plan import Plan
from calgrid.study.study import Study

def fingerprints(config, home):
    study = Study(config, home)
    plan = Plan(study)
    found = {"data": plan.data("digits").fingerprint}
    for name in ("tables", "figures"):
        found[name] = fingerprint.code_digest(plan._stage_modules(name))
    for key in study.runs:
        name = key.method if key.protocol == "digits" else "published"
        for stage in ("train", "predict", "calibrate"):
            found[f"{stage} {name}"] = getattr(plan, stage)(key).fingerprint
    return found

task = json.loads(sys.stdin.read())
known, read = {}, fingerprint._read.__wrapped__

def read_once(module):
    # files that no edit changes, not in each child again
    content = plugins.locate(module).read_bytes()
    if (module, content) not in known:
        known[module, content] = read(module)
    return known[module, content]

fingerprint._read = read_once
fingerprints(task["config"], Path(task["home"]))
for name, (files, old, new) in task["edits"].items():
    before = {Path(task["package"], file): "" for file in files.split()}
    for path in before:
        before[path] = text = path.read_text(encoding="utf-8")
        assert old in text, (path, old)
        path.write_text(text.replace(old, new, 1) if old else text + new, encoding="utf-8")
    sys.stdout.flush()
    if os.fork() == 0:
        plugins.forget()
        print(json.dumps([name, fingerprints(task["config"], Path(task["home"]))]), flush=True)
        os._exit(0)
    os.wait()
    for path, text in before.items():
        path.write_text(text, encoding="utf-8")
"""
EDIT = ("", "\nEDITED = 1\n")
STAGES = ("train", "predict", "calibrate")
TRAINED = {f"{stage} {method}" for stage in STAGES for method in METHODS}
PUBLISHED = {f"{stage} published" for stage in STAGES}
RUNS = TRAINED | PUBLISHED
CALIBRATIONS = {name for name in RUNS if name.startswith("calibrate")}
AFTER_TRAINING = {name for name in RUNS if not name.startswith("train")}


def branch(*methods):
    """Stages of some methods; a second stage belongs to the branch of its first."""
    return {f"{stage} {method}" for stage in STAGES for method in methods}


UNUSED = (
    "losses/dfl.py backbones/resnet9.py calibrators/smart.py probes/masking.py storage/logits.py"
)
#: what is edited -> files, the old text and the new one (or what is appended), what reruns
EDITS = {
    "nothing": ("losses/mbls.py", "", "", set()),
    "a loss": ("losses/mbls.py", *EDIT, branch("mbls", "tst+mbls")),
    "the base of losses": ("losses/base.py", *EDIT, RUNS),
    "a procedure": ("procedures/tst.py", *EDIT, branch("tst", "tst+mbls")),
    "the trainer": ("training/trainer.py", *EDIT, TRAINED),
    "a reader of published checkpoints": ("backbones/focal_calibration.py", *EDIT, PUBLISHED),
    "a data set": ("datasets/digits.py", *EDIT, {*TRAINED, "data"}),
    "a shift family": (
        "datasets/corruptions.py",
        "0.08, 0.16",
        "0.08, 0.17",
        TRAINED & AFTER_TRAINING,
    ),
    "prediction": ("jobs/predict.py", *EDIT, AFTER_TRAINING),
    "a helper of a calibrator": ("calibrators/_temperature.py", *EDIT, CALIBRATIONS),
    "a metric": ("metrics/calibration.py", *EDIT, {*CALIBRATIONS, "tables", "figures"}),
    "a table": ("report/tables/ranks.py", *EDIT, {"tables"}),
    "components that no run has, and storage": (UNUSED, *EDIT, set()),
}


def _fingerprints(package, edits, home):
    edits = {name: edit[:3] for name, edit in edits.items()}
    task = {"edits": edits, "package": str(package), "home": str(home), "config": CONFIG}
    done = subprocess.run(
        [sys.executable, "-B", "-c", PROGRAM],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(package.parent)},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = dict(json.loads(line) for line in done.stdout.splitlines())
    assert found.keys() == edits.keys(), done.stderr
    return found


@pytest.fixture(scope="module")
def edited(tmp_path_factory, home):
    """Fingerprints after each edit of a copy of the package, and of the package itself."""
    copy = tmp_path_factory.mktemp("copy") / "calgrid"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return _fingerprints(copy, EDITS, home)


@pytest.mark.parametrize("edit", [name for name in EDITS if name != "nothing"])
def test_an_edit_changes_what_uses_the_file_and_nothing_else(edited, edit):
    before, after = edited["nothing"], edited[edit]
    assert before.keys() == after.keys()
    assert {name for name in before if before[name] != after[name]} == EDITS[edit][3]


#: words of modules that a program, a page of YAML or another file names
NAMED = re.compile(r"calgrid(?:\.\w+)+")


def _moved_names(package):
    """New names of 150 modules that nothing names but import statements: in their package, or in
    another one that is as neutral.
    """
    named = {"calgrid.plan.plan", "calgrid.study.study"}  # in PROGRAM
    named |= {f"calgrid.components.{name}" for name in ("fingerprint", "plugins")}
    named |= {each.module for each in KINDS.values()}  # by default that of the kind's name
    for path in [*package.rglob("*.py"), *package.rglob("*.yaml")]:
        text = path.read_text(encoding="utf-8")
        for line in text.splitlines():
            if "import " not in line:
                named.update(NAMED.findall(line))
    kinds = {f"calgrid.{folder}" for folder in registry.KINDS.values()}
    rooms = ("calgrid.training", "calgrid.jobs", "calgrid.statistics", "calgrid.report")
    rng, moved = random.Random(0), {}
    for path in sorted(package.rglob("*.py")):
        module = ".".join(["calgrid", *path.relative_to(package).with_suffix("").parts])
        room, _, name = module.rpartition(".")
        is_component = room in kinds and not name.startswith("_")
        of_paper = module.startswith("calgrid.papers.")  # figures.yaml names them
        if name in ("__init__", "__main__") or module in named or is_component or of_paper:
            continue
        other = rng.choice(rooms) if room in rooms else room
        moved[module] = f"{other}.moved_{rng.randrange(10**6)}_{name}"
    return dict(rng.sample(sorted(moved.items()), 150))


class _Moved(ast.NodeTransformer):
    """Import statements with new names of modules, and imports that nothing uses."""

    def __init__(self, moved, acts):
        self.moved, self.acts = moved, acts

    def visit_ImportFrom(self, node):
        statements = []
        for alias in node.names:
            name, local = f"{node.module}.{alias.name}", alias.asname or alias.name
            if name in self.moved:
                room, _, new = self.moved[name].rpartition(".")
                statement = ast.ImportFrom(room, [ast.alias(new, local)], 0)
            else:
                statement = ast.ImportFrom(
                    self.moved.get(node.module, node.module), [alias], node.level
                )
            statements.append(statement)
        errors = self.moved.get("calgrid.errors", "calgrid.errors")
        unused = [
            ast.ImportFrom(errors, [ast.alias("visible", "unused_function")], 0),
            ast.Import([ast.alias("colorsys", "unused_module")]),
        ]
        return [*reversed(statements), *(unused if self.acts else [])]


def test_renames_moves_and_unused_imports_change_no_fingerprint(edited, tmp_path, home):
    """Of a plan by the moved package, which imports itself by its new names."""
    copy = tmp_path / "calgrid"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    moved = _moved_names(copy)
    for path in sorted(copy.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        acts = path.parent.name in ("losses", "training", "jobs", "calibrators", "procedures")
        tree = ast.fix_missing_locations(_Moved(moved, acts).visit(tree))
        path.write_text(ast.unparse(tree), encoding="utf-8")
    for old, new in moved.items():
        source, target = (tmp_path / f"{name.replace('.', '/')}.py" for name in (old, new))
        source.rename(target)
    found = _fingerprints(copy, {"nothing": EDITS["nothing"]}, home)
    assert found["nothing"] == edited["nothing"]


def _edited(tree, rng):
    """Change a number, name or text that is no part of an import or docstring."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, fingerprint.DOCUMENTED) and ast.get_docstring(node) is not None
    }
    names = {ast.Name: "id", ast.arg: "arg", ast.Attribute: "attr"}
    nodes = list(ast.walk(tree))
    rng.shuffle(nodes)
    for node in nodes:
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            if isinstance(node.value, bool):
                node.value = not node.value
                return
            if isinstance(node.value, str | int | float):
                node.value += "x" if isinstance(node.value, str) else 1
                return
        if field := names.get(type(node)):
            setattr(node, field, f"{getattr(node, field)}_x")
            return


def test_random_edits_of_code_that_acts_change_a_fingerprint_each(monkeypatch):
    roots = [f"calgrid.jobs.{name}" for name in ("train", "predict", "calibrate", "aggregate")]
    components = [
        *registry.descriptions("loss").values(),
        *registry.descriptions("calibrator").values(),
    ]
    before = fingerprint.code_digests([*roots, *(each.module for each in components)])
    rng, parse, read = random.Random(0), fingerprint.parse, fingerprint._read
    for number in range(80):
        module = rng.choice(sorted(name for name in before if name != "calgrid.calibrators"))

        def edited(content, where):
            tree = parse(content, where)
            _edited(tree, rng)
            return tree

        monkeypatch.setattr(fingerprint, "parse", edited)
        source = read.__wrapped__(module)
        monkeypatch.setattr(fingerprint, "parse", parse)
        with monkeypatch.context() as patch:
            edits = {module: source}
            patch.setattr(
                fingerprint, "_read", lambda name, edits=edits: edits.get(name) or read(name)
            )
            digest = fingerprint._module_digest.__wrapped__(module)
        assert digest != fingerprint._module_digest(module), (number, module)


def test_the_device_and_the_folders_are_no_part_of_a_fingerprint(make_config, home, tmp_path):
    def fingerprints(**changes):
        plan = Plan(Study(make_config(**changes), home))
        stages = (plan.train, plan.predict, plan.calibrate)
        return [stage(key).fingerprint for key in plan.study.runs for stage in stages]

    plain = fingerprints()
    assert fingerprints(device="cpu") == plain
    assert fingerprints(results="elsewhere", data_root=str(tmp_path)) == plain
    assert fingerprints(study="other") == plain
