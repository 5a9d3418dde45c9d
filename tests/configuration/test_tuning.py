"""An equal tuning budget: what may stand in the configuration, and what the manifest says of it."""

import pytest

from calgrid.configuration.plan import Plan
from calgrid.configuration.study import Study
from calgrid.errors import ConfigError


@pytest.fixture
def build(make_config, home):
    """Function that makes a study with ce, ls and mbls whose tuning has the given lists."""

    def make(lists, grids=(), **settings):
        config = make_config({"methods": ["ce", "ls", "mbls"]})
        config["grids"] += [{**config["grids"][0], **block} for block in grids]
        config["tuning"] = {"protocol": config["grids"][0]["protocol"], "methods": lists, **settings}
        return Study(config, home)

    return make


def test_the_manifest_lists_every_candidate_with_its_protocol(build):
    study = build({"plain": ["ce", "ls"], "margin": ["mbls", "ce"]}, metric="brier")
    protocol = next(iter(study.runs)).protocol
    assert Plan(study).manifest()["tuning"] == {
        "metric": "brier",
        "protocol": protocol,
        "candidates": {
            "plain": [[protocol, "ce"], [protocol, "ls"]],
            "margin": [[protocol, "mbls"], [protocol, "ce"]],
        },
    }


def test_a_candidate_can_differ_in_its_protocol(make_config, home):
    config = make_config({"methods": ["ce"]})
    base = config["grids"][0]["protocol"]
    config["protocols"] = {
        **config.get("protocols", {}),
        "decayed": {"base": "digits", "optimizer": {"weight_decay": 0.001}},
    }
    config["grids"].append({**config["grids"][0], "protocol": "decayed"})
    config["tuning"] = {"protocol": base, "methods": {"ce": ["ce", {"protocol": "decayed", "method": "ce"}]}}
    manifest = Plan(Study(config, home)).manifest()
    assert manifest["tuning"]["candidates"] == {"ce": [[base, "ce"], ["decayed", "ce"]]}


def test_without_tuning_the_manifest_has_none(make_config, home):
    assert Plan(Study(make_config({}), home)).manifest()["tuning"] is None


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
    grids = [{"methods": ["brier"], "seeds": [77]}]
    with refuses(ConfigError, "is not run on", "seed", "put all candidates into grids with the same seeds"):
        build({"a": ["ce", "brier"]}, grids=grids)
