"""Job aggregate on made-up results: all rows once, the same statistics for each condition as for
all, memory that is bounded.
"""

import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from calgrid import __version__
from calgrid.errors import DataError, StateError
from calgrid.jobs.aggregate import _collect_costs
from calgrid.jobs.aggregate import run as aggregate
from calgrid.statistics import summarise
from calgrid.storage.atomic import read_json, write_json
from calgrid.storage.publish import Call
from calgrid.storage.records import FILES, listed, write_record
from calgrid.storage.schema import (
    METRIC_COLUMNS,
    RESAMPLE_COLUMNS,
    SHIFT_SUMMARY_COLUMNS,
    STUDY_FILES,
)
from calgrid.storage.tables import read_frame, write_frame

KEY = ["protocol", "dataset", "backbone", "method", "seed"]
STATISTICS = {"baseline": "ce", "level": 0.95, "bins": 15, "bootstrap": 10, "seed": 0}
PLACES = [
    ("val", "", 0),
    ("test", "", 0),
    ("shift", "noise", 1),
    ("shift", "noise", 2),
    ("shift", "blur", 1),
]


def numbers(key):
    """Metrics of one run, drawn at random: smart has three seeds, the test split has intervals."""
    rng = np.random.default_rng([key[-1], len(key[2]), len(key[3])])
    fits = [("none", 0), ("ts", 0), ("smart", 0), ("smart", 1), ("smart", 2)]
    rows = [
        {
            **dict(zip(KEY, key, strict=True)),
            "checkpoint": "last",
            "calibrator": calibrator,
            "fit_on": "val",
            "fit_seed": fit_seed,
            "split": split,
            "shift": shift,
            "severity": severity,
            "metric": metric,
            "value": (value := rng.uniform()),
            "ci_low": value - 0.1 if split == "test" else np.nan,
            "ci_high": value + 0.1 if split == "test" else np.nan,
            "n_samples": 100,
            "fingerprint": f"run of {key[3]}",
        }
        for (calibrator, fit_seed), (split, shift, severity), metric in itertools.product(
            fits, PLACES, ("accuracy", "ece", "nll", "ece_null")
        )
    ]
    return pd.DataFrame(rows, columns=list(METRIC_COLUMNS)).astype(dict(METRIC_COLUMNS))


def record(device="cpu"):
    environment = {"device": device, "device_name": "x86_64", "threads": 1}
    return {
        "environment": environment,
        "seconds": 2.0,
        "peak_memory_mb": 300.5,
        "epochs": 3,
        "parameters": 10,
    }


def write_calibration(folder, rows, fingerprint, fits=()):
    write_frame(folder / "metrics.parquet", rows, {"fingerprint": fingerprint})
    write_calibration_record(folder, ["metrics.parquet"], fits)


def write_calibration_record(folder, files, fits=()):
    content = {"environment": {"scipy": "1.17.1"}, "fits": list(fits)}
    write_record(folder / "calibrate.json", {**content, FILES: listed(folder, files)})


def aggregated(manifest, study, threads=1):
    """Aggregate into the folder of a study."""
    aggregate(Call(manifest, record_of(study), threads=threads))


def record_of(study):
    return study / ".calgrid" / "aggregate-f.json"


def made_up(folder):
    """Manifest of eight trained runs and an external one; two blocks of a grid visit the first
    backbone in turn.
    """
    blocks = [("resnet8", "mbls"), ("a_net", "ce"), ("resnet8", "ce"), ("a_net", "ls")]
    keys = [("p", "digits", *block, seed) for block in blocks for seed in (1, 2)]
    runs = []
    for number, key in enumerate([*keys, ("external", "digits", "unknown", "ours", 0)]):
        external = key[0] == "external"
        run, fingerprint = folder / f"run{number}", f"calibration{number}"
        fit = {"calibrator": "ts", "fit_seed": 4, "seconds": 0.1}
        write_calibration(run / "calibrate", numbers(key), fingerprint, [fit])
        write_record(run / "predict/predict.json", record())
        if not external:
            write_record(run / "train/train.json", {**record(), FILES: {}})
        runs.append(
            {
                "key": dict(zip(KEY, key, strict=True)),
                "train": None if external else str(run / "train"),
                "predict": str(run / "predict"),
                "calibrate": str(run / "calibrate"),
                "first_stage": None,
                "fingerprint": fingerprint,
                "external": external,
            }
        )
    manifest = {
        "fingerprint": "f",
        "published": [],
        "configuration": {"study": "made up", "statistics": STATISTICS},
        "folders": [],
    }
    path = folder / "study" / "made_up.json"
    write_json(path, {**manifest, "runs": runs})
    return path


@pytest.fixture
def study(tmp_path):
    return made_up(tmp_path)


def rewrite(run, rows):
    write_calibration(Path(run["calibrate"]), rows, run["fingerprint"])


def rows_of_all_runs(study):
    return pd.concat(
        [read_frame(f"{run['calibrate']}/metrics.parquet") for run in read_json(study)["runs"]],
        ignore_index=True,
    )


def contents(folder):
    return {name: (folder / name).read_bytes() for name in STUDY_FILES}


@pytest.fixture(scope="module")
def small_batches(tmp_path_factory):
    """Folder of a study, aggregated one run at a time; tests only read it."""
    study = made_up(tmp_path_factory.mktemp("made"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("calgrid.jobs.aggregate.BATCH_RUNS", 1)
        aggregated(read_json(study), study.parent)
    return study.parent


def test_metrics_are_those_of_all_runs_in_order_and_the_summary_is_that_of_all_rows_at_once(
    small_batches,
):
    rows = rows_of_all_runs(small_batches / "made_up.json")
    assert len(rows) == 9 * 100
    metrics = read_frame(small_batches / "metrics.parquet")
    pd.testing.assert_frame_equal(metrics, rows.assign(bins=15))
    pd.testing.assert_frame_equal(
        read_frame(small_batches / "summary.parquet"), summarise(rows, "ce"), check_exact=True
    )


def test_means_over_shifts_are_summarised_once_for_all(small_batches):
    means = read_frame(small_batches / "shift_means.parquet")
    found = read_frame(small_batches / "shift_summary.parquet")
    expected = summarise(means, "ce", level=0.95)
    pd.testing.assert_frame_equal(
        found.drop(columns="n_shifts"), expected[found.columns[:-1]], check_dtype=False
    )
    graded = found[found["severity"] > 0].groupby("severity")["shift"].unique()
    assert {severity: list(names) for severity, names in graded.items()} == {
        1: ["mean"],
        2: ["mean"],
    }
    assert set(found["n_shifts"]) == {2}  # noise and blur, though severity 2 has noise alone


def test_a_mean_over_shifts_with_resamples_has_an_interval(study):
    manifest = read_json(study)
    run = manifest["runs"][1]
    place = {"checkpoint": "last", "calibrator": "ts", "fit_on": "val", "fit_seed": 0}
    place |= {"split": "shift", "shift": "mean", "severity": 1, "metric": "nll"}
    drawn = pd.DataFrame([{**place, "draws": [-0.01, 0.0, 0.01], "pairs": []}])
    folder = Path(run["calibrate"])
    write_frame(folder / "resamples.parquet", drawn, {"fingerprint": run["fingerprint"]})
    write_calibration_record(folder, ["metrics.parquet", "resamples.parquet"])
    aggregated(manifest, study.parent)
    means = read_frame(study.parent / "shift_means.parquet").dropna(subset="ci_low")
    assert means[list(place)].to_dict("records") == [place]
    assert means[KEY].to_dict("records") == [run["key"]]
    assert (means["ci_high"] > means["value"]).item()


def test_batches_change_no_byte(tmp_path, small_batches):
    aggregated(read_json(small_batches / "made_up.json"), tmp_path / "whole")
    assert contents(small_batches) == contents(tmp_path / "whole")


def resamples(key):
    """Resamples of one run on the test split and of its mean over shifts."""
    rng = np.random.default_rng([key[-1], len(key[3]), 7])
    rows = [
        {
            "checkpoint": "last",
            "calibrator": calibrator,
            "fit_on": "val",
            "fit_seed": 0,
            "split": split,
            "shift": shift,
            "severity": severity,
            "metric": metric,
            "draws": rng.normal(size=200).astype(np.float32),
            "pairs": np.empty(0, np.float32),
        }
        for calibrator in ("none", "ts")
        for split, shift, severity in (("test", "", 0), ("shift", "mean", -1))
        for metric in ("accuracy", "nll")
    ]
    return pd.DataFrame(rows)


def test_resamples_are_stored_a_batch_of_runs_and_used_a_test_set_at_a_time(study, monkeypatch):
    manifest = read_json(study)
    manifest["runs"] = [run for run in manifest["runs"] if run["key"]["backbone"] == "a_net"]
    write_json(study, manifest)
    expected = []
    for run in manifest["runs"]:
        folder, key = Path(run["calibrate"]), tuple(run["key"][name] for name in KEY)
        rows = resamples(key)
        expected.append(rows.assign(**run["key"]))
        footer = {"fingerprint": run["fingerprint"]}
        write_frame(folder / "resamples.parquet", rows, footer, RESAMPLE_COLUMNS)
        write_calibration_record(folder, ["metrics.parquet", "resamples.parquet"])
    monkeypatch.setattr("calgrid.jobs.aggregate.BATCH_RUNS", 3)
    monkeypatch.setattr("calgrid.storage.tables.PIECE_BYTES", 2**13)
    monkeypatch.setattr("calgrid.jobs.summaries.SUMMARISED_ROWS", 1)
    aggregated(manifest, study.parent)
    path = study.parent / "resamples.parquet"
    assert pq.read_metadata(path).num_row_groups == 2  # of three runs, and of one
    assert pq.read_schema(path).field("draws").type.value_type == "float"
    expected = pd.concat(expected, ignore_index=True)
    found = read_frame(path)
    pd.testing.assert_frame_equal(found, expected[list(found)], check_dtype=False)
    summary = summarise(rows_of_all_runs(study), "ce", resamples=expected)
    assert summary["p_value"].notna().sum() == 2 * 2  # of ls; calibrators; metrics
    stored = read_frame(study.parent / "summary.parquet")
    pd.testing.assert_frame_equal(stored, summary, rtol=1e-14)
    means = read_frame(study.parent / "shift_means.parquet")
    of_means = summarise(means, "ce", resamples=expected)
    stored = read_frame(study.parent / "shift_summary.parquet")
    assert of_means["p_value"].notna().sum() == 2 * 2
    np.testing.assert_array_equal(stored["p_value"], of_means["p_value"])


def test_a_study_without_shifts_has_no_means_over_shifts(study):
    manifest = read_json(study)
    for run in manifest["runs"]:
        path = Path(run["calibrate"], "metrics.parquet")
        rewrite(run, read_frame(path).query("split != 'shift'"))
    aggregated(manifest, study.parent)
    summary = read_frame(study.parent / "shift_summary.parquet")
    assert (len(summary), list(summary.columns)) == (0, list(SHIFT_SUMMARY_COLUMNS))


def test_a_study_of_external_runs_has_costs_with_types(study):
    manifest = read_json(study)
    write_json(study, {**manifest, "runs": manifest["runs"][-1:]})
    aggregated(read_json(study), study.parent)
    costs = read_frame(study.parent / "costs.parquet")
    fits = costs[["stage", "item", "fit_seed", "seconds"]].to_numpy().tolist()
    assert fits == [["calibrate", "ts", 4, 0.1]]
    assert costs["epochs"].dtype == "float64"


def test_the_record_says_what_was_aggregated_and_where(small_batches):
    found = read_json(record_of(small_batches))
    assert found["fingerprint"] == "f"
    manifest = read_json(small_batches / "manifest.json")
    assert manifest["configuration"]["study"] == "made up"
    assert found["rows"]["metrics"] == 900
    assert found["rows"]["costs"] == 9 + 2 * 8
    assert {"commit", "python", "pandas", "cpu", "machine"} <= set(found["environment"])
    assert found["seconds"] > 0
    assert found["peak_memory_mb"] > 50


def test_environments_of_all_jobs_of_a_run_are_kept(small_batches):
    *trained, external = read_json(small_batches / "runs.json")["runs"]
    assert {run["environment"]["threads"] for run in trained} == {1}
    assert "environment" not in external
    for run in (*trained, external):
        predicted, calibrated = run["environments"]
        assert (predicted["stage"], predicted["device"]) == ("predict", "cpu")
        assert calibrated == {"stage": "calibrate", "scipy": "1.17.1"}


def test_files_say_of_what_study_they_are_and_in_what_units(small_batches):
    tables = [name for name in STUDY_FILES if name.endswith(".parquet")]
    for name in tables:
        footer = json.loads(pq.read_schema(small_batches / name).metadata[b"calgrid"])
        assert (footer["study"], footer["calgrid"]) == ("made up", __version__)
        assert (footer["units"]["ece"], footer["units"]["nll"]) == ("fraction", "nats")
        directions = [footer["lower_is_better"][name] for name in ("nll", "accuracy", "ece_null")]
        assert (footer["bins"], directions) == (15, [True, False, None])


def test_metrics_of_another_run_are_refused(study, refuses):
    """Copied into the wrong folder its rows would count twice."""
    runs = read_json(study)["runs"]
    rewrite(runs[1], read_frame(f"{runs[0]['calibrate']}/metrics.parquet"))
    with refuses(
        StateError,
        f"{runs[1]['calibrate']}/metrics.parquet",
        "has the seed 1 instead of 2",
        "delete",
    ):
        aggregated(read_json(study), study.parent)
    assert not (study.parent / "metrics.parquet").exists()


def test_metrics_of_another_fingerprint_are_refused(study):
    manifest = read_json(study)
    manifest["runs"][3]["fingerprint"] = "0" * 16
    with pytest.raises(StateError, match="fingerprint calibration3, expected 0000000000000000"):
        aggregated(manifest, study.parent)
    assert not (study.parent / "metrics.parquet").exists()


@pytest.mark.parametrize(
    ("kept", "kind", "message"),
    [
        ([*range(100), 5], DataError, r"each number once.*'metric': 'ece'"),
        ([], StateError, "remove it with 'calgrid verify STUDY --delete' and run again"),
    ],
    ids=["a row twice", "no rows"],
)
def test_metrics_with_a_row_twice_or_without_rows_are_refused(study, kept, kind, message):
    run = read_json(study)["runs"][0]
    rewrite(run, read_frame(f"{run['calibrate']}/metrics.parquet").iloc[kept])
    with pytest.raises(kind, match=message):
        aggregated(read_json(study), study.parent)


#: unlike ru_maxrss, VmHWM is that of the program alone, not of the process that started it
MANY = """
import re, sys
from pathlib import Path
from calgrid.jobs.aggregate import run
from calgrid.storage.atomic import read_json
from calgrid.storage.publish import Call

def peak_mb():
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\\s+([0-9]+)", status)[1]) / 1024

before = peak_mb()
run(Call(read_json(Path(sys.argv[1])), Path(sys.argv[2])))
print(peak_mb() - before)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_conditions(study, run_python):
    """A quarter of a million rows of ten networks."""
    manifest = read_json(study)
    base = manifest["runs"][0]
    rows = numbers(("p", "digits", "resnet8", "ce", 0)).query("split == 'test'")
    rows = pd.concat(
        [rows.assign(severity=np.int8(severity), split="shift") for severity in range(1, 121)]
    )
    runs = []
    for number in range(100):
        folder = study.parent / f"many{number}"
        key = {**base["key"], "backbone": f"net{number % 10}", "method": "ce", "seed": number}
        of_run = rows.assign(seed=number, backbone=key["backbone"])
        write_calibration(folder, of_run, "many")
        runs.append({**base, "key": key, "calibrate": str(folder), "fingerprint": "many"})
    write_json(study, {**manifest, "runs": runs})
    grown = float(run_python(MANY, study, record_of(study.parent)))
    assert read_json(record_of(study.parent))["rows"]["metrics"] == 100 * 2400
    assert 0 < grown < 200  # 106 were measured


@pytest.mark.slow
def test_processes_change_no_byte(small_batches, tmp_path, monkeypatch):
    monkeypatch.setattr("calgrid.jobs.aggregate.BATCH_RUNS", 1)
    aggregated(read_json(small_batches / "made_up.json"), tmp_path / "three", threads=3)
    assert contents(tmp_path / "three") == contents(small_batches)


def test_what_a_process_refuses_is_refused(study, refuses):
    run = read_json(study)["runs"][4]
    Path(run["calibrate"], "metrics.parquet").write_bytes(b"damaged")
    with refuses(StateError, f"{run['calibrate']}/metrics.parquet", "is damaged"):
        aggregated(read_json(study), study.parent, threads=2)
    assert not (study.parent / "metrics.parquet").exists()


def test_warnings_of_fits_are_counted_for_each_calibrator(tmp_path):
    runs = []
    for seed in range(3):
        fit = {"calibrator": "ts", "fit_seed": 0, "seconds": 0.1}
        fits = [
            {
                **fit,
                "converged": seed < 2,
                "warnings": [f"bound {seed}", "other"] if seed else [],
            },
            {**fit, "calibrator": "vs", "converged": True, "warnings": []},
        ]
        write_record(tmp_path / str(seed) / "calibrate.json", {"fits": fits})
        key = dict(zip(KEY, ("p", "digits", "resnet8", "ce", seed), strict=True))
        runs.append(
            {"key": key, "calibrate": str(tmp_path / str(seed)), "first_stage": None, "train": None}
        )
    rows, warnings = _collect_costs(runs, tmp_path / "costs.parquet", {}, map)
    about = {"protocol": "p", "dataset": "digits", "backbone": "resnet8", "calibrator": "ts"}
    counts = {"fits": 3, "warned": 2, "unconverged": 1}
    one, two = "ce seed 1", "ce seed 2"
    counts["texts"] = {"bound 1": [one], "other": [one, two], "bound 2": [two]}
    assert (rows, warnings) == (6, [{**about, **counts}])
