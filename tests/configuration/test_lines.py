"""Lines: protocols that share a table, so that no cell of it gets two numbers."""

import pytest
from tests.conftest import HOME

from calgrid.configuration.plan import Plan
from calgrid.configuration.study import Study
from calgrid.errors import ConfigError

TWO = {"quick": {"base": "digits", "epochs": 5, "schedule": {"milestones": [2]}}}


def two_protocols(make_config, datasets=("digits", "digits"), **changes):
    config = make_config(protocols=TWO, **changes)
    (block,) = config["grids"]
    config["grids"] = [
        {**block, "datasets": [datasets[0]]},
        {**block, "protocol": "quick", "datasets": [datasets[1]]},
    ]
    return config


def test_lines_go_into_the_manifest_by_protocol(make_config):
    config = two_protocols(make_config, ("digits", "digits_ambiguous"), lines={"both": ["digits", "quick"]})
    assert Plan(Study(config, HOME)).manifest()["lines"] == {"digits": "both", "quick": "both"}


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        ({"one": ["digitz"]}, ["Unknown protocol 'digitz' in lines.one", "did you mean 'digits'?"]),
        ({"one": ["digits"], "two": ["digits"]}, ["lines.two: 'digits' is already in 'one'"]),
        ({"one": ["digits", "quick"]}, ["lines.one: 'digits' and 'quick' both train ce on digits with resnet8"]),
        ({"quick": ["digits"]}, ["lines.quick: 'digits' and 'quick' both train ce on digits with resnet8"]),
    ],
)
def test_lines_that_do_not_fit_are_refused(make_config, refuses, lines, parts):
    with refuses(ConfigError, *parts):
        Study(two_protocols(make_config, lines=lines), HOME)
