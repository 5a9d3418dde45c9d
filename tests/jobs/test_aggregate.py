"""Stage aggregate on made-up parts: all rows once, the same statistics in slices as in one, memory
that is bounded.
"""

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calgrid.errors import DataError, StateError
from calgrid.jobs.aggregate import _collect_costs, aggregate
from calgrid.statistics import summarise
from calgrid.storage.atomic import read_json, write_json
from calgrid.storage.records import FILES, listed, write_record
from calgrid.storage.schema import METRIC_COLUMNS, STUDY_FILES
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


def write_part_record(part, fits):
    write_record(part / "calibrate.json", {"fits": fits, FILES: listed(part, ["metrics.parquet"])})


@pytest.fixture
def study(tmp_path):
    """Manifest of twelve trained runs and an external one; two blocks of a grid visit the first
    backbone in turn.
    """
    blocks = [("resnet8", "mbls"), ("a_net", "ce"), ("resnet8", "ce"), ("a_net", "ls")]
    keys = [("p", "digits", *block, seed) for block in blocks for seed in (1, 2, 3)]
    runs = []
    for place, key in enumerate([*keys, ("external", "digits", "unknown", "ours", 0)]):
        external = key[0] == "external"
        run, part = tmp_path / f"run{place}", tmp_path / f"part{place}"
        write_frame(part / "metrics.parquet", numbers(key), {"fingerprint": f"part{place}"})
        write_part_record(part, [{"calibrator": "ts", "fit_seed": 4, "seconds": 0.1}])
        if not external:
            write_record(run / "train.json", record())
            write_record(run / "predict.json", record())
        runs.append(
            {
                "key": dict(zip(KEY, key, strict=True)),
                "run": str(run),
                "part": str(part),
                "first_stage": None,
                "fingerprint": f"part{place}",
                "external": external,
            }
        )
    manifest = {
        "fingerprint": "f",
        "statistics": STATISTICS,
        "published": [],
        "configuration": {"study": "made up"},
    }
    path = tmp_path / "study" / "manifest.json"
    write_json(path, {**manifest, "runs": runs})
    return path


def write_part(run, rows):
    part = Path(run["part"])
    write_frame(part / "metrics.parquet", rows, {"fingerprint": run["fingerprint"]})
    write_part_record(part, [])


def parts_of(study):
    return pd.concat(
        [read_frame(f"{run['part']}/metrics.parquet") for run in read_json(study)["runs"]],
        ignore_index=True,
    )


def contents(folder):
    return {name: (folder / name).read_bytes() for name in STUDY_FILES}


def in_small_pieces(monkeypatch):
    monkeypatch.setattr("calgrid.jobs.aggregate.SLICE_ROWS", 90)
    monkeypatch.setattr("calgrid.jobs.aggregate.BATCH_RUNS", 2)


@pytest.fixture
def sliced(study, monkeypatch):
    """Folder of the study, aggregated in small pieces."""
    in_small_pieces(monkeypatch)
    aggregate(read_json(study), study.parent)
    return study.parent


def test_metrics_are_all_parts_one_after_the_other_and_the_summary_is_that_of_all_rows_at_once(
    study, sliced
):
    parts = parts_of(study)
    assert len(parts) == 13 * 100
    pd.testing.assert_frame_equal(read_frame(sliced / "metrics.parquet"), parts)
    pd.testing.assert_frame_equal(
        read_frame(sliced / "summary.parquet"), summarise(parts, "ce"), check_exact=True
    )


def test_means_over_shifts_are_summarised_once_for_all(sliced):
    means, found = (read_frame(sliced / f"shift_{name}.parquet") for name in ("means", "summary"))
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


def test_pieces_and_slices_change_no_byte(study, tmp_path, sliced, monkeypatch):
    monkeypatch.undo()
    aggregate(read_json(study), tmp_path / "whole")
    assert contents(sliced) == contents(tmp_path / "whole")
    assert not list(sliced.rglob("*.arrow"))


def test_a_study_of_external_runs_has_costs_with_types(study):
    manifest = read_json(study)
    write_json(study, {**manifest, "runs": manifest["runs"][-1:]})
    aggregate(read_json(study), study.parent)
    costs = read_frame(study.parent / "costs.parquet")
    fits = costs[["stage", "item", "fit_seed", "seconds"]].to_numpy().tolist()
    assert fits == [["calibrate", "ts", 4, 0.1]]
    assert costs["epochs"].dtype == "float64"


def test_the_record_says_what_was_aggregated_and_where(sliced):
    found = read_json(sliced / "aggregate.json")
    assert found["fingerprint"] == "f"
    assert found["spec"]["configuration"] == {"study": "made up"}
    assert found["rows"]["metrics"] == 1300
    assert found["rows"]["costs"] == 13 + 2 * 12
    assert {"commit", "python", "pandas", "cpu", "machine"} <= set(found["environment"])
    assert found["seconds"] > 0
    assert found["peak_memory_mb"] > 50


def test_a_part_of_another_run_is_refused(study, refuses):
    """Copied into the wrong folder its rows would count twice."""
    runs = read_json(study)["runs"]
    write_part(runs[1], read_frame(f"{runs[0]['part']}/metrics.parquet"))
    with refuses(
        StateError, f"{runs[1]['part']}/metrics.parquet", "has the seed 1 instead of 2", "delete"
    ):
        aggregate(read_json(study), study.parent)
    assert not (study.parent / "metrics.parquet").exists()


def test_a_part_of_another_fingerprint_is_refused(study):
    manifest = read_json(study)
    manifest["runs"][3]["fingerprint"] = "0" * 16
    with pytest.raises(StateError, match="fingerprint part3, expected 0000000000000000"):
        aggregate(manifest, study.parent)
    assert not (study.parent / "metrics.parquet").exists()


@pytest.mark.parametrize(
    ("kept", "kind", "message"),
    [
        ([*range(100), 5], DataError, r"each number once.*'metric': 'ece'"),
        ([], StateError, "delete it and run again"),
    ],
    ids=["a row twice", "no rows"],
)
def test_a_part_with_a_row_twice_or_without_rows_is_refused(study, kept, kind, message):
    run = read_json(study)["runs"][0]
    write_part(run, read_frame(f"{run['part']}/metrics.parquet").iloc[kept])
    with pytest.raises(kind, match=message):
        aggregate(read_json(study), study.parent)


MANY = """
import resource, sys
from pathlib import Path
from calgrid.jobs.aggregate import aggregate
from calgrid.storage.atomic import read_json
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
aggregate(read_json(Path(sys.argv[1])), Path(sys.argv[1]).parent)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_rows(study, run_python):
    """Half a million rows as frames of strings take gigabytes."""
    manifest = read_json(study)
    base = manifest["runs"][0]
    rows = numbers(("p", "digits", "resnet8", "ce", 0)).query("split == 'test'")
    rows = pd.concat(
        [rows.assign(severity=np.int8(severity), split="shift") for severity in range(1, 121)]
    )
    runs = []
    for seed in range(250):
        part = study.parent / f"many{seed}"
        write_frame(part / "metrics.parquet", rows.assign(seed=seed), {"fingerprint": "many"})
        write_part_record(part, [])
        key = {**base["key"], "method": "ce", "seed": seed}
        runs.append({**base, "key": key, "part": str(part), "fingerprint": "many"})
    write_json(study, {**manifest, "runs": runs})
    grown = float(run_python(MANY, study))
    rows = read_json(study.parent / "aggregate.json")["rows"]["metrics"]
    assert rows == 250 * 2400
    assert grown < 350


@pytest.mark.slow
@pytest.mark.parametrize("batch", [2, 100])
def test_processes_change_no_byte(study, tmp_path, monkeypatch, batch):
    in_small_pieces(monkeypatch)
    monkeypatch.setattr("calgrid.jobs.aggregate.BATCH_RUNS", batch)
    aggregate(read_json(study), tmp_path / "one")
    aggregate(read_json(study), tmp_path / "three", threads=3)
    assert contents(tmp_path / "three") == contents(tmp_path / "one")


def test_what_a_process_refuses_is_refused(study, refuses):
    run = read_json(study)["runs"][4]
    Path(run["part"], "metrics.parquet").write_bytes(b"damaged")
    with refuses(StateError, f"{run['part']}/metrics.parquet", "is damaged"):
        aggregate(read_json(study), study.parent, threads=2)
    assert not list(study.parent.rglob("*.arrow"))


def test_warnings_of_fits_are_counted_for_each_calibrator(tmp_path):
    runs = []
    for seed in range(3):
        fit = {"calibrator": "ts", "fit_seed": 0, "seconds": 0.1}
        fits = [
            {**fit, "warnings": [f"bound {seed}", "other"] if seed else []},
            {**fit, "calibrator": "vs", "warnings": []},
        ]
        write_record(tmp_path / str(seed) / "calibrate.json", {"fits": fits})
        key = dict(zip(KEY, ("p", "digits", "resnet8", "ce", seed), strict=True))
        runs.append(
            {"key": key, "part": str(tmp_path / str(seed)), "first_stage": None, "external": True}
        )
    rows, warnings = _collect_costs(runs, tmp_path / "costs.parquet", map)
    about = {"protocol": "p", "dataset": "digits", "backbone": "resnet8", "calibrator": "ts"}
    assert (rows, warnings) == (6, [{**about, "fits": 3, "warned": 2, "first": "bound 1"}])
