"""What a study asks of its runs: comparisons, equal tuning budgets, protocols of one table."""

import pytest
from tests.mistakes import cases

from calgrid.errors import ConfigError
from calgrid.plan.plan import Plan

TWO = {"quick": {"base": "digits", "epochs": 5, "schedule": {"milestones": [2]}}}


@pytest.fixture
def tuned(study):
    """Function that makes a study with ce, ls and mbls whose tuning has the given lists."""

    def make(lists, *grids, protocols=None, **settings):
        tuning = {"protocol": "digits", "methods": lists, **settings}
        return study(
            {"methods": ["ce", "ls", "mbls"]}, *grids, protocols=protocols or {}, tuning=tuning
        )

    return make


@pytest.mark.parametrize(
    ("changes", "parts"),
    cases(
        r"""
statistics: {comparisons: [{question: '?', method: mbl, against: ce}]}
    Unknown method 'mbl' in statistics.comparisons[0].method ... did you mean 'mbls'?
statistics: {comparisons: [{question: '?', method: mbls, against: brier}]}
    Unknown method 'brier' in statistics.comparisons[0].against
statistics: {comparisons: [{question: '?', method: mbls, against: mbls}]}
    statistics.comparisons[0]: 'mbls' is compared with itself
statistics: {comparisons: [{question: '?', method: mbls, against: fl3}]}
    'mbls' and 'fl3' have no protocol, data set, backbone and seed ... into one grid
statistics: {comparisons: [{question: '?', method: mbls, against: mdca}]}
    'mbls' and 'mdca' have no protocol, data set, backbone and seed ... into one grid
statistics: {comparisons: [{question: '', method: mbls, against: ce}]}
    statistics.comparisons[0].question
statistics: {comparisons: [{question: '?', method: null, against: ce}]}
    statistics.comparisons[0]: give 'method' or 'calibrator'
statistics: {comparisons: [{question: '?', calibrator: smrt, against: ts}]}
    Unknown calibrator 'smrt' in statistics.comparisons[0].calibrator ... 'smart'?
statistics: {comparisons: [{question: '?', calibrator: smart, against: tss}]}
    Unknown calibrator 'tss' in statistics.comparisons[0].against ... 'ts'?
statistics: {comparisons: [{question: '?', calibrator: smart, against: smart}]}
    statistics.comparisons[0]: 'smart' is compared with itself ... another calibrator
statistics: {comparisons: [{question: '?', calibrator: smart, against: ts, method: fl}]}
    Unknown method 'fl' in statistics.comparisons[0].method ... did you mean 'fl3'?
statistics: {comparisons: [{question: '?', calibrator: smart, against: ts, method: ce}]}
    statistics.comparisons[0]: no run of 'ce' has both calibrators 'smart' and 'ts'
lines: {one: [digitz]}
    Unknown protocol 'digitz' in lines.one ... did you mean 'digits'?
lines: {one: [digits], two: [digits]}
    lines.two: 'digits' is already in 'one'
lines: {one: [digits, quick]}
    lines.one: 'digits' and 'quick' both train ce on digits with
lines: {quick: [digits]}
    lines.quick: 'digits' and 'quick' both train ce on digits with resnet8
"""
    ),
)
def test_questions_that_do_not_fit_are_refused(study, refuses, changes, parts):
    elsewhere = [
        {"methods": ["fl3"], "seeds": [2], "calibrators": ["none", "ts", "smart"]},
        {"methods": ["mdca"], "backbones": ["resnet20"]},
    ]
    with refuses(ConfigError, *parts):
        study({}, {"protocol": "quick"}, *elsewhere, protocols=TWO, **changes)


def test_a_question_changes_the_manifest(plan):
    asked = {"comparisons": [{"question": "Is it better?", "method": "mbls", "against": "ce"}]}
    manifests = plan().manifest(), plan(statistics=asked).manifest()
    silent, asking = (each["configuration"]["statistics"] for each in manifests)
    assert silent["comparisons"] == []
    assert asking == {**silent, **asked}
    assert manifests[0]["fingerprint"] != manifests[1]["fingerprint"]


def test_lines_go_into_the_manifest_by_protocol(plan):
    other = {"protocol": "quick", "datasets": ["digits_ambiguous"]}
    made = plan({}, other, protocols=TWO, lines={"both": ["digits", "quick"]})
    assert made.manifest()["lines"] == {"digits": "both", "quick": "both"}


def test_the_manifest_lists_every_candidate_with_its_protocol(tuned):
    lists = {"plain": ["ce", "ls"], "margin": ["mbls", {"protocol": "quick", "method": "ce"}]}
    made = tuned(lists, {"methods": ["ce"], "protocol": "quick"}, protocols=TWO, metric="brier")
    tuning = Plan(made).manifest()["configuration"]["tuning"]
    assert (tuning["metric"], tuning["protocol"]) == ("brier", "digits")
    found = {}
    for name, candidates in tuning["methods"].items():
        found[name] = [(each["protocol"], each["method"]) for each in candidates]
    assert found == {
        "plain": [("digits", "ce"), ("digits", "ls")],
        "margin": [("digits", "mbls"), ("quick", "ce")],
    }


@pytest.mark.parametrize(
    ("lists", "parts"),
    cases(
        r"""
{a: [ce, ls], b: [mbls]}
    tuning.methods.b: 1 candidates, but 'a' has 2 ... the same number
a: [ce, ce]
    tuning.methods.a: a candidate is listed twice
a: [ce, nll]
    tuning.methods.a: no grid runs 'nll' ... add it to one
a: [ce, brier]
    is not run on digits with resnet8 and seed ... into grids with the same seeds
a: [{method: ce}]
    tuning.methods.a[0]
{}
    tuning.methods
"""
    ),
)
def test_tuning_that_does_not_fit_is_refused(tuned, refuses, lists, parts):
    with refuses(ConfigError, *parts):
        tuned(lists, {"methods": ["brier"], "seeds": [77]})


def test_a_metric_that_does_not_rank(tuned, refuses):
    with refuses(ConfigError, "tuning.metric", "ece_null"):
        tuned({"a": ["ce"]}, metric="ece_null")
