"""Label counts meet the test rows: read, checked, normalised, and scored in stage calibrate."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.jobs.small import HOME, calibrate, import_run, predicted, small_study, trained, values

from calgrid.calibrators import build_calibrator
from calgrid.datasets import open_prepared, prepare
from calgrid.errors import DataError
from calgrid.jobs.label_counts import label_distribution
from calgrid.logits.reading import read_any
from calgrid.metrics import bootstrap_soft, evaluate_soft
from calgrid.plan.plan import Plan
from calgrid.storage.logits import Logits, read_logits, write_logits
from calgrid.storage.tables import read_frame
from calgrid.study.study import Study

COUNTS = np.array([[3, 1, 0], [0, 5, 5], [1, 1, 2], [50, 0, 0]])


def rows(index):
    index = np.asarray(index, dtype=np.int32)
    return Logits(index, np.zeros(len(index), np.int32), np.zeros((len(index), 3), np.float32))


def save(path, counts):
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"counts": pa.array(counts.tolist())}), path)
    else:
        np.save(path, counts)
    return description_of(path)


def description_of(path):
    return {"file": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


@pytest.mark.parametrize("name", ["counts.npy", "counts.parquet"])
@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.float32])
def test_counts_become_shares(tmp_path, name, kind):
    found = label_distribution(save(tmp_path / name, COUNTS.astype(kind)), rows(range(4)))
    assert found.dtype == np.float32
    assert found.tolist() == [[0.75, 0.25, 0], [0, 0.5, 0.5], [0.25, 0.25, 0.5], [1, 0, 0]]


def test_rows_are_found_by_their_index(tmp_path):
    spec = save(tmp_path / "counts.npy", COUNTS)
    assert label_distribution(spec, rows([3, 1, 0, 2])).tolist()[:2] == [[1, 0, 0], [0, 0.5, 0.5]]
    assert label_distribution(spec, rows([2, 1])).tolist() == [[0.25, 0.25, 0.5], [0, 0.5, 0.5]]


def test_counts_that_contradict_most_labels_are_said(tmp_path, capsys):
    spec = save(tmp_path / "counts.npy", COUNTS)
    data = rows(range(4))
    data.label[:] = COUNTS.argmax(axis=1)
    label_distribution(spec, data)
    assert capsys.readouterr().err == ""
    for other in (COUNTS[:, [1, 2, 0]], COUNTS[[1, 2, 3, 0]]):
        label_distribution(save(tmp_path / "counts.npy", other), data)
        said = capsys.readouterr().err
        assert "counts.npy: most people chose the label of only " in said
        assert "rows have the order of the test images, and its columns that of the cl" in said


@pytest.mark.parametrize(
    ("counts", "index", "message"),
    [
        (COUNTS[:3], range(4), "has 3 rows, but the test split needs 4"),
        (COUNTS, range(3), "has 4 rows, but the test split needs 3"),
        (COUNTS, [1, 4], "has 4 rows, but the test split needs 5"),
        (COUNTS[:, :2], range(4), "has 2 columns, but the data set has 3 classes"),
        (
            COUNTS * [[1], [0], [1], [0]],
            range(4),
            "2 rows have .* no count above 0; the first is row 1",
        ),
        (COUNTS - [[0], [0], [1], [0]] * np.array([2, 0, 0]), range(4), "1 rows have a negative"),
        (np.where(COUNTS == 50, np.inf, COUNTS), range(4), "non-finite.*the first is row 3"),
        (COUNTS[0], range(4), r"must contain numbers of shape \(N, K\), it contains int64 \(3,\)"),
        (COUNTS.astype(str), range(4), "must contain numbers"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path, counts, index, message):
    with pytest.raises(DataError, match=rf"counts\.npy.*{message}"):
        label_distribution(save(tmp_path / "counts.npy", counts), rows(index))


def test_files_that_cannot_be_read_are_named(tmp_path, refuses):
    spec = save(tmp_path / "counts.npy", COUNTS)
    with refuses(DataError, "no.npy do not exist"):
        label_distribution({**spec, "file": str(tmp_path / "no.npy")}, rows(range(4)))
    for name in ("a.npy", "a.csv"):
        (tmp_path / name).write_text("1 2 3")
    pq.write_table(pa.table({"votes": [1.0]}), tmp_path / "b.parquet")
    messages = {
        "a.npy": "damaged or not a .npy file",
        "a.csv": "must be a .npy or",
        "b.parquet": "no column 'counts'",
    }
    for name, message in messages.items():
        with refuses(DataError, name, message):
            label_distribution(description_of(tmp_path / name), rows(range(4)))


class TestStudy:
    """An external run whose images people have labelled, with and without a val file."""

    @pytest.fixture
    def config(self, tmp_path):
        rng = np.random.default_rng(0)
        for name, size in (("val", 60), ("test", 90)):
            logits = 3 * rng.normal(size=(size, 4)).astype(np.float32)
            np.savez(tmp_path / f"{name}.npz", logits=logits, label=rng.integers(0, 4, size))
        np.save(tmp_path / "counts.npy", rng.integers(0, 9, (90, 4)) + 1)
        run = {
            "val": "val.npz",
            "test": "test.npz",
            "kind": "logits",
            "calibrators": ["none", "ts"],
        }
        return {
            "study": "people",
            "data_root": str(tmp_path),
            "external": {"mine": run},
            "label_counts": {"mine": "counts.npy"},
            "statistics": {"bootstrap": 40, "bins": 10},
        }

    @staticmethod
    def scored(config, folder):
        """Metrics of the one run of a configuration, imported and calibrated in ``folder``."""
        plan = Plan(Study(config, HOME))
        (key,) = plan.study.runs
        given = plan.study.runs[key].external
        files = [plan.study.data_root / given[role] for role in ("val", "test") if role in given]
        import_run(plan.external(key).spec, files, folder)
        calibrate(plan.calibrate(key).spec, folder, folder / "part")
        return read_frame(folder / "part/metrics.parquet")

    def test_values_and_intervals_are_recomputed_from_logits_and_counts(self, config, tmp_path):
        metrics = self.scored(config, tmp_path / "run")
        val, test = (
            read_logits(tmp_path / f"run/logits/last/{name}.parquet") for name in ("val", "test")
        )
        counts = np.load(tmp_path / "counts.npy")
        for calibrator in ("none", "ts"):
            probs = (
                build_calibrator(calibrator).fit(val.logits, val.label).predict_proba(test.logits)
            )
            found = metrics[
                metrics["metric"].str.startswith("soft_") & (metrics["calibrator"] == calibrator)
            ]
            assert set(found["split"]) == {"test"}
            assert (found["n_samples"] == 90).all()
            assert values(found) == pytest.approx(evaluate_soft(probs, counts, n_bins=10), rel=1e-6)
            bounds = bootstrap_soft(probs, counts, n_bins=10, n_resamples=40)
            assert dict(zip(found["metric"], found["ci_high"], strict=True)) == pytest.approx(
                {name: high for name, (_, high) in bounds.items()}, rel=1e-6
            )

    def test_rows_split_off_for_validation_are_left_out(self, config, tmp_path):
        run = {k: v for k, v in config["external"]["mine"].items() if k != "val"} | {
            "split_seed": 1
        }
        metrics = self.scored({**config, "external": {"mine": run}}, tmp_path / "run")
        test = read_logits(tmp_path / "run/logits/last/test.parquet")
        assert len(test) == 45
        probs = build_calibrator("none").fit(test.logits, test.label).predict_proba(test.logits)
        expected = evaluate_soft(probs, np.load(tmp_path / "counts.npy")[test.index], n_bins=10)[
            "soft_kl"
        ]
        found = metrics.query("metric == 'soft_kl' and calibrator == 'none'")["value"].item()
        assert found == pytest.approx(expected, rel=1e-6)

    def test_a_changed_file_is_scored_again(self, config, tmp_path):
        first = self.scored(config, tmp_path / "run")
        np.save(tmp_path / "counts.npy", np.load(tmp_path / "counts.npy")[:, ::-1])
        second = self.scored(config, tmp_path / "run")
        assert set(first.loc[first["value"].ne(second["value"]), "metric"]) == {
            "soft_kl",
            "soft_tv",
            "soft_ece",
        }

    @pytest.mark.parametrize("suffix", [".parquet", ".npz"])
    def test_a_distribution_in_the_file_itself_is_enough_and_counts_win_over_it(
        self, config, tmp_path, suffix
    ):
        test = read_any(tmp_path / "test.npz", "logits")
        shares = np.random.default_rng(3).dirichlet(np.ones(4), size=90).astype(np.float32)
        file = tmp_path / f"known{suffix}"
        if suffix == ".npz":
            np.savez(file, logits=test.logits, label=test.label, distribution=shares)
        else:
            write_logits(file, Logits(test.index, test.label, test.logits, distribution=shares))
        config["external"]["mine"]["test"] = file.name
        probs = build_calibrator("none").fit(test.logits, test.label).predict_proba(test.logits)
        truths = {"own": shares, "counts": np.load(tmp_path / "counts.npy")}
        for name, truth in truths.items():
            chosen = (
                config
                if name == "counts"
                else {k: v for k, v in config.items() if k != "label_counts"}
            )
            metrics = self.scored(chosen, tmp_path / name)
            found = metrics.query("metric == 'soft_tv' and calibrator == 'none'")["value"].item()
            assert found == pytest.approx(evaluate_soft(probs, truth)["soft_tv"], rel=1e-5), name


def test_a_trained_run_is_scored_against_the_posterior_of_its_data_set(tmp_path):
    """Prepared folder, training, prediction and calibration: the posterior arrives unchanged."""
    config = small_study(statistics={"bootstrap": 0})
    config["protocols"]["quick"] |= {
        "epochs": 1,
        "schedule": {"name": "constant", "milestones": []},
    }
    config["grids"][0] |= {"datasets": ["digits_ambiguous"], "methods": ["ce"], "shifts": []}
    plan = Plan(Study(config, HOME))
    (key,) = plan.study.runs
    out = tmp_path / "run"
    prepare("digits_ambiguous", tmp_path / "digits_ambiguous")
    trained(plan, tmp_path, out, key)
    predicted(plan, tmp_path, out, key)
    calibrate(plan.calibrate(key).spec, out / "predict", out / "part")
    posterior = open_prepared(tmp_path / "digits_ambiguous").splits["test"].distribution
    test = read_logits(out / "predict/logits/last/test.parquet")
    assert np.array_equal(test.distribution, posterior)
    probs = build_calibrator("none").fit(test.logits, test.label).predict_proba(test.logits)
    metrics = read_frame(out / "part/metrics.parquet").query(
        "split == 'test' and checkpoint == 'last' and calibrator == 'none'"
    )
    found = values(metrics)
    expected = evaluate_soft(probs, posterior)
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert metrics.loc[metrics["metric"].isin(list(expected)), "ci_low"].isna().all()
