"""Lines: protocols that share a table, so that no cell of it gets two numbers."""

import pytest

from calgrid.errors import ConfigError

TWO = {"quick": {"base": "digits", "epochs": 5, "schedule": {"milestones": [2]}}}


def test_lines_go_into_the_manifest_by_protocol(plan):
    other = {"protocol": "quick", "datasets": ["digits_ambiguous"]}
    made = plan({}, other, protocols=TWO, lines={"both": ["digits", "quick"]})
    assert made.manifest()["lines"] == {"digits": "both", "quick": "both"}


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        ({"one": ["digitz"]}, ["Unknown protocol 'digitz' in lines.one", "did you mean 'digits'?"]),
        ({"one": ["digits"], "two": ["digits"]}, ["lines.two: 'digits' is already in 'one'"]),
        ({"one": ["digits", "quick"]}, ["lines.one: 'digits' and 'quick' both train ce on digits with resnet8"]),
        ({"quick": ["digits"]}, ["lines.quick: 'digits' and 'quick' both train ce on digits with resnet8"]),
    ],
)
def test_lines_that_do_not_fit_are_refused(study, refuses, lines, parts):
    with refuses(ConfigError, *parts):
        study({}, {"protocol": "quick"}, protocols=TWO, lines=lines)
