"""The pinned release (envs/requirements.lock), the conda files and pyproject.toml say the same."""

import importlib.metadata
import re
import runpy
import sys
import tomllib
from functools import cache
from pathlib import Path

import grimp
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.workflow.test_wheel import SOURCES

from calgrid.plan.plan import KINDS

ROOT = Path(__file__).parents[1]
#: what `make lock` runs
PIN = runpy.run_path(str(ROOT / "envs" / "pin.py"))
#: conda file of a stage -> what its jobs import: modules, and packages whose components are loaded
#: by identifier
NETWORK = ("losses", "procedures", "backbones")
ROOTS = {
    "data": ("datasets",),
    "train": ("jobs.train", "jobs.predict", *NETWORK),
    "probe": ("jobs.probe", "probes", *NETWORK),
    "calibrate": ("jobs.calibrate", "jobs.import_logits", "calibrators"),
    "report": ("jobs.aggregate", "report"),
}
#: packages that no calgrid module imports, with the library that does
NEEDED_BY_LIBRARIES = {"data": {"pillow": "scikit-learn reads its sample photographs with it"}}
#: packages that a stage works without, and where it does not
OPTIONAL = {
    "calibrate": {"torch": "logits of others in .pt files; a sentence says so"},
    "report": {
        "torch": "facts of a backbone are counted where a study is planned; reports ask for none",
        "timm": "as torch",
    },
}


def lock_lines() -> list[str]:
    lines = (ROOT / "envs" / "requirements.lock").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@cache
def locked() -> dict[str, str]:
    """PyPI name (canonical) -> version."""
    return {
        canonicalize_name(name): version
        for name, _, version in (line.partition("==") for line in lock_lines())
    }


def declared(extra: str | None = None) -> list[Requirement]:
    """Requirements of pyproject.toml: those of the package, or of one extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = project["optional-dependencies"][extra] if extra else project["dependencies"]
    return [Requirement(text) for text in texts]


def test_lock_has_one_exact_public_version_a_line_is_sorted_and_names_each_package_once():
    assert [
        line for line in lock_lines() if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", line)
    ] == []
    names = [line.split("==")[0].lower() for line in lock_lines()]
    assert names == sorted(names)
    assert len(locked()) == len(names)


@pytest.mark.parametrize("extra", [None, "train", "workflow", "slurm", "hdf5", "onnx", "dev"])
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
            if applies and not required.specifier.contains(
                locked().get(canonicalize_name(required.name), "")
            ):
                missing[text] = name
    assert missing == {}


def test_release_is_not_tested_with_another_version_than_it_is_locked_to():
    tested = ("torch", "numpy", "pandas", "pyarrow", "scipy", "scikit-learn", "snakemake")
    assert {name: importlib.metadata.version(name) for name in tested} == {
        name: locked()[name] for name in tested
    }


def test_torch_is_the_version_that_torchvision_is_built_for():
    pair = next(
        text
        for text in importlib.metadata.requires("torchvision")
        if Requirement(text).name == "torch"
    )
    assert Requirement(pair).specifier.contains(locked()["torch"])
    assert locked()["torch"] != "2.13.0"  # no torchvision goes with it


@cache
def imports() -> grimp.ImportGraph:
    return grimp.build_graph(
        "calgrid", include_external_packages=True, exclude_type_checking_imports=True
    )


def libraries(modules: set[str]) -> set[str]:
    """PyPI names of the libraries among modules."""
    known = importlib.metadata.packages_distributions()
    outside = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names - {"calgrid"}
    return {canonicalize_name(known[name][0]) for name in outside}


def imported(roots: tuple[str, ...]) -> set[str]:
    """Libraries that the command line and some modules and packages reach by import statements."""
    waiting = {"calgrid.__main__", "calgrid.cli.main"}
    for root in roots:
        waiting |= {f"calgrid.{root}", *imports().find_descendants(f"calgrid.{root}")}
    seen: set[str] = set()
    while new := waiting - seen:
        seen |= new
        for module in new & imports().modules:
            # Python runs its parents too
            parents = {module.rsplit(".", count)[0] for count in range(1, module.count(".") + 1)}
            waiting |= parents | imports().find_modules_directly_imported_by(module)
    return libraries(seen)


def conda_pins(environment: str) -> dict[str, str]:
    """PyPI name -> version of everything that a conda file lists, except Python."""
    text = (ROOT / "envs" / f"{environment}.yaml").read_text(encoding="utf-8")
    assert text == PIN["pin"](
        text, (ROOT / "envs" / "requirements.lock").read_text(encoding="utf-8")
    ), "make lock"
    content = yaml.safe_load(text)
    assert content["channels"] == ["conda-forge", "nodefaults"]
    assert content["dependencies"][0] == "python=3.11", "the oldest that is supported"
    pins = dict(text.split("=") for text in content["dependencies"][1:])
    return {
        canonicalize_name(PIN["CONDA_TO_PYPI"].get(name, name)): version
        for name, version in pins.items()
    }


@pytest.mark.parametrize("environment", ROOTS)
def test_a_conda_file_lists_what_its_stages_import_at_the_locked_version(environment):
    wanted = imported(ROOTS[environment]) | set(NEEDED_BY_LIBRARIES.get(environment, {}))
    wanted -= set(OPTIONAL.get(environment, {}))
    assert conda_pins(environment) == {name: locked()[name] for name in wanted}


def test_every_library_that_the_package_imports_is_a_declared_dependency():
    found = libraries(set(imports().modules))
    # the templates of `calgrid new` hold tests for the folders of users
    extras = (None, "train", "workflow", "hdf5", "onnx")
    asked_for = [each for extra in extras for each in declared(extra)]
    assert found - {"pytest"} <= {canonicalize_name(requirement.name) for requirement in asked_for}


def test_commands_of_jobs_start_without_the_libraries_of_planning(run_python):
    program = """
import sys
sys.modules.update(dict.fromkeys(("yaml", "pydantic", "snakemake")))
import calgrid.cli.job, calgrid.jobs.calibrate
del sys.modules["pydantic"]  # which reads the protocol of a training
import calgrid.jobs.train, calgrid.jobs.predict
"""
    assert run_python(program) == ""


def test_every_conda_file_is_that_of_a_rule_and_of_a_stage_here():
    rules = (ROOT / "workflow/rules/study.smk").read_text()
    named = {kind.environment for kind in KINDS.values() if kind.record}
    files = {path.stem for path in (ROOT / "envs").glob("*.yaml")}
    assert {*named, *re.findall(r"envs/(\w+)\.yaml", rules)} == files == set(ROOTS)


# containers


def copied() -> dict[str, list[tuple[str, str]]]:
    """Container file -> what it copies from the root of a checkout, and to where."""
    docker = (ROOT / "envs" / "Dockerfile").read_text()
    lines = [line.split()[1:] for line in docker.splitlines() if line.startswith("COPY ")]
    definition = (ROOT / "envs" / "apptainer.def").read_text()
    files = re.search(r"^%files\n(.*?)\n\n", definition, re.DOTALL | re.MULTILINE)[1]
    return {
        "Dockerfile": [(source, line[-1]) for line in lines for source in line[:-1]],
        "apptainer.def": [tuple(line.split()) for line in files.splitlines()],
    }


def test_containers_copy_what_a_wheel_is_built_of_and_docker_ignores_none_of_it():
    ignored = (ROOT / "envs" / "Dockerfile.dockerignore").read_text().splitlines()
    let_in = {line[1:] for line in ignored if line.startswith("!")}
    for name, pairs in copied().items():
        sources = {source.partition("/")[0] for source, _ in pairs}
        assert sources == let_in == {*SOURCES}, name
        assert all(
            (ROOT / source).exists() and target.startswith("/calgrid/") for source, target in pairs
        ), name


@pytest.mark.parametrize("name", ["Dockerfile", "apptainer.def"])
def test_containers_install_the_lock_and_then_calgrid_alone(name):
    text = (ROOT / "envs" / name).read_text()
    assert re.findall(r"pip install (.*?)(?: &&.*)?$", text, re.MULTILINE) == [
        "--no-cache-dir --requirement /calgrid/envs/requirements.lock",
        "--no-cache-dir --no-build-isolation --no-deps /calgrid",
    ]
    assert re.search(r"^from:? python:3.11-slim$", text, re.MULTILINE | re.IGNORECASE)
