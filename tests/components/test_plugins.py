"""Folders of components outside the package: which are taken, what is found, what breaks."""

import os
import sys
import tomllib

import numpy as np
import pytest
from tests.workflow.dag import examples

from calgrid.backbones.trial import check_images
from calgrid.calibrators import build_calibrator
from calgrid.components import plugins, registry
from calgrid.components.fingerprint import code_digests
from calgrid.errors import ConfigError
from calgrid.study import slow_checks
from calgrid.study.study import Study

pytestmark = pytest.mark.usefixtures("without_plugins")
CALIBRATOR = """
import numpy as np
from scipy.special import softmax
from calgrid.calibrators import Calibrator
from calgrid.components.registry import register


@register(source="a paper", needs=("logits",), keeps_argmax=True, parameters="0")
class Mine(Calibrator):
    def _fit(self, logits, labels, features, head):
        KEPT
        return {}

    def _transform(self, logits, features):
        return softmax(logits, axis=1)
"""
LOSS = """
from torch.nn.functional import cross_entropy
from calgrid.components.registry import register
from calgrid.losses import Loss


@register(source="a paper", hard_labels=False)
class Mine(Loss):
    def compute(self, logits, labels, features, index):
        ce = cross_entropy(logits, labels)
        RETURNED
"""
BACKBONE = """
from torch import nn
from calgrid.backbones import Backbone
from calgrid.components.registry import register


@register(source="a paper", label="Flat")
class Flat(Backbone):
    def __init__(self, num_classes):
        super().__init__([nn.Linear(16, 16)], nn.Flatten(), 3 * 16 * 16, num_classes)
"""


@pytest.fixture
def write(tmp_path):
    """Write a file below ``tmp_path`` and use its first folder as a plugin."""

    def write(path, text):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        plugins.use([tmp_path / path.split("/")[0]])
        return file

    return write


@pytest.mark.parametrize(
    ("folders", "parts"),
    [
        (["none"], "plugins[0]: the folder ' ... none' does not exist"),
        (["a-b"], "plugins[0]: 'a-b' is no name of a Python package ... rename the folder"),
        (["one/mine_a", "json"], "plugins[1]: the folder ' ... has the name of ... rename it"),
        (["one/mine_a", "two/mine_a"], "mine_a and ... two/mine_a have the same name ... rename"),
    ],
)
def test_a_folder_that_cannot_be_a_plugin_is_refused(tmp_path, refuses, folders, parts):
    for folder in ("a-b", "json", "one/mine_a", "two/mine_a"):
        (tmp_path / folder).mkdir(parents=True)
    with refuses(ConfigError, parts):
        plugins.use([tmp_path / folder for folder in folders])


def test_the_environment_names_further_folders_or_the_same(tmp_path, monkeypatch, refuses):
    for folder in ("mine_b", "mine_c"):
        (tmp_path / folder).mkdir()
    monkeypatch.setenv("CALGRID_PLUGINS", f"{tmp_path / 'mine_c'}{os.pathsep}{tmp_path / 'mine_b'}")
    plugins.use([tmp_path / "mine_b"])
    assert [plugin.package for plugin in plugins.in_use()] == ["mine_b", "mine_c"]
    monkeypatch.setenv("CALGRID_PLUGINS", "nowhere")
    with refuses(ConfigError, "CALGRID_PLUGINS: the folder 'nowhere' does not exist"):
        plugins.use(())
    monkeypatch.delenv("CALGRID_PLUGINS")


def test_a_name_that_exists_belongs_to_nobody(write, refuses):
    write("mine_d/calibrators/ts.py", CALIBRATOR)
    with refuses(ConfigError, "ts.py: 'ts' is the calibrator of calgrid/calibrators/ts.py already"):
        registry.describe("calibrator", "ts")
    write("mine_d/losses/mixup.py", "")
    write("mine_d/losses/mixup.py", (plugins.PACKAGE_ROOT / "losses/ce.py").read_text())
    with refuses(ConfigError, "mixup.py: 'mixup' is the procedure of calgrid/procedures/mixup.py"):
        registry.describe("loss", "mixup")
    assert "ce" in registry.descriptions("loss")


def test_what_cannot_be_read_stops_only_who_asks_for_it(write, refuses):
    write("mine_e/calibrators/good.py", CALIBRATOR)
    write("mine_e/calibrators/_half.py", "class (")
    write(
        "mine_e/calibrators/odd.py",
        CALIBRATOR.replace("import softmax", "import softmax\nfrom ._half import half"),
    )
    write("mine_e/calibrators/bad.py", "@register(**5)\nclass Bad:\n    pass\n")
    assert {"good", "odd", "ts"} <= set(registry.descriptions("calibrator"))
    with refuses(ConfigError, "mine_e/calibrators/bad.py, line 1: @register and defaults"):
        registry.describe("calibrator", "bad")
    with refuses(ConfigError, "mine_e/calibrators/_half.py, line 1, is not valid Python"):
        code_digests([registry.describe("calibrator", "odd").module])
    with refuses(ConfigError, "calibrators/odd.py, line 4, cannot be imported (SyntaxError: "):
        build_calibrator("odd")


def test_what_a_file_imports_from_its_folder_and_from_calgrid_counts(write):
    write("mine_f/_common.py", "from mine_f.calibrators._low import low\n")
    write("mine_f/calibrators/_low.py", "low = 1\n")
    text = CALIBRATOR.replace(
        "import numpy as np", "from .. import _common\nfrom . import _high as high"
    )
    write("mine_f/calibrators/_high.py", "high = 1\n")
    write("mine_f/calibrators/mine.py", text)
    found = code_digests([registry.describe("calibrator", "mine").module])
    own = {"mine", "_low", "_high"}
    assert {"mine_f._common", *(f"mine_f.calibrators.{name}" for name in own)} == {
        n for n in found if "mine_f" in n
    }
    assert "calgrid.calibrators.base" in found


def test_an_installed_package_names_itself(tmp_path, run_python, home):
    (block,) = examples("toml")
    (name,) = tomllib.loads(block)["project"]["entry-points"]["calgrid.plugins"].values()
    folder = tmp_path / name / "parts" / "calibrators"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text(
        CALIBRATOR.replace("import numpy as np", f"from {name}.tools import tool")
    )
    (tmp_path / name / "tools.py").write_text("tool = 1\n")
    (tmp_path / name / "__init__.py").write_text("print('imported')\n")
    facts = tmp_path / "my_lab-1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Name: my-lab\nVersion: 1\n")
    (facts / "entry_points.txt").write_text(
        f"[calgrid.plugins]\nours = {name}.parts\ngone = no_such_package\n"
    )
    program = (
        "from calgrid.components import fingerprint, plugins, registry\n"
        "spec = registry.describe('calibrator', 'mine')\n"
        f"print(spec.module, '{name}.tools' in fingerprint.code_digests([spec.module]))\n"
        "print(*plugins.problems())\n"
        "print(registry.load('calibrator', 'mine').__name__)\n"
    )
    module, problem, *loaded = run_python(
        program, source=f"{home / 'src'}{os.pathsep}{tmp_path}"
    ).splitlines()
    assert module == f"{name}.parts.calibrators.mine True"
    assert problem.startswith(
        "The entry point 'gone' of the group calgrid.plugins names 'no_such_package', which is no"
    )
    assert loaded == ["imported", "Mine"]


def test_a_network_that_cannot_take_the_images_is_refused_first(write, make_config, home, refuses):
    write("mine_g/backbones/flat.py", BACKBONE)
    folder = str(plugins.in_use()[0].folder)
    check_images("flat", 10, (16, 16))
    study = Study(make_config({"backbones": ["flat"]}, plugins=[folder]), home)
    with refuses(ConfigError, "Backbone 'flat' does not take images of 8x8 pixels (RuntimeError: "):
        slow_checks.check_networks(study)
    write("mine_h/backbones/wide.py", BACKBONE.replace("3 * 16 * 16", "10"))
    with refuses(ConfigError, "it has 768 features, but its num_features is 10); ... correct"):
        check_images("wide", 10, (16, 16))


@pytest.mark.parametrize(
    ("name", "kept"), [("mine_i", "self.names = ['a']"), ("mine_j", "self.fitted = None")]
)
def test_a_fit_with_more_than_arrays_must_say_how_to_save(write, tmp_path, refuses, name, kept):
    write(
        f"{name}/calibrators/mine_i.py",
        CALIBRATOR.replace("KEPT", f"{kept}; self.array = logits; self.number = 1"),
    )
    fitted = build_calibrator("mine_i").fit(2 * np.eye(3), [0, 1, 2])
    with refuses(ConfigError, "Calibrator 'mine_i' keeps ", "define _state() and _load_state()"):
        fitted.save(tmp_path / "fitted")


def test_a_class_without_a_method_that_its_base_leaves_to_it_is_refused(write, refuses):
    write("mine_k/calibrators/half.py", CALIBRATOR.replace("_transform", "_apply"))
    with refuses(ConfigError, "calibrators/half.py: the calibrator Mine must define _transform."):
        registry.load("calibrator", "half")


@pytest.mark.parametrize(
    ("place", "status"), [("calibrators/ends.py", 0), ("__init__.py", 3), ("helper.py", 0)]
)
def test_a_plugin_that_ends_the_program_is_named(write, refuses, place, status):
    name = f"mine_l_{status}_{place.partition('.')[0].replace('/', '_')}"
    text = CALIBRATOR.replace("import numpy as np", f"import numpy as np\nimport {name}.helper")
    write(f"{name}/helper.py", "")
    write(f"{name}/calibrators/ends.py", text)
    file = write(f"{name}/{place}", "")
    file.write_text(f"import sys\nsys.exit({status})\n{text if 'ends' in place else ''}")
    with refuses(ConfigError, f"{name}/calibrators/ends.py", f"be imported (SystemExit: {status})"):
        registry.load("calibrator", "ends")


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("mine_m", "import os; os._exit(0)", "(SystemExit: os._exit(0))"),
        ("mine_n", "import time; time.sleep(60)", "(TimeoutError: it takes more than 1 s)"),
    ],
)
def test_an_import_cannot_end_or_block_the_program(write, refuses, monkeypatch, name, line, reason):
    monkeypatch.setattr(plugins, "IMPORT_SECONDS", 1)
    write(f"{name}/calibrators/ends.py", f"{line}\n{CALIBRATOR}")
    with refuses(ConfigError, f"{name}/calibrators/ends.py, line 1,", reason):
        registry.load("calibrator", "ends")
    assert os._exit.__module__ == "posix"


def test_a_claim_that_predictions_stay_is_checked(write, refuses):
    write(
        "mine_o/calibrators/turns.py",
        CALIBRATOR.replace("KEPT", "").replace("softmax(l", "softmax(-l"),
    )
    fitted = build_calibrator("turns").fit(2 * np.eye(3), [0, 1, 2])
    with refuses(ConfigError, "calibrators/turns.py says keeps_argmax=True", "2 of 3 predictions"):
        fitted.predict_proba([[0.0, 1.0, 3.0], [0.0, 0.0, 0.0], [1.0, 5.0, 0.0]])


@pytest.mark.parametrize("code", ["import sys; sys.exit(0)", "None.items()"])
def test_a_fit_of_a_plugin_that_fails_names_its_file(write, refuses, code):
    name = f"mine_p{len(code)}"
    write(f"{name}/calibrators/fails.py", CALIBRATOR.replace("KEPT", code))
    with refuses(ConfigError, f"{name}/calibrators/fails.py, line 11, fails in its fit ("):
        build_calibrator("fails").fit(2 * np.eye(3), [0, 1, 2])


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("return {}", "return None", "its fit (TypeError: _fit must return a dictionary"),
        ("softmax(l", "-softmax(l", "(ValueError: a row that it returned is negative somewhere"),
        ("softmax(l", "2 * softmax(l", "does not sum to 1)"),
        ("softmax(l", "0.0 * softmax(l", "does not sum to 1)"),
    ],
    ids=["none", "negative", "two", "zero"],
)
def test_a_calibrator_of_a_plugin_returns_probabilities(write, refuses, request, old, new, said):
    name = f"mine_q_{request.node.callspec.id}"
    assert old in CALIBRATOR
    write(f"{name}/calibrators/odd.py", CALIBRATOR.replace("KEPT", "").replace(old, new))
    with refuses(ConfigError, f"{name}/calibrators/odd.py", said):
        build_calibrator("odd").fit(2 * np.eye(3), [0, 1, 2]).predict_proba(2 * np.eye(3))


def test_a_class_without_a_base_of_calgrid_is_refused(write, refuses):
    file = "mine_r/losses/bare.py"
    write(file, LOSS.replace("RETURNED", "return ce, {}").replace("(Loss)", ""))
    with refuses(ConfigError, f"{file}: the loss Mine has no base class of calgrid"):
        registry.load("loss", "bare")


@pytest.mark.parametrize(
    ("returned", "parts"),
    [
        ("return ce", "a tensor without dimensions, and a dict ... it returned something else"),
        ("return logits.square(), {}", "it returned something else"),
        ("return ce * float('nan'), {}", "mine.py: compute() returns nan for random logits"),
        ("return ce.detach(), {}", "mine.py: the loss has no finite gradient at random logits"),
        ("return ce + logits[9].sum(), {}", "mine.py, line 11, fails on logits of shape (8, 10)"),
    ],
    ids=["no terms", "shape", "nan", "no gradient", "error"],
)
def test_a_loss_is_tried_before_jobs(write, refuses, request, returned, parts):
    name = f"own_loss_{request.node.callspec.id.replace(' ', '_')}"  # imported modules stay
    write(f"{name}/losses/mine.py", LOSS.replace("RETURNED", returned))
    with refuses(ConfigError, parts):
        slow_checks._check_loss("mine", 10, {})


def test_a_study_tries_the_losses_of_plugins(write, make_config, home, refuses):
    file = write("own_loss_of_study/losses/mine.py", LOSS.replace("RETURNED", "return ce"))
    config = make_config({"methods": ["mine"]}, plugins=[str(file.parents[1])])
    with refuses(ConfigError, "losses.mine: compute() of a loss returns ... something else"):
        slow_checks.check_plugins(Study(config, home))


def test_a_process_that_planned_with_plugins_finds_its_directory_again(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    before = list(sys.path)
    plugins.use([tmp_path / "mine"], isolate=True)
    plugins.importable("mine.losses.own")
    assert str(tmp_path) not in sys.path
    plugins.use(())
    assert sys.path == before
