"""What works without the extras, and what is said where one is missing."""

import tomllib

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.conftest import HOME

from calgrid import load_study
from calgrid import optional as extras
from calgrid.calibrators import build_calibrator
from calgrid.errors import StateError
from calgrid.metrics import evaluate
from calgrid.optional import EXTRAS, MissingLibraryError, say_extra
from calgrid.plan.plan import Plan
from calgrid.plan.rules import Jobs
from calgrid.storage.records import write_record
from calgrid.study.study import Study

#: modules that are not named as their packages are
PACKAGES = {"sklearn": "scikit-learn"}
#: hides the libraries of all extras, as if pip had installed the core alone
CORE = f"""
import sys
from importlib.machinery import PathFinder
class Core(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        hidden = name.partition(".")[0] in {[name for names in EXTRAS.values() for name in names]}
        return None if hidden else PathFinder.find_spec(name, path, target)
sys.meta_path = [Core if finder is PathFinder else finder for finder in sys.meta_path]
"""


def test_modules_of_extras_are_those_that_pip_installs_with_them():
    extras = tomllib.loads((HOME / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for extra, modules in EXTRAS.items():
        installed = {canonicalize_name(Requirement(text).name) for text in extras[extra]}
        assert {canonicalize_name(PACKAGES.get(name, name)) for name in modules} == installed
    assert Requirement(*extras["all"]).extras == {*EXTRAS, "slurm"}


@pytest.fixture
def core(run_python, tmp_path):
    """Output of a program in a Python without extras, in a folder with two files of logits."""
    generator = np.random.default_rng(0)
    labels = generator.integers(3, size=60)
    for name in ("val", "test"):
        logits = generator.normal(size=(60, 3)) + 2 * np.eye(3)[labels]
        np.savez(tmp_path / name, logits=logits, label=labels)
    setup = f"{CORE}\nimport os\nos.chdir({str(tmp_path)!r})\nfrom calgrid.cli import main\n"
    return lambda program: run_python(setup + program)


def test_logits_lists_and_configurations_need_no_extra(core, home):
    kinds = ["methods", "calibrators", "datasets", "backbones"]
    kinds += ["metrics", "procedures", "losses", "probes"]
    printed = core(
        "common = ['--bootstrap', '10']\n"
        "codes = [main(['metrics', 'test.npz', *common])]\n"
        "one = ['calibrate', '--fit', 'val.npz', '--apply', 'test.npz', *common, '--calibrator']\n"
        "codes += [main([*one, 'smart', '--out', 'out.parquet', '--save', 'fitted.safetensors'])]\n"
        "codes += [main([*one, 'ts,iso']), main(['compare', 'a=test.npz', 'b=val.npz', *common])]\n"
        f"codes += [main(['list', kind]) for kind in {kinds}]\n"
        f"codes += [main([command, {str(home / 'config/config.yaml')!r}]) for command in ('check', "
        f"'cost', 'status')]\n"
        "import calgrid, calgrid.statistics, calgrid.logits.ranking; calgrid.load_study\n"
        "print(codes)\n"
    )
    assert printed.splitlines()[-1] == str([0] * (7 + len(kinds)))


@pytest.mark.slow
def test_the_report_of_logits_files_needs_no_extra_and_scores_fitted_calibrators(core, tmp_path):
    printed = core(
        "files = ['--fit', 'val.npz', '--apply', 'test.npz', '--bootstrap', '20']\n"
        "print(main(['report-logits', 'my_network', *files, '--calibrator', 'smart,vs', '--bins', "
        "'10']))\n"
    )
    assert printed.splitlines()[-2:] == ["wrote results/my_network/report.html", "0"]
    assert "<h1>" in (tmp_path / "results/my_network/report.html").read_text()
    study = load_study(tmp_path / "results/my_network")
    rows = study.metrics.query("split == 'test' and metric == 'nll'")
    values = rows.set_index("calibrator")["value"]
    assert {"none", "smart", "vs"} <= set(values.index)
    val, test = (np.load(tmp_path / f"{name}.npz") for name in ("val", "test"))
    probs = build_calibrator("vs").fit(val["logits"], val["label"]).predict_proba(test["logits"])
    expected = evaluate(probs, test["label"])["nll"]
    assert values["vs"] == pytest.approx(expected, rel=1e-5)  # a study has float32


def test_what_is_missing_is_named_with_its_extra(core, make_config, home, tmp_path):
    plan = Plan(Study(make_config(), home))
    write_record(tmp_path / "plan.json", plan.file())
    printed = core(
        "import sys; sys.stderr = sys.stdout\n"
        "print(main(['job', 'data', '--plan', 'plan.json', '--out', "
        f"{plan.data('digits').folder!r}]))\n"
        "from calgrid import optional as extras\n"
        "for step in (lambda: __import__('calgrid.losses').losses.Loss, lambda: "
        "extras.require('train')):\n"
        "    try:\n        step()\n    except ImportError as error:\n        print(error)\n"
    )
    said = [line for line in printed.splitlines() if "brings it" in line]
    sentence = "The library {} is not installed: pip install 'calgrid[{}]' brings it."
    torch = sentence.format("torch", "train")
    assert said == [f"calgrid data: {sentence.format('sklearn', 'train')}", torch, torch]
    assert printed.splitlines().count("2") == 1


def test_a_study_that_trains_asks_for_its_libraries_first(make_config, home, monkeypatch, refuses):
    jobs = Jobs(Plan(Study(make_config(), home)), local=False)
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "timm" else object())
    with refuses(MissingLibraryError, "timm is not installed", "'calgrid[train]'"):
        jobs.check_installed(conda=False)
    jobs.check_installed(conda=True)  # its jobs have libraries of their own


def test_what_no_extra_would_mend_is_raised_as_it_is():
    for module in ("torch.no_such_module", "no_such_library"):
        with pytest.raises(ModuleNotFoundError, match="No module named"), say_extra():
            __import__(module)


def test_a_library_without_memory_to_load_it_is_said(refuses):
    reason = "libtorch_cpu.so: failed to map segment from shared object"
    with refuses(StateError, reason, "too little memory", "ulimit -v"), say_extra():
        raise ImportError(reason)


def test_public_names_are_offered_before_anything_imports_them(run_python):
    program = (
        "import importlib\n"
        "for name in ('calgrid', 'calgrid.backbones'):\n"
        "    package = importlib.import_module(name)\n"
        "    print(*set(package.__all__) - set(dir(package)))\n"
    )
    assert run_python(program).split() == []
