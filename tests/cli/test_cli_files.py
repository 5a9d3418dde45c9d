"""``calgrid calibrate`` and ``calgrid metrics``: the numbers of the Python interface."""

import json
import re
import shlex

import numpy as np
import pytest
from tests.metrics.cases import softmax
from tests.mistakes import cases

from calgrid.calibrators import build_calibrator, load_calibrator
from calgrid.components import plugins
from calgrid.metrics import bootstrap, evaluate, evaluate_soft
from calgrid.storage.logits import read_logits, write_logits

FAST = ("--bootstrap", 0)


def table(text):
    """Printed comparison as {metric: (before, after)}, without the sentences above and below it."""
    rows = [line.split() for line in text.partition("\n\n")[0].splitlines()[2:]]
    return {
        row[0]: [float(cell) for cell in row[1:] if re.fullmatch(r"[0-9.e+-]+", cell)]
        for row in rows
    }


@pytest.mark.parametrize("kind", ["parquet", "probabilities"])
def test_calibrate_gives_what_the_python_interface_gives(calibrated, data, tmp_path, kind):
    out = tmp_path / "calibrated.parquet"
    stated = ("--kind", "probabilities" if kind == "probabilities" else "logits")
    calibrated("--calibrator", "ts", "--out", out, *stated, kind=kind)
    expected = build_calibrator("ts").fit(data.val, data.val_labels).predict_proba(data.test)
    written = read_logits(out)
    tolerance = 1e-5 if kind == "probabilities" else 1e-6
    assert np.exp(written.logits.astype(np.float64)) == pytest.approx(expected, abs=tolerance)
    assert written.label.tolist() == data.test_labels.tolist()
    assert written.metadata["calibrator"] == "ts"
    assert written.metadata["n_classes"] == 4


def test_the_printed_comparison_is_before_and_after_with_intervals_where_there_are_any(
    calibrated, data
):
    done = calibrated("--calibrator", "ts")
    said, names, *_ = done.out.splitlines()
    assert names.split() == ["none", "ts"]
    calibrated_test = build_calibrator("ts").fit(data.val, data.val_labels).predict_proba(data.test)
    before = evaluate(softmax(data.test), data.test_labels)
    after = evaluate(calibrated_test, data.test_labels)
    right = f"right {100 * before['accuracy']:.1f} %"
    before_says = f"says {100 * softmax(data.test).max(axis=1).mean():.1f} %"
    after_says = f"says {100 * calibrated_test.max(axis=1).mean():.1f} %"
    assert said == f"before: {before_says}, {right}; after ts: {after_says}, {right}"
    shown = table(done.out)
    assert {"nll", "brier", "accuracy", "ece", "ece_debiased", "ece_null"} <= shown.keys()
    for name, (one, two) in shown.items():
        assert one == pytest.approx(before[name], abs=6e-6)
        assert two == pytest.approx(after[name], abs=6e-6)
    assert shown["nll"][1] < shown["nll"][0]
    assert shown["accuracy"][0] == shown["accuracy"][1]
    text = calibrated("--calibrator", "ts", "--bootstrap", 50).out
    lines = {line.split()[0]: line for line in text.splitlines()[2:] if line}
    assert lines["nll"].count("[") == 2
    assert lines["ece_null"].count("[") == 0
    first = text.splitlines()[0]
    assert first.startswith("ts is better than no calibration on ")
    assert "Accuracy" not in first
    ends = [f"{100 * each['ece_debiased']:.2f} %" for each in (before, after)]
    assert f"The calibration error is better: debiased ECE {' to '.join(ends)}." in first
    changes = calibrated("--calibrator", "vs", "--bootstrap", 50).out.splitlines()[0]
    assert re.search(r"\. Accuracy: \d\d\.\d\d % to \d\d\.\d\d %\. The cal", changes)


def test_a_saved_calibrator_gives_the_same_bytes(calgrid, calibrated, files, fails, tmp_path):
    fitted, one, two = (
        tmp_path / name for name in ("ts.safetensors", "one.parquet", "two.parquet")
    )
    first = calibrated("--calibrator", "ts", "--save", fitted, "--out", one)
    load = ("calibrate", "--load", fitted, "--apply", files()[1], *FAST)
    second, named = calgrid(*load, "--out", two), calgrid(*load, "--calibrator", "ts")
    assert first.out == second.out == named.out
    assert one.read_bytes() == two.read_bytes()
    fails(*load, "--calibrator", "smart", parts=["ts.safetensors is a fitted 'ts', not 'smart'"])
    fails(*load, "--set", "a=1", parts=["--set has no effect on a saved calibrator"])


def test_hyper_parameters_and_the_seed(calibrated, data, tmp_path):
    out = tmp_path / "out.parquet"
    options = ("--set", "max_epochs=3", "--set", "sigma=2", "--seed", 7)
    calibrated("--calibrator", "smart", *options, "--out", out)
    smart = build_calibrator("smart", max_epochs=3, sigma=2, seed=7).fit(data.val, data.val_labels)
    expected = smart.predict_proba(data.test)
    assert np.exp(read_logits(out).logits.astype(np.float64)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.usefixtures("without_plugins")
def test_metrics_of_plugins_are_printed_too_and_broken_ones_named(
    calgrid, files, data, tmp_path, monkeypatch
):
    folder = tmp_path / "own_in_files"
    faults = {
        "mine": ("", ""),
        "fails": ("is_wrong =", "wrong ="),
        "unread": ("lower_is_better=True,", ""),
    }
    for name, fault in faults.items():
        calgrid("new", "metric", name, "--into", folder)
        file = folder / f"metrics/{name}.py"
        file.write_text(file.read_text().replace(*fault))
    monkeypatch.setenv("CALGRID_PLUGINS", str(folder))
    plugins.forget()
    _, test = files()
    done = calgrid("metrics", test, "--json", *FAST)
    probs = softmax(data.test)
    wrong = (probs.argmax(axis=1) != data.test_labels) & (probs.max(axis=1) >= 0.9)
    assert json.loads(done.out)["mine"]["value"] == pytest.approx(wrong.mean())
    assert not {"fails", "unread"} & set(json.loads(done.out))
    unread, fails = done.err.splitlines()
    assert unread.startswith(
        "Warning: own_in_files/metrics/unread.py: @register of a metric needs the fact lo"
    )
    lines = (folder / "metrics/fails.py").read_text().splitlines()
    (line,) = (number for number, text in enumerate(lines, start=1) if "is_wrong &" in text)
    where = f"own_in_files/metrics/fails.py, line {line}"
    assert fails.startswith(f"Warning: {where}, fails on probabilities of shape")


def test_metrics_are_those_of_the_python_interface(succeeds, files, data):
    _, test = files()
    done = succeeds("metrics", test, "--json", "--bootstrap", 50, "--bins", 10)
    shown = json.loads(done.out, parse_constant=pytest.fail)  # NaN is no JSON
    probabilities = softmax(data.test)
    values = evaluate(probabilities, data.test_labels, n_bins=10)
    intervals = bootstrap(probabilities, data.test_labels, n_resamples=50, n_bins=10)
    assert shown.pop("warnings") == []
    assert shown.keys() == values.keys()
    for name, cell in shown.items():
        assert cell["value"] == pytest.approx(values[name], abs=1e-6), name
        for bound, expected in zip(("ci_low", "ci_high"), intervals[name], strict=True):
            if np.isnan(expected):
                assert cell[bound] is None
            else:
                assert cell[bound] == pytest.approx(expected, abs=1e-5), name


def test_labels_of_their_own_and_names_of_arrays_and_classes_reach_all_commands(
    calgrid, data, tmp_path
):
    names = np.array(["ant", "bee", "cat", "dog"])
    for role in ("val", "test"):
        np.savez(tmp_path / f"{role}.npz", scores=getattr(data, role))
        np.savez(tmp_path / f"{role}_y.npz", truth=names[getattr(data, f"{role}_labels")])
    names = ("val", "val_y", "test", "test_y")
    val, val_y, test, test_y = (tmp_path / f"{name}.npz" for name in names)
    how = ("--values-key", "scores", "--label-key", "truth", "--bootstrap", 10)
    how += ("--classes", "ant,bee,cat,dog")
    expected = evaluate(softmax(data.test), data.test_labels)["nll"]
    shown = json.loads(calgrid("metrics", test, "--labels", test_y, "--json", *how).out)
    assert shown["nll"]["value"] == pytest.approx(expected)
    both = ("--fit", val, "--fit-labels", val_y, "--apply", test, "--apply-labels", test_y)
    done = calgrid("calibrate", "--calibrator", "ts", *both, *how)
    assert table(done.out)["nll"][0] == pytest.approx(expected, abs=6e-6), done.err
    same = ("compare", f"a={test}", f"b={test}", "--labels", test_y)
    done = calgrid(*same, "--metrics", "nll", *how)
    assert re.search(r"^nll \(nats\) +0\.0000 ", done.out, re.MULTILINE), done.err


def test_metrics_for_people(calgrid, files, data):
    _, test = files()
    done = calgrid("metrics", test, *FAST)
    lines = done.out.splitlines()
    confidence = softmax(data.test).max(axis=1).mean()
    right = (data.test.argmax(axis=1) == data.test_labels).mean()
    said = f"says {100 * confidence:.1f} %, right {100 * right:.1f} %"
    assert lines[0] == f"300 rows, 4 classes: {said}"
    accuracy = next(line for line in lines if line.startswith("accuracy"))
    assert float(accuracy.split()[1]) == pytest.approx(right, abs=1e-5)
    assert len(lines) == 1 + len(evaluate(softmax(data.test), data.test_labels))


def test_metrics_of_a_file_that_knows_the_distribution(calgrid, succeeds, files, data, tmp_path):
    val, test = files()
    known = read_logits(test)
    known.distribution = softmax(data.test / 3).astype(np.float32)
    write_logits(tmp_path / "known.parquet", known)
    plain, soft = (
        json.loads(calgrid("metrics", path, "--json", *FAST).out)
        for path in (test, tmp_path / "known.parquet")
    )
    expected = evaluate_soft(softmax(data.test), known.distribution)
    assert {name: soft[name]["value"] for name in soft.keys() - plain.keys()} == pytest.approx(
        expected, abs=1e-6
    )
    assert {name: soft[name] for name in plain} == plain
    out = tmp_path / "calibrated.parquet"
    fit = ("--calibrator", "ts", "--fit", val, "--apply", tmp_path / "known.parquet")
    succeeds("calibrate", *fit, "--out", out, *FAST)
    assert np.array_equal(read_logits(out).distribution, known.distribution)


class TestMistakes:
    @pytest.fixture
    def folder(self, tmp_path, data):
        """Bad files, named by what is wrong with them."""
        nan = data.test.copy()
        nan[5, 1] = np.nan
        bad = {
            "nan": {"logits": nan, "label": data.test_labels},
            "no_labels": {"logits": data.test},
            "three_classes": {"logits": data.test[:, :3], "label": data.test_labels % 3},
        }
        for name, arrays in bad.items():
            np.savez(tmp_path / f"{name}.npz", **arrays)
        return tmp_path

    @pytest.mark.parametrize(
        ("role", "name"),
        [
            ("--fit", "nan.npz"),
            ("--fit", "no_labels.npz"),
            ("--apply", "nan.npz"),
            ("--apply", "absent.npz"),
        ],
    )
    def test_a_bad_file_writes_nothing(self, folder, pair, fails, role, name):
        out, fitted = folder / "out.parquet", folder / "fitted.safetensors"
        given = ("--calibrator", "ts", role, folder / name, "--out", out, "--save", fitted)
        fails(*pair(), *given, parts=[name])
        assert not out.exists()
        assert not fitted.exists()

    @pytest.mark.parametrize(
        ("options", "parts"),
        cases(
            """
--calibrator ' ,'
    Give --calibrator
--calibrator tss
    Unknown calibrator 'tss' in --calibrator ... did you mean 'ts'?
--calibrator smart --set sgma=1
    'sgma' in --set ... did you mean 'sigma'?
--calibrator smart --set sigma=wide
    --set: sigma must be a number, got 'wide'
--calibrator smart --set sigma
    --set sigma: write NAME=VALUE
--calibrator smart --set sigma=[1
    --set sigma=[1
--calibrator smart --set sigma=-1
    sigma
--calibrator ts --set id=3
    'id' in --set
--calibrator ts --bins 0
    n_bins
--calibrator ts --load x.safetensors
    Give either --fit ... or --load
--calibrator ts --out out.npz
    --out out.npz ... .parquet or .csv
--calibrator ts --apply three_classes.npz
    three_classes.npz has 3 classes, but ... val.parquet has 4
--calibrator ts --rank-by nll
    --rank-by needs several calibrators
--calibrator ts,iso --set a=1
    --set applies to a single calibrator
--calibrator ts,tss
    Unknown calibrator 'tss' ... --calibrator
""",
            shlex.split,
        ),
    )
    def test_wrong_options_write_nothing(self, folder, pair, fails, monkeypatch, options, parts):
        monkeypatch.chdir(folder)
        before = set(folder.iterdir())
        fails(*pair(), "--out", "out.parquet", *options, parts=parts)
        written = {path.name for path in set(folder.iterdir()) - before}
        assert written <= {"val.parquet", "test.parquet"}

    def test_a_saved_calibrator_that_is_none(self, files, fails, tmp_path):
        _, test = files()
        (tmp_path / "x.safetensors").write_bytes(b"nothing")
        for name, part in (("x", "is damaged"), ("y", "does not exist")):
            load = ("calibrate", "--load", tmp_path / f"{name}.safetensors")
            fails(*load, "--apply", test, *FAST, parts=[part])


class TestRanking:
    """``--calibrator all`` or a list: cross-validation on the fit file, the best on the other."""

    def test_the_best_of_a_list_is_applied(self, calibrated, tmp_path):
        out, saved = tmp_path / "out.parquet", tmp_path / "best.safetensors"
        to = ("--out", out, "--save", saved)
        done = calibrated("--calibrator", "none,ts", *to, "--bootstrap", 50)
        ranked = [line.split() for line in done.out.splitlines() if re.match(r" +\d+  ", line)]
        assert [row[:2] for row in ranked] == [["1", "ts"], ["2", "none"]]
        assert "Ranked by nll in 5-fold cross-validation on the 300 rows" in done.out
        assert "changed: share of rows whose predicted class changes; s/fit:" in done.out
        assert read_logits(out).metadata["calibrator"] == "ts"
        assert load_calibrator(saved).id == "ts"

    def test_another_metric_may_rank_and_json_says_all(self, calgrid, files, fails):
        val, test = files()
        ranked = ("calibrate", "--calibrator", "ts,hb,none", "--fit", val, "--json")
        ranked += ("--bootstrap", 20)
        found = {}
        for metric in ("nll", "accuracy"):
            done = calgrid(*ranked, "--rank-by", metric)
            entries = json.loads(done.out, parse_constant=pytest.fail)["ranking"]
            values = [entry["metrics"][metric]["value"] for entry in entries]
            assert values == sorted(values, reverse=metric == "accuracy")
            of_ts = next(e["metrics"][metric]["value"] for e in entries if e["calibrator"] == "ts")
            assert [entry["difference"]["value"] for entry in entries] == pytest.approx(
                np.subtract(values, of_ts)
            )
            found[metric] = [entry["calibrator"] for entry in entries]
        assert found["nll"][0] == "ts"
        applied = json.loads(calgrid(*ranked, "--rank-by", "accuracy", "--apply", test).out)
        assert applied["calibrator"] == applied["choice"] == applied["reference"] == "ts"
        assert applied["metrics"].keys() == {"none", applied["calibrator"]}
        fails(*ranked, "--rank-by", "ece_null", parts=["'ece_null' in rank_by does not rank"])

    def test_calibrators_that_may_change_classes_are_left_out(self, calgrid, files, fails):
        val, _ = files()
        ranked = ("calibrate", "--fit", val, "--keeps-classes", *FAST)
        done = calgrid(*ranked, "--calibrator", "ts,vs,iso")
        assert "Left out: vs, iso (may change predicted classes)." in done.out
        assert re.match(r"Use ts \(nll \d\.\d+\), the best\.\n", done.out)
        fails(*ranked, "--calibrator", "ts", "--save", "x", parts=["needs several calibrators"])
        fails("calibrate", "--fit", val, "--calibrator", "ts", parts=["Give --apply"])

    def test_a_fit_that_did_not_converge_is_marked(self, calgrid, files, monkeypatch):
        monkeypatch.setattr("calgrid.calibrators._linear.MAX_STEPS", 1)
        val, _ = files()
        ranked = ("calibrate", "--calibrator", "ts,vs", "--fit", val, "--folds", 2, *FAST)
        done = calgrid(*ranked)
        assert re.search(r"^ +\d  vs\* ", done.out, re.MULTILINE)
        assert re.search(r"^ +\d  ts ", done.out, re.MULTILINE)
        assert "* a fit stopped before it converged; its scores may be better." in done.out
        entries = json.loads(calgrid(*ranked, "--json").out)["ranking"]
        converged = {each["calibrator"]: each["converged"] for each in entries}
        assert converged == {"ts": True, "vs": False}


def test_a_calibrator_far_worse_than_none_is_warned_of(succeeds, files, data, tmp_path):
    wrong = tmp_path / "val.npz"
    # every prediction right: T at its lower bound
    np.savez(wrong, logits=data.val, label=data.val.argmax(axis=1))
    _, test = files()
    done = succeeds("calibrate", "--calibrator", "ts", "--fit", wrong, "--apply", test, *FAST)
    assert "Warning: ts: The temperature is the smallest that is allowed" in done.err
    assert "Warning: ts has" in done.err
    assert "times the NLL of the uncalibrated logits" in done.err


@pytest.mark.parametrize(("rows", "are"), [(1, "1 row"), (19, "19 rows")])
def test_few_rows_are_said_and_too_few_have_no_verdict(calgrid, files, data, tmp_path, rows, are):
    few = tmp_path / "few.npz"
    np.savez(few, logits=data.test[:rows], label=data.test_labels[:rows])
    commands = {
        "metrics": [few],
        "reliability": [few],
        "calibrate": ["--calibrator", "ts", "--fit", files()[0], "--apply", few],
        "compare": [f"a={few}", f"b={few}", "--networks"],
    }
    quick = ("--bootstrap", 20)
    done = {name: calgrid(name, *arguments, *quick) for name, arguments in commands.items()}
    for each in done.values():
        assert f"few.npz has {are}, too few to say how well a model is calibrated" in each.err
    none = f"ts cannot be compared with no calibration on {few}, which has too few rows ({rows}; "
    assert (none in done["calibrate"].out) == (rows < 4)
    assert ("no verdict: a test needs at least 4 samples." in done["compare"].out) == (rows < 4)


def test_control_characters_in_a_file_name_are_shown_and_not_obeyed(fails, tmp_path):
    fails("metrics", tmp_path / "a\x1b[2J\u202e.npz", parts=[r"a\x1b[2J\u202e.npz does not exist"])
