"""Methods: what an identifier stands for, and which hyper-parameter wins."""

import dataclasses

import pytest

from calgrid.components import registry
from calgrid.errors import ConfigError
from calgrid.storage.records import RunKey
from calgrid.study.datasets import DatasetCatalog
from calgrid.study.model import Override
from calgrid.study.runs import MethodCatalog, registered_methods

PLACE = RunKey("digits", "digits", "resnet8", "", 1)
VARIANTS = {"mbls_m5": {"base": "mbls", "margin": 5}, "tst_wide": {"base": "tst", "hidden": 64}}


def resolve(method, place=PLACE, variants=None, overrides=()):
    catalog = MethodCatalog(variants or {}, overrides, DatasetCatalog({}))
    return catalog.resolve(place._replace(method=method))


def override(match, **values):
    return Override.model_validate({"match": match, "set": values})


def test_methods_are_all_losses_and_all_procedures_but_plain_training():
    losses, procedures = registry.descriptions("loss"), registry.descriptions("procedure")
    assert set(registered_methods()) == {*losses, *procedures} - {"standard"}


def test_options_are_those_of_the_loss_and_of_the_procedure():
    method = resolve("mbls")
    assert method.procedure_options == {}
    assert method.loss_options == registry.describe("loss", "mbls").resolve(
        None, "digits", "resnet8"
    )
    assert resolve("tst").procedure_options == {"hidden": 128, "cached": False}


@pytest.mark.parametrize(
    ("method", "procedure", "loss", "first"),
    [
        ("mbls", "standard", "mbls", None),
        ("tst", "tst", "ce", "ce"),
        ("tst_wide+mbls_m5", "tst", "ce", "mbls_m5"),
        ("mixup+mbls_m5", "mixup", "mbls", None),
        ("mixup", "mixup", "ce", None),
        ("plp+fedlas_ls", "plp", "fedlas_ls", None),
        ("maccal+mixup", "maccal", "ce", "mixup"),
        ("maccal+mixup+ls", "maccal", "ce", "mixup+ls"),
    ],
)
def test_a_procedure_trains_the_loss_after_plus_or_starts_from_it(method, procedure, loss, first):
    resolved = resolve(method, variants=VARIANTS)
    assert (resolved.procedure, resolved.loss, resolved.first_stage) == (procedure, loss, first)


TINY = RunKey("p", "tiny_imagenet", "resnet50", "", 1)
HERE, THIS = override({"dataset": "digits"}, margin=3), override({"method": "mbls_m5"}, margin=4)


@pytest.mark.parametrize(
    ("method", "place", "overrides", "margin"),
    [
        ("mbls", PLACE, [], 6.0),
        ("mbls", TINY, [], 10.0),
        ("mbls_m5", PLACE, [], 5.0),
        ("mbls_m5", TINY, [], 5.0),
        ("mbls_m5", TINY, [THIS], 4.0),
        ("mbls_m5", PLACE, [HERE, THIS], 4.0),
        ("mbls_m5", PLACE, [THIS, HERE], 3.0),
        # an override names a method as the grid does: neither its base nor the procedure of which
        # it is the loss
        ("mbls_m5", PLACE, [override({"method": "mbls"}, margin=3)], 5.0),
        ("mixup+mbls_m5", PLACE, [], 5.0),
        ("mixup+mbls_m5", PLACE, [THIS], 5.0),
        ("mixup+mbls_m5", PLACE, [HERE], 3.0),
        ("acls", PLACE, [HERE], 3.0),
    ],
)
def test_defaults_yield_to_data_set_variant_and_overrides_in_turn(method, place, overrides, margin):
    usual, changed = (
        resolve(method, place, VARIANTS).loss_options,
        resolve(method, place, VARIANTS, overrides),
    )
    assert changed.loss_options == {**usual, "margin": margin}


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ({"method": "mbls"}, True),
        ({"method": ["acls", "mbls"]}, True),
        ({"method": "acls"}, False),
        ({"dataset": ["digits"]}, True),
        ({"backbone": "resnet8"}, True),
        ({"backbone": ["resnet20"]}, False),
        ({"protocol": "digits"}, True),
        ({"protocol": ["other"]}, False),
        (
            {"method": "mbls", "dataset": "digits", "backbone": ["resnet8"], "protocol": "digits"},
            True,
        ),
        ({"method": "mbls", "backbone": "resnet20"}, False),
    ],
)
def test_an_override_matches_where_all_its_keys_match(match, matches):
    margin = resolve("mbls", overrides=[override(match, margin=3)]).loss_options["margin"]
    assert margin == (3.0 if matches else 6.0)


def test_an_override_without_a_method_leaves_methods_without_the_hyper_parameter_alone():
    assert "margin" not in resolve("ls", overrides=[HERE]).loss_options


@pytest.mark.parametrize(
    ("method", "other", "name"), [("tst+mbls", "tst", "hidden"), ("mixup+mbls", "mixup", "alpha")]
)
def test_an_override_of_a_procedure_with_its_loss_changes_that_of_this_method(method, other, name):
    overrides = [override({"method": method}, **{name: 1})]
    assert resolve(method, overrides=overrides).procedure_options[name] == 1
    assert resolve(other, overrides=overrides) == resolve(other)


def test_a_procedure_must_say_which_losses_it_trains(refuses):
    mixup = registry.describe("procedure", "mixup")
    silent = dataclasses.replace(mixup, info={"second_stage": False})
    methods = MethodCatalog({}, [], DatasetCatalog({}))
    methods.registered = {**methods.registered, "mixup": silent}
    with refuses(ConfigError, "procedures/mixup.py: the fact 'losses'", "stateless, got None"):
        methods.split("mixup")
