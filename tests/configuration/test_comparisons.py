"""Questions that a study asks: who may be compared, and what a question must not change."""

import dataclasses
from types import MappingProxyType

import pytest

from calgrid import registry
from calgrid.cli.listing import read_study
from calgrid.configuration.plan import Plan
from calgrid.errors import ConfigError


def ask(method="mbls", against="ce", **more):
    return {"question": "Is it better?", "method": method, "against": against, **more}


@pytest.fixture
def build(study):
    """Function that makes a study of some grids which asks the given questions."""
    return lambda asked, *grids: study({}, *grids, statistics={"comparisons": asked})


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        (ask(method="mbl"), ["Unknown method 'mbl' in statistics.comparisons[0].method", "did you mean 'mbls'?"]),
        (ask(against="ls"), ["Unknown method 'ls' in statistics.comparisons[0].against"]),
        (ask(against="mbls"), ["statistics.comparisons[0]: 'mbls' is compared with itself"]),
        (ask(question=""), ["statistics.comparisons[0].question"]),
    ],
)
def test_mistakes(build, refuses, asked, parts):
    with refuses(ConfigError, *parts):
        build([asked])


@pytest.mark.parametrize("elsewhere", [{"seeds": [2]}, {"backbones": ["resnet20"]}])
def test_methods_that_never_meet_cannot_be_compared(build, refuses, elsewhere):
    block = {"methods": ["ls"], **elsewhere}
    with refuses(ConfigError, "'mbls' and 'ls' have no protocol", "into one grid"):
        build([ask(against="ls")], block)
    assert build([ask(against="ls")], {"methods": ["ls"]}).evaluations


def test_a_question_changes_the_manifest(build):
    silent, asking = Plan(build([])), Plan(build([ask()]))
    assert silent.manifest()["statistics"]["comparisons"] == []
    assert asking.manifest()["statistics"]["comparisons"] == [ask()]
    assert silent.manifest()["fingerprint"] != asking.manifest()["fingerprint"]


def test_the_manifest_says_which_methods_see_validation_data(plan, monkeypatch):
    real = registry.specs("loss")
    seeing = dataclasses.replace(real["mbls"], info={**real["mbls"].info, "sees_validation": True})
    blind = dataclasses.replace(real["ce"], info={**real["ce"].info, "sees_validation": False})
    fake = MappingProxyType({**real, "mbls": seeing, "ce": blind})
    original = registry.specs
    monkeypatch.setattr(registry, "specs", lambda kind: fake if kind == "loss" else original(kind))
    runs = plan({"methods": ["ce", "mbls", "tst", "tst+mbls"]}).manifest()["runs"]
    seen = {run["key"]["method"]: run["sees_validation"] for run in runs}
    # a second stage inherits what its first stage has seen
    assert seen == {"ce": False, "mbls": True, "tst": False, "tst+mbls": True}


@pytest.fixture(scope="module")
def ablation(home):
    return read_study(home / "config" / "studies" / "fedlas_ablation.yaml")


class TestFedlasAblation:
    def test_each_variant_changes_one_hyper_parameter(self, ablation):
        methods = {key.method: run.method for key, run in ablation.runs.items()}
        for name, method in methods.items():
            base = next((each for each in ("fedlas_mbls", "fedlas_ls") if name.startswith(f"{each}_")), None)
            if base is not None:
                options, usual = dict(method.loss_options), dict(methods[base].loss_options)
                assert sum(options[key] != usual[key] for key in usual) == 1, name

    def test_plain_losses_differ_from_fedlas_by_the_module_only(self, ablation):
        options = {key.method: run.method.loss_options for key, run in ablation.runs.items()}
        assert options["ls"]["alpha"] == options["fedlas_ls"]["alpha"]
        assert all(options["mbls"][key] == options["fedlas_mbls"][key] for key in ("margin", "lambda_"))

    def test_it_asks_about_indicator_gate_and_gain_of_both(self, ablation):
        asked = {(each["method"], each["against"]) for each in ablation.config["statistics"]["comparisons"]}
        for base in ("ls", "mbls"):
            variants = ("const", "random", "maxprob", "maxlogit", "positive", "negative")
            assert {(f"fedlas_{base}", f"fedlas_{base}_{variant}") for variant in variants} < asked
            assert (f"fedlas_{base}", base) in asked
        assert ("fedlas_ls_beta0", "ls") in asked
