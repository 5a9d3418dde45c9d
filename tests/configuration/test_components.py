"""Methods: what an identifier stands for, and which hyper-parameter wins."""

import dataclasses
from types import MappingProxyType

import pytest

from calgrid import registry
from calgrid.configuration.components import MethodCatalog, RunContext, registered_methods
from calgrid.errors import ConfigError

PLACE = RunContext("digits", "digits", "resnet8")
VARIANTS = {"mbls_m5": {"base": "mbls", "margin": 5}, "tst_wide": {"base": "tst", "hidden": 64}}


def resolve(method, place=PLACE, variants=None, overrides=()):
    return MethodCatalog(variants or {}, tuple(overrides)).resolve(method, place)


def override(match, **values):
    return {"match": match, "set": values}


def test_methods_are_all_losses_and_all_procedures_but_plain_training():
    assert set(registered_methods()) == {*registry.specs("loss"), *registry.specs("procedure")} - {"standard"}


def test_options_are_those_of_the_loss_and_of_the_procedure():
    method = resolve("mbls")
    assert method.procedure_options == {}
    assert method.loss_options == registry.spec("loss", "mbls").resolve(None, "digits", "resnet8")
    assert resolve("tst").procedure_options == {"hidden": 128, "cached": False}


@pytest.mark.parametrize(
    ("method", "procedure", "loss", "first"),
    [
        ("mbls", "standard", "mbls", None),
        ("tst", "tst", "ce", "ce"),
        ("tst+mbls", "tst", "ce", "mbls"),
        ("tst_wide", "tst", "ce", "ce"),
        ("tst_wide+mbls_m5", "tst", "ce", "mbls_m5"),
        ("mixup+mbls_m5", "mixup", "mbls", None),
        ("mixup", "mixup", "ce", None),
        ("mixup+ls", "mixup", "ls", None),
        ("plp+fedlas_ls", "plp", "fedlas_ls", None),
        ("balcal+brier", "balcal", "brier", None),
        ("maccal", "maccal", "ce", "ce"),
        ("maccal+mixup", "maccal", "ce", "mixup"),
        ("maccal+mixup+ls", "maccal", "ce", "mixup+ls"),
        ("maccal+fedlas_ls", "maccal", "ce", "fedlas_ls"),
    ],
)
def test_a_procedure_trains_the_loss_after_its_plus_and_a_second_stage_starts_from_it(method, procedure, loss, first):
    resolved = resolve(method, variants=VARIANTS)
    assert (resolved.procedure, resolved.loss, resolved.first_stage) == (procedure, loss, first)


@pytest.mark.parametrize("base", ["acls", "ls", "mbls", "mixup", "mit_l", "fl3", "flsd53", "dfl", "cpc", "mmce_w"])
def test_maccal_stands_over_each_first_stage_of_its_paper(base):
    assert resolve(f"maccal+{base}").first_stage == base


def test_the_loss_of_a_procedure_is_changed_by_a_variant_and_by_overrides_for_all_methods():
    assert resolve("mixup+mbls_m5", variants=VARIANTS).loss_options["margin"] == 5.0
    assert resolve("mixup+mbls", overrides=[override({"dataset": "digits"}, margin=3)]).loss_options["margin"] == 3.0
    named = [override({"method": "mixup+mbls"}, alpha=0.5), override({"method": "mbls"}, margin=3)]
    method = resolve("mixup+mbls", overrides=named)
    assert method.procedure_options["alpha"] == 0.5
    assert method.loss_options == resolve("mbls").loss_options


class TestPrecedence:
    """Default of the file < of the data set < variant < override; later overrides win over earlier ones."""

    PLACES = (PLACE, RunContext("p", "tiny_imagenet", "resnet50"))

    @pytest.mark.parametrize(("place", "margin"), [(PLACES[0], 6.0), (PLACES[1], 10.0)])
    def test_defaults(self, place, margin):
        assert registry.spec("loss", "mbls").options["margin"].default == 6.0
        assert resolve("mbls", place).loss_options["margin"] == margin

    @pytest.mark.parametrize("place", PLACES)
    def test_a_variant_wins_over_the_data_set(self, place):
        assert resolve("mbls_m5", place, VARIANTS).loss_options["margin"] == 5.0

    @pytest.mark.parametrize("place", PLACES)
    def test_an_override_wins_over_the_variant(self, place):
        overrides = [override({"method": "mbls_m5"}, margin=3)]
        assert resolve("mbls_m5", place, VARIANTS, overrides).loss_options["margin"] == 3.0

    def test_the_last_override_wins(self):
        overrides = [override({"method": "mbls"}, margin=3), override({"dataset": "digits"}, margin=4)]
        assert resolve("mbls", overrides=overrides).loss_options["margin"] == 4.0
        assert resolve("mbls", overrides=overrides[::-1]).loss_options["margin"] == 3.0

    def test_an_override_leaves_other_hyper_parameters_alone(self):
        changed = resolve("mbls", overrides=[override({"method": "mbls"}, margin=3)])
        assert changed.loss_options == {**resolve("mbls").loss_options, "margin": 3.0}


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ({"method": "mbls"}, True),
        ({"method": ["acls", "mbls"]}, True),
        ({"method": "acls"}, False),
        ({"dataset": "digits"}, True),
        ({"dataset": ["digits"]}, True),
        ({"backbone": "resnet8"}, True),
        ({"backbone": ["resnet20"]}, False),
        ({"protocol": "digits"}, True),
        ({"protocol": ["other"]}, False),
        ({"method": "mbls", "dataset": "digits", "backbone": ["resnet8"], "protocol": "digits"}, True),
        ({"method": "mbls", "backbone": "resnet20"}, False),
    ],
)
def test_an_override_matches_where_all_its_keys_match(match, matches):
    margin = resolve("mbls", overrides=[override(match, margin=3)]).loss_options["margin"]
    assert margin == (3.0 if matches else 6.0)


def test_an_override_without_a_method_is_for_all_methods_that_have_the_hyper_parameter():
    overrides = [override({"dataset": "digits"}, margin=3)]
    assert resolve("mbls", overrides=overrides).loss_options["margin"] == 3.0
    assert resolve("acls", overrides=overrides).loss_options["margin"] == 3.0
    assert "margin" not in resolve("ls", overrides=overrides).loss_options


def test_an_override_names_a_method_as_the_grid_does():
    """``mbls`` is neither a variant of it nor a second stage over it, each of which is a method of its own."""
    overrides = [override({"method": "mbls"}, margin=3)]
    assert resolve("mbls_m5", variants=VARIANTS, overrides=overrides).loss_options["margin"] == 5.0
    overrides = [override({"method": "tst+mbls"}, hidden=32)]
    assert resolve("tst+mbls", overrides=overrides).procedure_options["hidden"] == 32
    assert resolve("tst", overrides=overrides).procedure_options["hidden"] == 128


def test_a_procedure_must_say_which_losses_it_trains(monkeypatch, refuses):
    real, original = registry.specs("procedure"), registry.specs
    silent = MappingProxyType({**real, "mixup": dataclasses.replace(real["mixup"], info={"second_stage": False})})
    monkeypatch.setattr(registry, "specs", lambda kind: silent if kind == "procedure" else original(kind))
    with refuses(ConfigError, "calgrid/procedures/mixup.py: the fact 'losses'", "affine, stateless, got None"):
        resolve("mixup")
