"""Metrics of plugins: what files declare, how they are computed and ranked by, broken ones."""

import itertools
import typing

import numpy as np
import pandas as pd
import pytest
from tests.mistakes import cases

from calgrid.components import fingerprint, plugins
from calgrid.components.metrics import (
    FACTS,
    check_metric,
    find_metric,
    metric_names,
    plugin_metrics,
)
from calgrid.errors import ConfigError
from calgrid.logits.ranking import rank_calibrators
from calgrid.metrics import METRICS, Metric, bootstrap, evaluate
from calgrid.metrics.intervals import resample_weights, resampled
from calgrid.plan.plan import Plan
from calgrid.statistics import paired_bootstrap, summarise
from calgrid.study.slow_checks import check_plugins
from calgrid.study.study import Study

pytestmark = pytest.mark.usefixtures("without_plugins")
#: mean confidence minus accuracy, which may be negative
GAP = '''
import numpy as np
from calgrid.components.registry import register


@register(source="a paper", lower_is_better=False, unit="number")
def gap(probs, labels, n_bins=15):
    """Mean confidence minus accuracy."""
    return float(np.mean(probs.max(axis=1) - (probs.argmax(axis=1) == labels)))
'''
PROBS = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.6, 0.4]])
LABELS = np.array([0, 1, 1, 0])


NUMBERS = itertools.count()


@pytest.fixture
def plugin(tmp_path):
    """Folder with a name that no other test has, as imported modules stay."""
    return tmp_path / f"own_metrics_{next(NUMBERS)}"


@pytest.fixture
def write(plugin):
    """Write a metric into the plugin, and use it."""

    def write(text=GAP, metric="gap"):
        file = plugin / "metrics" / f"{metric}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        plugins.use([plugin])
        return file

    return write


def test_a_function_with_a_register_is_a_metric(write):
    write()
    gap = find_metric("gap")
    assert metric_names() == [*METRICS, "gap"]
    assert gap.summary == "Mean confidence minus accuracy."
    assert (gap.source, gap.kind) == ("a paper", "labelled")
    assert (gap.lower_is_better, gap.unit, gap.interval) == (False, "number", "percentile")
    assert gap.bounds == (-np.inf, np.inf)
    values = evaluate(PROBS, LABELS, further=plugin_metrics(["gap"]))
    assert list(values)[-1] == "gap"
    assert values["gap"] == pytest.approx(0.75 - 0.75)
    assert evaluate(PROBS[:2], LABELS[:2], further=plugin_metrics(["ece", "gap"]))[
        "gap"
    ] == pytest.approx(0.85 - 0.5)


def test_its_interval_is_that_of_the_first_200_resamples(write):
    write()
    rng = np.random.default_rng(1)
    probs, labels = rng.dirichlet(np.ones(3), 50), rng.integers(0, 3, 50)
    signed = probs.max(axis=1) - (probs.argmax(axis=1) == labels)
    drawn = np.concatenate([weights @ signed / 50 for weights in resample_weights(50, 300, 5)])[
        :200
    ]
    options = {"n_resamples": 300, "seed": 5}
    assert resampled(probs, labels, **options, further=plugin_metrics(["gap"])).drawn[
        "gap"
    ] == pytest.approx(drawn)
    found = bootstrap(probs, labels, **options, further=plugin_metrics(["gap"]))
    assert found["gap"] == pytest.approx(np.quantile(drawn, [0.025, 0.975], method="weibull"))
    np.testing.assert_array_equal(
        list(found.values())[:-1], list(bootstrap(probs, labels, **options).values())
    )


def test_without_an_interval_its_function_is_called_once():
    calls = []
    mine = Metric(
        "mine", lambda *_: calls.append(1) or 0.5, "", "", True, "labelled", interval="none"
    )
    assert np.isnan(bootstrap(PROBS, LABELS, n_resamples=50, further=[mine])["mine"]).all()
    assert calls == []
    assert evaluate(PROBS, LABELS, further=[mine])["mine"] == 0.5


def test_calibrators_and_methods_are_compared_by_it(write):
    write()
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    logits = rng.normal(size=(300, 3))
    logits[np.arange(300), labels] += 1
    ranking, _ = rank_calibrators(
        4 * logits, labels, candidates=["ts", "none"], rank_by="gap", n_resamples=50
    )
    assert [entry.id for entry in ranking] == ["none", "ts"]  # the larger gap, as higher is better
    assert ranking[0].difference[1] > 0
    runs = {"a": [PROBS], "b": [PROBS[:, ::-1]]}
    row = paired_bootstrap(runs, LABELS, metrics=["gap"], n_resamples=20, of_runs=True).iloc[0]
    assert row["difference"] == pytest.approx(0.25 - 0.75)
    assert row["verdict"] in ("worse", "tie")  # higher is better


def test_means_over_seeds_may_be_negative_and_are_ranked_by_its_direction(write):
    write()
    key = {"protocol": "p", "dataset": "d", "backbone": "b", "checkpoint": "last"}
    key |= {"calibrator": "none", "fit_on": "val", "fit_seed": 0, "split": "test", "shift": ""}
    columns = {"method": ["ce", "ce", "ls", "ls"], "seed": [0, 1, 0, 1]}
    rows = pd.DataFrame(columns).assign(**key, severity=0, metric="gap")
    rows["value"] = np.array([-0.3, -0.1, 0.1, 0.3])
    rows = rows.assign(ci_low=rows["value"] - 0.1, ci_high=rows["value"] + 0.1)
    found = summarise(rows).set_index("method")
    assert found["rank"].to_dict() == {"ce": 2.0, "ls": 1.0}
    half = (
        12.706 * np.std([-0.3, -0.1], ddof=1) / np.sqrt(2)
    )  # Student's t with one degree of freedom
    assert found.loc["ce", ["ci_low", "ci_high"]].tolist() == pytest.approx(
        [-0.2 - half, -0.2 + half], rel=1e-3
    )


@pytest.mark.parametrize(
    ("change", "said"),
    cases(
        """
'labels, n_bins=15': labels
    gap must take (probs, labels, n_bins), got (probs, labels).
n_bins=15: n_bins, *, power
    must take (probs, labels, n_bins), got (probs, labels, n_bins, *, power).
Mean confidence minus accuracy.: ''
    gap needs a docstring, whose first line says what
'"number"': '"percent"'
    the fact unit must be one of ['fraction', 'square', 'nats', 'score', 'number'], got
', unit="number"': ''
    @register of a metric needs the fact unit (explained in calgrid/metrics/table.py).
unit=: units=
    metrics/gap.py: @register: did you mean 'unit'?
'@register': '@registered'
    must hold exactly one function with @register, or several with an id each, found 0.
def gap(: def gap((
    line 7, is not valid Python
"""
    ),
)
def test_a_file_without_a_metric_is_named_and_harms_no_other(write, plugin, refuses, change, said):
    write(GAP.replace("gap(", "other("), "other")
    ((old, new),) = change.items()
    write(GAP.replace(old, new, 1))
    for read in (lambda: plugin_metrics(["gap"]), lambda: check_metric("gap", [])):
        with refuses(ConfigError, f"{plugin.name}/metrics/gap.py", *said):
            read()
    assert [metric.id for metric in plugin_metrics(["other"])] == ["other"]
    assert evaluate(PROBS, LABELS, further=plugin_metrics(["other"]))["other"] == pytest.approx(0)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("return probs", "gap must return a float, got ndarray."),
        ("return None", "gap must return a float, got NoneType."),
        ("return probs[1000, 0]", "line 9, fails on probabilities of shape (200, 7) (IndexError: "),
        ("probs.sort()", "line 9, fails on probabilities of shape (200, 7) (ValueError: "),
        ("return 1.5", "gap is 1.5 for random predictions, but a fraction lies in [0, 1]"),
    ],
)
def test_what_it_returns_is_looked_at_first(write, plugin, refuses, line, said):
    write(GAP.replace("number", "fraction").split("    return")[0] + f"    {line}\n")
    with refuses(ConfigError, f"{plugin.name}/metrics/gap.py", said):
        check_metric("gap", [7])


def test_a_study_looks_at_its_metrics_first(write, plugin, make_config, home, refuses):
    write("import no_such_module" + GAP)
    said = "/metrics/gap.py, line 1, cannot be imported (ModuleNotFoundError: "
    with refuses(ConfigError, said):
        check_metric("gap", [])
    config = make_config(plugins=[str(plugin)], statistics={"metrics": ["gap"]})
    with refuses(ConfigError, said):
        check_plugins(Study(config, home))
    check_plugins(Study({**config, "statistics": {}}, home))


def test_names_and_facts_are_those_of_the_table_of_calgrid(write, refuses):
    assert set(FACTS["unit"]) == set(typing.get_args(typing.get_type_hints(Metric)["unit"]))
    assert set(FACTS["interval"]) < set(typing.get_args(typing.get_type_hints(Metric)["interval"]))
    write(metric="ece")
    with refuses(ConfigError, "/metrics/ece.py: 'ece' is a metric of calgrid; choose another"):
        check_metric("ece", [])
    assert metric_names() == list(METRICS)
    assert find_metric("ece") is METRICS["ece"]


def test_a_study_asks_for_metrics_of_plugins_alone(write, make_config, home, refuses):
    folder = str(write().parents[1])
    with refuses(ConfigError, "of a plugin 'gapp' in statistics.metrics: did you mean 'gap'?"):
        Study(make_config(plugins=[folder], statistics={"metrics": ["gapp"]}), home)
    with refuses(ConfigError, "of a plugin 'ece' in statistics.metrics: valid: gap."):
        Study(make_config(plugins=[folder], statistics={"metrics": ["ece"]}), home)


def test_an_edit_scores_again_and_trains_nothing(write, make_config, home, monkeypatch):
    known, read = {}, fingerprint._read.__wrapped__

    def read_once(module):
        content = plugins.locate(module).read_bytes()
        if (module, content) not in known:
            known[module, content] = read(module)
        return known[module, content]

    monkeypatch.setattr(fingerprint, "_read", read_once)

    def fingerprints(**statistics):
        plan = Plan(Study(make_config(plugins=[str(file.parents[1])], statistics=statistics), home))
        (key, *_) = plan.study.runs
        found = {name: getattr(plan, name)(key).fingerprint for name in ("train", "calibrate")}
        return found | {name: plan.stage(name).fingerprint for name in ("aggregate", "report")}

    def changed(before, after):
        return {name for name in before if before[name] != after[name]}

    file = write()
    without, named = fingerprints(), fingerprints(metrics=["gap"])
    scored = {"calibrate", "aggregate", "report"}
    assert changed(without, named) == scored
    file.write_text(GAP.replace("np.mean", "np.median").replace("minus accuracy", "less accuracy"))
    assert changed(named, fingerprints(metrics=["gap"])) == scored
