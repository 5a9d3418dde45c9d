"""An equal tuning budget: what may stand in the configuration, and what the manifest says of it."""

import pytest

from calgrid.configuration.plan import Plan
from calgrid.errors import ConfigError


@pytest.fixture
def build(study):
    """Function that makes a study with ce, ls and mbls whose tuning has the given lists."""

    def make(lists, *grids, protocols=None, **settings):
        tuning = {"protocol": "digits", "methods": lists, **settings}
        return study({"methods": ["ce", "ls", "mbls"]}, *grids, protocols=protocols or {}, tuning=tuning)

    return make


def test_the_manifest_lists_every_candidate_with_its_protocol(build):
    lists = {"plain": ["ce", "ls"], "margin": ["mbls", {"protocol": "decayed", "method": "ce"}]}
    decayed = {"base": "digits", "optimizer": {"weight_decay": 0.001}}
    made = build(lists, {"methods": ["ce"], "protocol": "decayed"}, protocols={"decayed": decayed}, metric="brier")
    assert Plan(made).manifest()["tuning"] == {
        "metric": "brier",
        "protocol": "digits",
        "candidates": {
            "plain": [["digits", "ce"], ["digits", "ls"]],
            "margin": [["digits", "mbls"], ["decayed", "ce"]],
        },
    }


def test_without_tuning_the_manifest_has_none(plan):
    assert plan().manifest()["tuning"] is None


@pytest.mark.parametrize(
    ("lists", "parts"),
    [
        ({"a": ["ce", "ls"], "b": ["mbls"]}, ["tuning.methods.b: 1 candidates, but 'a' has 2", "the same number"]),
        ({"a": ["ce", "ce"]}, ["tuning.methods.a: a candidate is listed twice"]),
        ({"a": ["ce", "brier"]}, ["tuning.methods.a: no grid runs 'brier'", "add it to one"]),
        ({"a": [{"method": "ce"}]}, ["tuning.methods.a[0]"]),
        ({}, ["tuning.methods"]),
    ],
)
def test_mistakes(build, refuses, lists, parts):
    with refuses(ConfigError, *parts):
        build(lists)


def test_a_metric_that_does_not_rank(build, refuses):
    with refuses(ConfigError, "tuning.metric", "ece_null"):
        build({"a": ["ce"]}, metric="ece_null")


def test_candidates_must_be_run_with_the_same_seeds(build, refuses):
    with refuses(ConfigError, "is not run on", "seed", "put all candidates into grids with the same seeds"):
        build({"a": ["ce", "brier"]}, {"methods": ["brier"], "seeds": [77]})
