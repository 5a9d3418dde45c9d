"""Job calibrate: every number can be recomputed from the logits, and nothing is fitted twice."""

import shutil
import sys
import weakref
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logsumexp
from tests.jobs.small import CE, HOME, calibrate, predicted, small_study, trained, values

from calgrid.calibrators import build_calibrator
from calgrid.errors import StateError
from calgrid.jobs import calibrate as calibrate_job
from calgrid.jobs import predict as predict_job
from calgrid.jobs.conformal import halves
from calgrid.jobs.diagnostics import class_scores
from calgrid.jobs.scoring import Scorer, drawn_rows, output_of
from calgrid.metrics import auroc, check_probabilities, evaluate
from calgrid.metrics.conformal import conformal_quantile
from calgrid.metrics.intervals import resampled_means
from calgrid.plan.plan import Plan
from calgrid.storage import provenance
from calgrid.storage.atomic import read_json
from calgrid.storage.logits import Logits, read_logits, write_logits
from calgrid.storage.records import FILES, listed, read_record, write_record
from calgrid.storage.schema import METRIC_COLUMNS
from calgrid.storage.tables import read_frame
from calgrid.study.study import Study
from calgrid.training.val_rows import rows_by_purpose

SPLITS = ("val", "test")


@pytest.fixture(scope="module")
def part(plan, run, tmp_path_factory):
    out = tmp_path_factory.mktemp("part") / "calibrate"
    calibrate(plan.calibrate(CE).spec, run / "predict", out)
    return out


@pytest.fixture(scope="module")
def metrics(part):
    return read_frame(part / "metrics.parquet")


def copied(run, folder):
    """A copy of the logits of a run."""
    return shutil.copytree(run / "predict", folder / "predict")


def relabel(run, name, labels):
    """Change the labels of a logits file and record it."""
    data = read_logits(run / name)
    write_logits(run / name, replace(data, label=labels(data)))
    record = read_record(run / "predict.json")
    write_record(run / "predict.json", {**record, FILES: listed(run, record[FILES])})


def fitted_files(part):
    """Fits beside a calibration, and when they were written."""
    return {path: path.stat().st_mtime_ns for path in part.parent.glob("fits/**/*.safetensors")}


def test_columns_and_types_follow_the_contract(metrics):
    assert list(metrics.columns) == list(METRIC_COLUMNS)
    assert metrics["value"].notna().all()
    assert metrics["severity"].dtype == "int8"
    assert set(metrics["split"]) == {"val", "test", "shift", "ood"}
    assert set(metrics["checkpoint"]) == {"best", "last"}
    # rows that fit a calibrator never score it
    assert set(metrics.loc[metrics["split"] == "val", "calibrator"]) == {"none"}


def test_under_disjoint_validation_calibrators_are_fitted_on_a_third_and_scored_on_another(
    plan, run, tmp_path
):
    spec = {**plan.calibrate(CE).spec, "checkpoints": ["last"], "families": []}
    calibrate({**spec, "disjoint_validation": True}, run / "predict", tmp_path / "part")
    metrics = read_frame(tmp_path / "part" / "metrics.parquet")
    val, test = (read_logits(run / f"predict/logits/last/{split}.parquet") for split in SPLITS)
    parts = rows_by_purpose(val.label, disjoint=True)
    fit, choice = val.rows(parts["fit"]), val.rows(parts["choice"])
    for calibrator in ("none", "ts"):
        fitted = build_calibrator(calibrator).fit(fit.logits, fit.label)
        rows = metrics[metrics["calibrator"] == calibrator]
        for split, scored in (("test", test), ("val", choice)):
            found = rows[rows["split"] == split]
            probs = fitted.predict_proba(scored.logits)
            expected = evaluate(probs, scored.label, costly=split == "test")
            assert values(found) == pytest.approx(expected)
            assert (found["n_samples"] == len(scored)).all()


@pytest.mark.parametrize("calibrator", ["none", "ts", "iso", "smart"])
def test_values_are_recomputed_from_the_logits_of_the_split_and_of_each_shift(
    calibrator, metrics, run
):
    val, test, shifted = (
        read_logits(run / f"predict/logits/last/{name}.parquet")
        for name in ("val", "test", "digits_c")
    )
    fitted = build_calibrator(calibrator).fit(val.logits, val.label)
    rows = metrics.query(
        "checkpoint == 'last' and split in ('test', 'shift') and calibrator == @calibrator"
    )
    places = [
        (test, *test.conditions()[0]),
        *((shifted, *condition) for condition in shifted.conditions()[::3]),
    ]
    for data, shift, severity, index in places:
        probs = fitted.predict_proba(data.logits[index])
        expected = evaluate(probs, data.label[index], costly=data is test)
        found = rows[(rows["shift"] == shift) & (rows["severity"] == severity)]
        assert values(found) == pytest.approx(expected)
        assert (found["n_samples"] == len(index)).all()


def test_a_calibrator_far_worse_than_none_is_recorded(run, part, plan, tmp_path, capsys):
    """All validation labels agree with the network: temperature scaling makes it certain."""
    out = copied(run, tmp_path)
    name = "logits/last/val.parquet"
    relabel(out, name, lambda val: val.logits.argmax(axis=1).astype(np.int32))
    spec = {**plan.calibrate(CE).spec, "checkpoints": ["last"], "families": []}
    calibrate(spec, out, tmp_path / "part")
    warnings = read_json(tmp_path / "part" / "calibrate.json")["warnings"]
    assert any(
        warning.startswith("ts (seed 0, last checkpoint) has an NLL of") for warning in warnings
    )
    assert "Warning: ts (seed 0" in capsys.readouterr().err
    assert read_json(part / "calibrate.json")["warnings"] == []  # where calibrators help


def test_of_a_family_with_some_classes_only_the_logits_of_these_count(run, plan, tmp_path):
    """Restricted first, calibrators are fitted on the clean rows of the same classes."""
    out, classes = copied(run, tmp_path), np.array([1, 3, 7])
    name = "logits/last/digits_c.parquet"
    relabel(out, name, lambda shifted: classes[shifted.label % 3].astype(np.int32))
    spec = plan.calibrate(CE).spec
    assert spec["some_classes"] == []
    changes = {"families": ["digits_c"], "some_classes": ["digits_c"], "checkpoints": ["last"]}
    calibrate({**spec, **changes}, out, tmp_path / "part")
    found = read_frame(tmp_path / "part" / "metrics.parquet")
    val, test, shifted = (
        read_logits(out / f"logits/last/{name}.parquet") for name in ("val", "test", "digits_c")
    )
    shift, severity, index = shifted.conditions()[1]
    rows = np.isin(val.label, classes)
    for calibrator in ("none", "ts", "iso"):
        of_all = build_calibrator(calibrator).fit(val.logits, val.label)
        fitted = build_calibrator(calibrator).fit(
            val.logits[rows][:, classes], np.searchsorted(classes, val.label[rows])
        )
        probs = fitted.predict_proba(shifted.logits[index][:, classes])
        expected = evaluate(probs, np.searchsorted(classes, shifted.label[index]), costly=False)
        own = found[(found["calibrator"] == calibrator) & (found["shift"] == shift)]
        assert values(own[own["severity"] == severity]) == pytest.approx(expected)
        clean = evaluate(of_all.predict_proba(test.logits), test.label)
        on_test = found[(found["calibrator"] == calibrator) & (found["split"] == "test")]
        assert values(on_test) == pytest.approx(clean)


class TestSameShift:
    """A part of each shifted set fits, the rest scores."""

    @pytest.fixture(scope="class")
    @classmethod
    def same(cls, run, tmp_path_factory):
        study = small_study()
        study["grids"][0].update(
            fit_on=["val", "same_shift"], calibrator_seeds=[0, 1], calibrators=["none", "ts"]
        )
        out = tmp_path_factory.mktemp("same") / "part"
        spec = Plan(Study(study, HOME)).calibrate(CE).spec
        calibrate({**spec, "checkpoints": ["last"]}, run / "predict", out)
        return read_frame(out / "metrics.parquet")

    def test_every_corruption_is_fitted_and_scored_once_a_draw(self, same):
        rows = same.query("checkpoint == 'last' and metric == 'nll' and split == 'shift'")
        counts = rows.groupby(["fit_on", "calibrator", "fit_seed"]).size().to_dict()
        conditions = rows[["shift", "severity"]].drop_duplicates().shape[0]
        fits = [("same_shift", seed) for seed in (0, 1)] + [("val", 0)]
        assert counts == {
            (on, name, seed): conditions for on, seed in fits for name in ("none", "ts")
        }
        shares = rows.groupby("fit_on")["n_samples"].first()
        assert shares["same_shift"] == round(0.8 * shares["val"])

    def test_values_are_recomputed_from_disjoint_rows(self, same, run):
        shifted = read_logits(run / "predict/logits/last/digits_c.parquet")
        shift, severity, rows = shifted.conditions()[-1]
        fit, rest = drawn_rows(rows, 1, shift, severity)
        assert sorted([*fit, *rest]) == list(rows)
        fitted = build_calibrator("ts").fit(shifted.logits[fit], shifted.label[fit])
        probs = fitted.predict_proba(shifted.logits[rest])
        expected = evaluate(probs, shifted.label[rest], costly=False)
        found = same.query(
            "checkpoint == 'last' and calibrator == 'ts' and fit_on == 'same_shift' and fit_seed "
            "== 1 and shift == @shift and severity == @severity"
        )
        assert values(found) == pytest.approx(expected)

    def test_draws_differ_between_seeds_and_settings(self):
        places = ((0, "noise", 1), (1, "noise", 1), (0, "blur", 1), (0, "noise", 2))
        draws = {tuple(drawn_rows(np.arange(100, 200), *where)[0]) for where in places}
        assert list(map(len, draws)) == [20] * 4


class TestRedrawn:
    """A part of val and test together fits, the rest scores."""

    def test_values_are_those_of_a_fit_on_a_part_of_all_rows(self, run, tmp_path):
        spec = Plan(Study(small_study(), HOME)).calibrate(CE).spec
        spec = {**spec, "fit_on": ["val", "redrawn"], "draws": [3, 4], "families": []}
        spec["checkpoints"] = ["last"]
        calibrate(spec, run / "predict", tmp_path / "part")
        found = read_frame(tmp_path / "part" / "metrics.parquet").query(
            "checkpoint == 'last' and calibrator == 'ts' and fit_on == 'redrawn'"
        )
        both = [
            read_logits(run / f"predict/logits/last/{name}.parquet") for name in ("val", "test")
        ]
        logits, labels = (
            np.concatenate([getattr(split, name) for split in both]) for name in ("logits", "label")
        )
        expected = {}
        for draw in (3, 4):
            fit, rest = drawn_rows(np.arange(len(labels)), draw, "", 0)
            fitted = build_calibrator("ts").fit(logits[fit], labels[fit])
            probs = fitted.predict_proba(logits[rest])
            expected[draw] = evaluate(probs, labels[rest], costly=False)
            own = found[found["fit_seed"] == draw]
            assert values(own) == pytest.approx(expected[draw])
            assert set(own["split"]) == {"test"}
            assert set(own["n_samples"]) == {len(rest)}
        assert expected[3]["ece"] != expected[4]["ece"]


class TestParts:
    """The work goes from part to part: one is in memory, and its results survive a kill."""

    @pytest.fixture(scope="class")
    @classmethod
    def spec(cls):
        study = small_study()
        study["protocols"]["quick"].update(checkpoints=["last"], export_features="all")
        study["grids"][0] |= {
            "fit_on": ["val", "same_shift"],
            "methods": ["ce"],
            "calibrators": ["none", "ts", "fc"],
            "calibrator_seeds": [0],
            "shifts": ["digits_c"],
        }
        study["statistics"] = {"bootstrap": 0}
        return Plan(Study(study, HOME))

    @pytest.fixture(scope="class")
    @classmethod
    def parted(cls, spec, run, data, tmp_path_factory):
        """A run of which a family has row groups of two conditions."""
        out = tmp_path_factory.mktemp("parted")
        rows = len(read_logits(run / "predict/logits/last/test.parquet"))
        trained(spec, data, out)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(predict_job, "GROUP_ROWS", 2 * rows)
            predicted(spec, data, out, families=["digits_c"])
        return out

    @pytest.fixture(scope="class")
    @classmethod
    def undisturbed(cls, spec, parted, tmp_path_factory):
        out = tmp_path_factory.mktemp("undisturbed") / "part"
        calibrate(spec.calibrate(CE).spec, parted / "predict", out)
        return contents(out)

    def test_one_part_is_in_memory_at_a_time(
        self, spec, parted, undisturbed, tmp_path, monkeypatch
    ):
        alive, most = weakref.WeakSet(), Counter()

        class Held:  # data classes that compare cannot be in sets
            def __init__(self, rows):
                self.rows = rows

        def reading(path, *how):
            found = read_logits(path, *how)
            found.held = Held(len(found))
            alive.add(found.held)
            most[path.stem] = max(most[path.stem], len(found))
            most["together"] = max(most["together"], sum(each.rows for each in alive))
            return found

        monkeypatch.setattr(sys.modules[Scorer.__module__], "read_logits", reading)
        calibrate(spec.calibrate(CE).spec, parted / "predict", tmp_path / "part")
        assert most["digits_c"] == 2 * most["test"]
        assert most["together"] <= most["digits_c"] + most["val"]
        assert contents(tmp_path / "part") == undisturbed

    @pytest.mark.slow
    def test_a_killed_job_goes_on_to_the_same_bytes(
        self, spec, parted, undisturbed, tmp_path, monkeypatch
    ):
        scored, score = [], Scorer.score

        def killed(scorer, number):
            if len(scored) == 5:
                raise KeyboardInterrupt
            scored.append((scorer.chunk, number))
            return score(scorer, number)

        monkeypatch.setattr(sys.modules[Scorer.__module__], "KEPT_SECONDS", -1)
        monkeypatch.setattr(Scorer, "score", killed)
        with pytest.raises(KeyboardInterrupt):
            calibrate(spec.calibrate(CE).spec, parted / "predict", tmp_path / "part")
        assert not (tmp_path / "part").exists()
        kept = sorted(tmp_path.rglob("kept-*.json"))
        assert len(kept) == 5
        kept[0].write_text("{}")  # a damaged one is made again
        before, scored[:] = list(scored), []
        monkeypatch.setattr(
            Scorer, "score", lambda *given: scored.append(given[1]) or score(*given)
        )
        calibrate(spec.calibrate(CE).spec, parted / "predict", tmp_path / "part")
        chunks = read_json(tmp_path / "part" / "calibrate.json")["chunks"]
        assert len(scored) == len(chunks) - len(before) + 1
        assert contents(tmp_path / "part") == undisturbed
        assert not list(tmp_path.rglob("kept-*.json"))

    def test_what_was_kept_of_other_logits_is_not_taken(
        self, spec, parted, undisturbed, tmp_path, monkeypatch
    ):
        monkeypatch.setattr(sys.modules[Scorer.__module__], "KEPT_SECONDS", -1)
        monkeypatch.setattr(calibrate_job, "_high_nll", None)  # fails after all parts
        copy = copied(parted, tmp_path)
        relabel(copy, "logits/last/test.parquet", lambda test: test.label[::-1])
        with pytest.raises(TypeError):
            calibrate(spec.calibrate(CE).spec, copy, tmp_path / "part")
        monkeypatch.undo()
        calibrate(spec.calibrate(CE).spec, parted / "predict", tmp_path / "part")
        assert contents(tmp_path / "part") == undisturbed

    @pytest.mark.slow
    def test_several_processes_give_the_same_bytes(self, spec, parted, undisturbed, tmp_path):
        calibrate(spec.calibrate(CE).spec, parted / "predict", tmp_path / "part", threads=2)
        assert contents(tmp_path / "part") == undisturbed
        own, both = (
            provenance.peak_memory_mb(),
            read_record(tmp_path / "part/calibrate.json")["peak_memory_mb"],
        )
        assert both > own


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.parquet")}


def test_ood_rows_compare_test_with_the_ood_set(metrics, run):
    test, photos = (
        read_logits(run / f"predict/logits/last/{name}.parquet") for name in ("test", "ood/photos")
    )
    none = build_calibrator("none").fit(test.logits, test.label)
    expected = auroc(
        none.predict_proba(test.logits).max(1), none.predict_proba(photos.logits).max(1)
    )
    found = metrics.query(
        "checkpoint == 'last' and calibrator == 'none' and split == 'ood' and metric == 'auroc'"
    )
    assert found["value"].tolist() == pytest.approx([expected])
    assert found["shift"].tolist() == ["ood/photos"]


def test_intervals_on_test_and_ood_contain_the_value_of_proper_scores(metrics):
    rows = metrics[metrics["metric"].isin(["accuracy", "nll", "brier", "auroc"])]
    assert set(rows["split"]) == {"val", "test", "shift", "ood"}
    assert (rows["ci_low"] <= rows["value"]).all()
    assert (rows["value"] <= rows["ci_high"]).all()
    errors = metrics[metrics["metric"] == "ece"]
    assert errors.loc[errors["split"] == "shift", "ci_low"].isna().all()


def test_bins_and_margins_agree_with_the_metrics_and_the_logits(run, part, metrics):
    rows = metrics[
        (metrics["split"] == "test") & (metrics["fit_seed"] == metrics["fit_seed"].min())
    ]
    values = rows.set_index(["checkpoint", "calibrator", "metric"])["value"]
    all_bins = read_frame(part / "bins.parquet").query("n_bins == 15")
    assert set(all_bins["calibrator"]) == set(metrics["calibrator"])
    for key, bins in all_bins.groupby(["checkpoint", "calibrator"]):
        gaps = (bins["confidence"] - bins["correct"]).abs().sum() / bins["count"].sum()
        assert gaps == pytest.approx(values[(*key, "ece")])
    for checkpoint, images in read_frame(part / "margins.parquet").groupby("checkpoint"):
        test = images[images["split"] == "test"]
        assert test["correct"].mean() == pytest.approx(values[checkpoint, "smart", "accuracy"])
        top = np.sort(
            read_logits(run / f"predict/logits/{checkpoint}/test.parquet").logits.astype(np.float64)
        )[:, ::-1]
        solved = test["largest_logit"].notna().to_numpy()
        assert solved.sum() == min(1000, len(top))
        assert np.allclose(test["margin"], top[:, 0] - top[:, 1])
        assert np.allclose(test["largest_logit"][solved], top[solved, 0])
    fits = read_frame(part / "fits.parquet")
    assert set(fits.loc[fits["kept"], "calibrator"]) == {"none", "ts", "smart"}
    assert set(fits.loc[~fits["kept"], "calibrator"]) == {"smart"}


def test_saturated_logits_are_scored_by_their_logarithms(monkeypatch):
    monkeypatch.setattr(sys.modules[output_of.__module__], "PREDICTED_NUMBERS", 10)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 40)
    logits = (1000 * rng.normal(size=(40, 3))).astype(np.float32)
    bare = build_calibrator("none").fit(logits, labels)
    output = output_of(bare, Logits(np.arange(40), labels, logits))
    exact = logsumexp(logits.astype(float), axis=1) - logits[np.arange(40), labels]
    assert evaluate(output, labels)["nll"] == pytest.approx(exact.mean(), rel=1e-12)
    assert (output.probs == 0).any()


def test_scores_of_classes_by_hand():
    probs = np.array([[0.9, 0.1, 0], [0.3, 0.7, 0], [0.4, 0.6, 0], [0.2, 0.8, 0]])
    found = class_scores(check_probabilities(probs, [0, 0, 1, 1]), ["cat", "dog", "eel"])
    expected = {
        "count": [2, 2, 0],
        "sensitivity": [1 / 2, 1, np.nan],
        "specificity": [1, 1 / 2, 1],
        # of the four pairs the second cat has a lower probability than the first dog
        "auroc": [3 / 4, 3 / 4, np.nan],
        "predicted": [1, 3, 0],
        "precision": [1, 2 / 3, np.nan],
        "confidence": [0.9, 0.7, np.nan],
    }
    for column, known in expected.items():
        assert found[column].tolist() == pytest.approx(known, nan_ok=True), column
    assert found["name"].tolist() == ["cat", "dog", "eel"]


def test_another_calibration_of_the_run_fits_nothing_and_gives_the_same_bytes(plan, run, part):
    before, content = fitted_files(part), contents(part)
    assert before
    files = ("metrics", "resamples", "bins", "classes", "fits", "margins")
    assert {f"{name}.parquet" for name in files} == set(content)
    again = part.with_name("again")
    assert calibrate(plan.calibrate(CE).spec, run / "predict", again)
    assert not calibrate(plan.calibrate(CE).spec, run / "predict", again)
    assert fitted_files(part) == before
    assert contents(again) == content
    assert all(fit["cached"] for fit in read_json(again / "calibrate.json")["fits"])


def test_one_calibrator_more_refits_nothing_else(run, part):
    config = small_study(calibrators={"smart_wide": {"base": "smart", "sigma": 0.1}})
    config["grids"][0]["calibrators"] = ["none", "ts", "iso", "smart", "smart_wide"]
    before = fitted_files(part)
    spec = Plan(Study(config, HOME)).calibrate(CE).spec
    spec = {**spec, "families": [], "checkpoints": ["last"]}
    calibrate(spec, run / "predict", part.with_name("more"))
    after = fitted_files(part)
    assert {path: after[path] for path in before} == before
    assert {path.name.split("-seed")[0] for path in set(after) - set(before)} == {"smart_wide"}


def test_a_damaged_fit_and_that_of_another_checkpoint_are_made_again(plan, run, part, tmp_path):
    shutil.copytree(part.parent / "fits", tmp_path / "fits")
    best, last = sorted((tmp_path / "fits").rglob("ts-*.safetensors"))
    before = best.read_bytes(), last.read_bytes()
    last.write_bytes(before[0])
    best.write_bytes(before[0][:20])
    calibrate({**plan.calibrate(CE).spec, "families": []}, run / "predict", tmp_path / "calibrate")
    assert (best.read_bytes(), last.read_bytes()) == before
    assert (tmp_path / "calibrate/fits.parquet").read_bytes() == contents(part)["fits.parquet"]


def test_logits_that_are_of_another_fingerprint_or_truncated_are_refused(plan, run, tmp_path):
    spec, copy = plan.calibrate(CE).spec, copied(run, tmp_path)
    with pytest.raises(StateError, match="belongs to another configuration"):
        other = dict.fromkeys(spec["logits"], "0" * 16)
        calibrate({**spec, "logits": other}, copy, tmp_path / "part")
    path = copy / "logits/last/test.parquet"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(StateError, match=r"test\.parquet is damaged"):
        calibrate(spec, copy, tmp_path / "part")
    assert not (tmp_path / "part").exists()


def test_seeds_of_a_stochastic_calibrator_are_rows_of_their_own(run, tmp_path):
    config = small_study()
    config["grids"][0] |= {
        "calibrator_seeds": [0, 1, 2],
        "calibrators": ["ts", "smart"],
        "shifts": [],
    }
    spec = {**Plan(Study(config, HOME)).calibrate(CE).spec, "checkpoints": ["last"]}
    calibrate(spec, run / "predict", tmp_path / "part")
    rows = read_frame(tmp_path / "part/metrics.parquet").query("metric == 'nll'")
    assert rows.groupby("calibrator")["fit_seed"].apply(list).to_dict() == {
        "smart": [0, 1, 2],
        "ts": [0],
    }
    smart = rows.loc[rows["calibrator"] == "smart", "value"]
    assert np.unique(smart).size == 3


# resamples
# --------------------------------------------------------------------------------------------------


def test_all_calibrators_share_resamples_and_corruptions_are_averaged(run, part, metrics):
    found = read_frame(part / "resamples.parquet")
    keys = ["checkpoint", "calibrator", "fit_seed", "split", "shift", "severity"]
    shifts = metrics[(metrics["split"] == "shift") & (metrics["fit_on"] == "val")]
    severities = {*shifts["severity"], -1}
    clean = found[(found["checkpoint"] == "last") & (found["calibrator"] == "none")]
    assert set(clean["split"]) == {"val", "test", "shift"}  # too few resamples for ood
    assert set(clean.loc[clean["split"] == "shift", "severity"]) == severities
    assert not found.duplicated([*keys, "metric"]).any()
    test = read_logits(run / "predict/logits/last/test.parquet")
    probs = build_calibrator("none").fit(test.logits, test.label).predict_proba(test.logits)
    seed = small_study().get("statistics", {}).get("seed", 0)
    expected = resampled_means(probs, test.label, seed=seed)
    own = clean[(clean["split"] == "test") & (clean["fit_seed"] == clean["fit_seed"].min())]
    own = own.set_index("metric")
    for metric, drawn in expected.drawn.items():
        change = drawn - expected.values[metric]
        np.testing.assert_allclose(own.loc[metric, "draws"], change, atol=1e-6)
    pairs = own.loc["squared_ce", "pairs"]
    np.testing.assert_allclose(pairs, expected.noise["squared_ce"], atol=1e-6)
    assert len(own.loc["nll", "pairs"]) == 0


# conformal sets
# --------------------------------------------------------------------------------------------------


def test_sets_are_fitted_on_the_rows_that_no_calibrator_saw(run, part, tmp_path):
    assert not (part / "conformal.parquet").exists()
    config = small_study(statistics={"bootstrap": 50, "bins": 10, "conformal": ["thr", "raps"]})
    config["grids"][0] |= {"methods": ["ce"], "calibrators": ["none", "ts"], "seeds": [1]}
    spec = {**Plan(Study(config, HOME)).calibrate(CE).spec, "checkpoints": ["last"]}
    calibrate(spec, run / "predict", tmp_path / "part")
    found = read_frame(tmp_path / "part/conformal.parquet", fingerprint=spec["fingerprint"])
    names = ("calibrator", "conformal", "alpha", "metric")
    assert len(found.query("split == 'test'")) == 2 * 2 * 2 * 5
    assert not found.duplicated([*names, "split", "shift", "severity"]).any()

    val, test = (read_logits(run / f"predict/logits/last/{name}.parquet") for name in SPLITS)
    first, second = halves(len(val), spec["statistics"]["seed"])
    assert sorted([*first, *second]) == list(range(len(val)))
    calibrator = build_calibrator("ts").fit(val.logits[first], val.label[first])
    held = calibrator.predict_proba(val.logits[second])
    scores = (1 - held[np.arange(len(second)), val.label[second]])[round(0.3 * len(second)) :]
    threshold = conformal_quantile(scores, 0.1)
    probs = calibrator.predict_proba(test.logits)
    inside = 1 - probs <= threshold
    on_test = found.query("split == 'test' and calibrator == 'ts' and conformal == 'thr'")
    row = on_test[on_test["alpha"] == 0.1].set_index("metric")
    assert row["threshold"].unique() == pytest.approx(threshold)
    assert row.loc["set_size", "value"] == pytest.approx(inside.sum(axis=1).mean())
    coverage = inside[np.arange(len(test)), test.label].mean()
    assert row.loc["coverage", "value"] == pytest.approx(coverage)
    assert row.loc["coverage", "ci_low"] <= coverage <= row.loc["coverage", "ci_high"]
    # shifted images keep the thresholds, and have intervals at the highest severity
    shifted = found.query("split == 'shift' and calibrator == 'ts' and conformal == 'thr'")
    assert set(shifted["threshold"]) == set(on_test["threshold"])
    assert shifted.groupby(["shift", "severity"]).ngroups > 1
    severest = shifted["severity"] == shifted["severity"].max()
    assert shifted[~severest]["ci_low"].isna().all()
    for end, side in (("ci_low", "le"), ("ci_high", "ge")):
        known = shifted[severest & (shifted["metric"] == "coverage")]
        assert getattr(known[end], side)(known["value"]).all()
