"""The registry: one file is one component, read without running it."""

import json
import re
from typing import ClassVar

import pytest
from tests.mistakes import cases

from calgrid.components import plugins, registry
from calgrid.components.options import WORDS, Option
from calgrid.errors import ConfigError

COMPONENTS = [(kind, name) for kind in registry.KINDS for name in registry.descriptions(kind)]
LOSS = '''
from calgrid.components.registry import register
from calgrid.losses.base import Loss
raise RuntimeError("a file must never be run to be listed")


@register(
    source="a paper, Eq. 3",
    dataset_defaults={"cifar100": {"margin": 5.0}, "cifar100/resnet110": {"margin": 7.0}},
    needs=("features",),
    hard_labels=True,
    state="none",
)
class Mine(Loss):
    """A loss of our own.

    More about it.
    """

    def __init__(
        self,
        classes: int,
        *,
        margin: float = 10.0,
        steps: int = 3,
        form: Literal["a", "b"] = "a",
        fast: bool = True,
    ) -> None:
        pass


class Helper:
    pass
'''
DEFAULTS_OF_MINE = {"margin": 10.0, "steps": 3, "form": "a", "fast": True, "reduction": "mean"}

BACKBONE = '''
from calgrid.backbones import Backbone
from calgrid.components.registry import register


@register(source="a paper", label="Mine", min_size=32)
class Mine(Backbone):
    """A backbone of our own."""
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Folder of an empty package."""
    with monkeypatch.context() as patch:
        patch.setattr(plugins, "PACKAGE_ROOT", tmp_path)
        plugins.forget()
        yield tmp_path
    plugins.forget()


@pytest.fixture
def losses(package):
    """Folder of an otherwise empty package whose files are its losses."""
    folder = package / "losses"
    folder.mkdir()
    return folder


@pytest.fixture
def mine(losses):
    (losses / "mine.py").write_text(LOSS)
    return registry.describe("loss", "mine")


FAMILY = '''
from calgrid.datasets._common import LIMITS, SIZES, Pictures
from calgrid.components.registry import register

COMMON = {"role": "dataset", "download": False, "image_shape": (3, 8, 8), "limits": LIMITS}


@register(id="small", source="a paper", **COMMON, label="Small", sizes=SIZES)
class Small(Pictures):
    """A small one."""


@register(id="large", source="a paper", **COMMON, label="L", sizes={**SIZES, "test": 9})
class Large(Pictures):
    """A large one."""

    def __init__(self, *, size: int = 64, **options):
        super().__init__(size=size, **options)
'''
COMMON = """
SIZES = {"train": 5, "test": 4}
LIMITS = {"size": "[1, inf)"}


class Pictures:
    def __init__(self, *, size: int = 32, seed: int = 1):
        pass
"""


class TestFamily:
    """Several data sets in a file, with constants of another file and options of the base."""

    @pytest.fixture
    def folder(self, package):
        folder = package / "datasets"
        folder.mkdir()
        (folder / "_common.py").write_text(COMMON)
        (folder / "family.py").write_text(FAMILY)
        return folder

    def test_each_is_a_component(self, folder):
        small, large = (registry.descriptions("dataset")[name] for name in ("small", "large"))
        assert small.module == large.module == "calgrid.datasets.family"
        assert small.info["sizes"] == {"train": 5, "test": 4}
        assert large.info["sizes"] == {"train": 5, "test": 9}
        assert small.resolve() == {"size": 32, "seed": 1}
        assert large.resolve({"seed": 2}) == {"size": 64, "seed": 2}

    def test_an_id_belongs_to_one(self, folder, refuses):
        (folder / "other.py").write_text(FAMILY.replace('"large"', '"third"'))
        with refuses(ConfigError, "other.py: 'small' is the dataset of calgrid/datasets/family.py"):
            registry.describe("dataset", "small")
        assert list(registry.descriptions("dataset")) == ["large", "third"]

    @pytest.mark.parametrize(
        ("old", "new", "said"),
        [
            ('id="small", ', "", "exactly one class ... or several with an id each, found 2"),
            ('"small"', '"Small"', "the id 'Small' must be small letters"),
        ],
    )
    def test_an_id_is_needed_and_fits_paths(self, folder, refuses, old, new, said):
        (folder / "family.py").write_text(FAMILY.replace(old, new))
        with refuses(ConfigError, "calgrid/datasets/family.py", said):
            registry.describe("dataset", "large")


def test_a_file_is_read_and_not_run(mine):
    assert (mine.id, mine.kind, mine.class_name) == ("mine", "loss", "Mine")
    assert mine.module == "calgrid.losses.mine"
    assert mine.summary == "A loss of our own."
    assert mine.source == "a paper, Eq. 3"
    facts = {"needs": ("features",), "hard_labels": True, "state": "none"}
    assert mine.info == {**facts, "sees_validation": False}
    assert mine.resolve() == DEFAULTS_OF_MINE
    assert mine.options["form"].choices == ("a", "b")


def test_positional_arguments_and_annotations_may_be_of_other_packages(losses):
    text = LOSS.replace("classes: int, *,", "classes: int, kind: torch.dtype = torch.float32, *,")
    (losses / "mine.py").write_text(text)
    assert registry.describe("loss", "mine").resolve() == DEFAULTS_OF_MINE


def test_helper_files_are_no_components(losses):
    (losses / "_helper.py").write_text("x = 1\n")
    (losses / ".#mine.py").write_text("what an editor leaves")
    (losses / "__init__.py").write_text("")
    (losses / "mine.py").write_text(LOSS)
    assert list(registry.descriptions("loss")) == ["mine"]


def test_defaults_of_the_file_then_data_set_then_backbone_then_overrides(mine):
    assert mine.resolve()["margin"] == 10.0
    assert mine.resolve(dataset="cifar10", backbone="resnet110")["margin"] == 10.0
    assert mine.resolve(dataset="cifar100")["margin"] == 5.0
    assert mine.resolve(dataset="cifar100", backbone="resnet50")["margin"] == 5.0
    assert mine.resolve(dataset="cifar100", backbone="resnet110")["margin"] == 7.0
    assert mine.resolve({"margin": 8}, dataset="cifar100", backbone="resnet110")["margin"] == 8.0
    both = {"margin": 5.0, "steps": 9}
    assert mine.resolve({"steps": 9}, dataset="cifar100") == {**DEFAULTS_OF_MINE, **both}


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        ({"margn": 1.0}, "Unknown hyper-parameter 'margn' ... overrides[0] ... 'margin'?"),
        ({"margin": True}, "overrides[0]: margin must be a number ... True"),
        ({"form": "c"}, "overrides[0]: form must be one of ['a', 'b'] ... 'c'"),
    ],
)
def test_a_wrong_hyper_parameter_is_refused_by_name(mine, refuses, overrides, parts):
    with refuses(ConfigError, parts):
        mine.resolve(overrides, where="overrides[0]")


def test_a_default_must_have_the_declared_type_as_a_given_value_must(losses, refuses):
    (losses / "mine.py").write_text(LOSS.replace("margin: float = 10.0", "margin: float = 10"))
    (losses / "yours.py").write_text(LOSS.replace("steps: int = 3", "steps: int = None"))
    margin = registry.describe("loss", "mine").resolve()["margin"]
    assert (margin, type(margin)) == (10.0, float)
    with refuses(ConfigError, "loss 'yours': steps must be a whole number, got None"):
        registry.describe("loss", "yours").resolve()


class Base:
    """A base that sets hyper-parameters of the classes below it."""

    def __init__(self, **options):
        registry.set_options(self, options)


class Gate(Base):
    """A class with a hyper-parameter, a fact, and what a fit sets."""

    slope: float = 1.0
    fast: ClassVar[bool] = False
    fitted: list[float]
    _held: int = 0


def test_only_hyper_parameters_are_set_and_the_error_names_them():
    assert Gate(slope=2.0).slope == 2.0
    for name in ("slopes", "fast", "fitted", "_held"):
        with pytest.raises(TypeError, match=f"Gate has no hyper-parameter '{name}'; it has slope."):
            Gate(**{name: 1})
    with pytest.raises(TypeError, match="it has none"):
        registry.set_options(Base(), {"slope": 1.0})


def test_a_component_without_hyper_parameters_says_so(refuses):
    with refuses(
        ConfigError,
        "hyper-parameter 'n_bins' in calibrator 'none': none has no options",
    ):
        registry.describe("calibrator", "none").resolve({"n_bins": 3})


@pytest.mark.parametrize(
    ("kind", "value", "result"),
    [
        ("float", 3, 3.0),
        ("float", 0.5, 0.5),
        ("int", 3, 3),
        ("str", "x", "x"),
        ("bool", False, False),
        ("float | None", None, None),
        ("int | float", 2, 2.0),
        ("list[int]", (1, 2), [1, 2]),
        ("tuple[float, ...]", [0.5], [0.5]),
    ],
)
def test_values_are_taken_in_the_declared_type(kind, value, result):
    taken = Option("x", None, kind).check(value, "here")
    assert taken == result
    assert type(taken) is type(result)


def test_values_of_another_type_are_refused(refuses):
    wrong = {"float": ("1", True, None), "int": (True, 1.0, [1]), "str": (1,), "bool": (0,)}
    for kind, value in ((kind, value) for kind, values in wrong.items() for value in values):
        with refuses(ConfigError, f"here must be {WORDS[kind]}, got {value!r}"):
            Option("x", None, kind).check(value, "here")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 10**400])
def test_a_number_that_is_not_finite_is_refused(value, refuses):
    with refuses(ConfigError, "here must be a finite number, got "):
        Option("x", None, "float | None").check(value, "here")


@pytest.mark.parametrize(
    ("kind", "name", "parts"),
    [
        ("loss", "mbl", "Unknown loss 'mbl' in here ... did you mean 'mbls'?"),
        ("calibrator", "isotonik", "did you mean 'isotonic'?"),
        ("calibrator", "isotonic", "did you mean 'iso'?"),
        ("calibrator", "sigmoid", "the closest of ... ; calgrid list calibrators shows all."),
        ("loss", "ts", "Unknown loss 'ts' in here: it is a calibrator; name a loss."),
        ("backbone", "zzz", "Unknown backbone 'zzz' ... valid: ... resnet8"),
        ("backbone", "platform", "Unknown backbone 'platform' ... valid: ... resnet8"),
    ],
)
def test_an_unknown_identifier_suggests_the_closest_or_all(refuses, kind, name, parts):
    with refuses(ConfigError, parts):
        registry.describe(kind, name, "here")


def test_full_names_of_calibrators_are_read_as_identifiers():
    assert registry.calibrator_id("ts") == "ts"
    assert registry.calibrator_id("vector") == "vs"
    assert {*registry.FULL_NAMES.values()} <= {*registry.descriptions("calibrator")}
    assert not {*registry.FULL_NAMES} & {*registry.descriptions("calibrator")}


@pytest.mark.parametrize(
    ("changes", "parts"),
    cases(
        r"""
'class Helper:': "@register(source='b')\nclass Second:"
    exactly one class ... found 2
'source="a paper, Eq. 3",': ''
    calgrid/losses/bad.py, line 7: @register and defaults ... argument: 'source'
'"a paper, Eq. 3"': NAME
    calgrid/losses/bad.py, line 8: @register and defaults ... literals or constants
'margin: float = 10.0': 'margin: float = PI'
    calgrid/losses/bad.py, line 24: ... name 'PI' is not defined
state=: stat=
    Unknown fact 'stat' in calgrid/losses/bad.py ... did you mean 'state'?
'hard_labels=True,': ''
    bad.py: @register of a loss needs the fact hard_labels
state=: "limits={'margn': '[0, 1]'}, state="
    Unknown hyper-parameter 'margn' in calgrid/losses/bad.py: limits ... did you mean 'margin'?
state=: "limits={'margin': (0, 1)}, state="
    calgrid/losses/bad.py: limits of margin must be a range such as '[0, 1)' ... got (0, 1)
state=: "limits={'margin': '[0, 1)'}, state="
    calgrid/losses/bad.py: the default of margin must be at least 0 and below 1, got 10.0
'margin: float = 10.0': 'margin: float'
    calgrid/losses/bad.py: the hyper-parameter margin of __init__ needs a default
'margin: float': margin
    the hyper-parameter margin of __init__ needs an annotation
'margin: float': 'margin: Optional[float]'
    bad.py: the annotation of margin must be ... joined by |, got Optional[float]
'margin: float': "margin: Literal['a'] | None"
    bad.py: the annotation of margin must be ... got Literal['a'] | None
{raise: "import math\nBIG = math.inf\nraise", '10.0': BIG}
    calgrid/losses/bad.py, line 5: @register ... name 'math' is not defined
'class Mine(Loss):': 'class Mine('
    is not valid Python
"""
    ),
)
def test_a_file_that_is_no_component_is_refused_by_name(losses, refuses, changes, parts):
    text = LOSS
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (losses / "bad.py").write_text(text)
    (losses / "mine.py").write_text(LOSS)
    with refuses(ConfigError, *parts):
        registry.describe("loss", "bad")
    assert list(registry.descriptions("loss")) == ["mine"]
    assert len(registry.broken("loss")) == 1


def test_a_file_without_component_is_a_helper_here_but_wrong_in_plugins(losses, tmp_path, refuses):
    (losses / "helper.py").write_text("x = 1\n")
    assert not registry.descriptions("loss")
    assert not registry.broken("loss")
    plugin = tmp_path / "lab"
    (plugin / "losses").mkdir(parents=True)
    (plugin / "losses" / "helper.py").write_text("x = 1\n")
    plugins.use([plugin])
    with refuses(ConfigError, "losses/helper.py must hold exactly one class with", "found 0"):
        registry.describe("loss", "helper")
    plugins.use(())


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ("min_size=32, pretrained=True", "needs the fact parameters ... /base.py)."),
        ("min_sizes=32", "Unknown fact 'min_sizes' ... did you mean 'min_size'?"),
    ],
)
def test_wrong_facts_of_a_backbone_are_refused(package, refuses, given, parts):
    (package / "backbones").mkdir()
    (package / "backbones" / "mine.py").write_text(BACKBONE.replace("min_size=32", given))
    with refuses(ConfigError, "calgrid/backbones/mine.py", parts):
        registry.describe("backbone", "mine")


def test_a_shift_without_its_conditions_is_refused(package, refuses):
    (package / "datasets").mkdir()
    facts = "source='a test', role='shift', label='Mine', download=False, base='digits'"
    (package / "datasets" / "mine.py").write_text(
        "from calgrid.components.registry import register\n"
        f'@register({facts}, severities=(1,))\nclass Mine:\n    """Mine."""\n'
    )
    with refuses(ConfigError, "datasets/mine.py", "needs the facts image_shape, shifts"):
        registry.describe("dataset", "mine")


@pytest.mark.parametrize("name", ["My-Loss.py", "a+b.py", "2d.py", "Mine.py", "größe.py"])
def test_a_file_whose_name_is_no_identifier_is_refused(losses, refuses, name):
    (losses / name).write_text(LOSS)
    with refuses(ConfigError, f"losses/{name}: the file's name is the identifier", "small letters"):
        registry.describe("loss", name.removesuffix(".py"))


@pytest.mark.parametrize(
    ("content", "said"), [(b"gr\xf6\xdfe", "save it as UTF-8"), (b"\0", "not valid Python")]
)
def test_a_file_that_is_no_text_is_refused_by_name(losses, refuses, content, said):
    (losses / "bad.py").write_bytes(content)
    with refuses(ConfigError, "calgrid/losses/bad.py", said):
        registry.describe("loss", "bad")


@pytest.mark.parametrize(("kind", "name"), COMPONENTS)
class TestEveryComponent:
    def test_says_what_it_is_and_its_source_and_declares_values_of_right_types(self, kind, name):
        """A default and the same configured value have one fingerprint: 3 and 3.0 would not."""
        component = registry.describe(kind, name)
        assert component.source.strip()
        assert component.summary.endswith((".", "]"))
        assert len(component.summary) > 10
        assert set(component.resolve()) == set(component.options)
        declared = {
            "": {name: option.default for name, option in component.options.items()},
            **component.dataset_defaults,
        }
        for place, values in declared.items():
            assert re.fullmatch(r"([a-z0-9_]+(/[a-z0-9_.]+)?)?", place)
            component.resolve(None, *place.split("/"))  # in their ranges
            for option, value in values.items():
                checked = component.options[option].check(value, place)
                assert json.dumps(checked) == json.dumps(value), (place, option)

    def test_the_imported_class_is_what_was_read(self, kind, name):
        component = registry.load(kind, name)
        assert component.__module__ == registry.describe(kind, name).module
        read = registry._files(kind).descriptions[kind, name]  # families as the file names them
        assert registry.description_of(component) == read
