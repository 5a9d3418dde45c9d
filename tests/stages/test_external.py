"""Logits made elsewhere: read as they are, split without leaks, published like those of a run of ours."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from calgrid.calibrators import build_calibrator
from calgrid.errors import DataError, StateError
from calgrid.stages.external import import_run, predicted, read_any, split_rows
from calgrid.storage.head import read_head
from calgrid.storage.layout import logits_files
from calgrid.storage.logits import Logits, read_logits, write_logits

OUTPUTS = logits_files(["last"])
KEY = {"protocol": "external", "dataset": "cifar10", "backbone": "vit", "method": "ce", "seed": 1}


def arrays(rows=20, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, classes)).astype(np.float32), rng.integers(0, classes, rows)


def softmax(logits):
    return build_calibrator("none").fit(logits, np.zeros(len(logits), int)).predict_proba(logits)


def npz(path, **content):
    np.savez(path, **content)
    return path


def file_of(path, **content):
    """An .npz or Parquet file of arrays."""
    if path.suffix == ".npz":
        return npz(path, **content)
    columns = {name: values if values.ndim == 1 else lists(values) for name, values in content.items()}
    pq.write_table(pa.table(columns), path)
    return path


def lists(values):
    return pa.FixedSizeListArray.from_arrays(values.ravel(), values.shape[1])


@pytest.fixture
def rows_file(tmp_path):
    logits, labels = arrays()
    return npz(tmp_path / "test.npz", logits=logits, label=labels)


@pytest.fixture
def val_file(tmp_path):
    logits, labels = arrays(rows=8, seed=1)
    return npz(tmp_path / "val.npz", logits=logits, label=labels)


def spec(**external):
    return {"key": KEY, "external": {"kind": "logits", **external}, "fingerprint": "f1"}


def test_an_import_is_recorded(tmp_path, val_file, rows_file):
    import_run(spec(), [val_file, rows_file], tmp_path / "run")
    record = json.loads((tmp_path / "run" / "predict.json").read_text())
    assert record["fingerprint"] == record["spec"]["fingerprint"]
    assert record["seconds"] > 0
    assert record["peak_memory_mb"] > 10
    assert "cpu" in record["environment"]


def published(out):
    return [read_logits(out / f"logits/last/{name}.parquet") for name in ("val", "test")]


class TestValidationRows:
    def test_smaller_sets_lie_within_larger_ones(self, tmp_path, val_file, rows_file):
        kept = {}
        for rows in (3, 5):
            out = tmp_path / f"run{rows}"
            import_run(spec(val_rows=rows, val_seed=1), [val_file, rows_file], out)
            val, test = published(out)
            kept[rows] = set(val.index)
            assert (len(val), len(test)) == (rows, 20)
            assert list(val.index) == sorted(val.index)
        assert kept[3] < kept[5]

    def test_more_rows_than_there_are_is_refused(self, tmp_path, val_file, rows_file):
        with pytest.raises(DataError, match="val_rows 9 is more than the 8 rows"):
            import_run(spec(val_rows=9, val_seed=1), [val_file, rows_file], tmp_path / "run")


class TestHead:
    def test_the_last_layer_is_published_beside_the_logits(self, tmp_path, val_file, rows_file):
        weight, bias = np.arange(12.0).reshape(4, 3), np.arange(4.0)
        head = npz(tmp_path / "head.npz", weight=weight, bias=bias)
        import_run(spec(head="head.npz"), [val_file, rows_file, head], tmp_path / "run")
        found = read_head(tmp_path / "run" / "logits/last/head.safetensors", "f1")
        assert np.array_equal(found[0], weight)
        assert np.array_equal(found[1], bias)
        with pytest.raises(StateError, match="belongs to another configuration"):
            read_head(tmp_path / "run" / "logits/last/head.safetensors", "f2")

    def test_a_file_without_weight_or_bias_is_refused(self, tmp_path, rows_file):
        head = npz(tmp_path / "head.npz", weights=np.zeros((4, 3)))
        with pytest.raises(DataError, match=r"must hold 'weight' .* it holds weights"):
            import_run(spec(head="head.npz", split_seed=1, val_fraction=0.5), [rows_file, head], tmp_path / "run")
        assert not (tmp_path / "run" / "predict.json").exists()

    def test_no_file_is_no_head_and_a_damaged_one_is_named(self, tmp_path):
        assert read_head(tmp_path / "head.safetensors", "f") is None
        (tmp_path / "head.safetensors").write_bytes(b"no tensors")
        with pytest.raises(StateError, match="is damaged"):
            read_head(tmp_path / "head.safetensors", "f")


class TestImport:
    def test_val_and_test_are_published_like_those_of_a_run(self, tmp_path, val_file, rows_file):
        out = tmp_path / "run"
        assert import_run(spec(), [val_file, rows_file], out)
        assert all((out / name).is_file() for name in OUTPUTS)
        val, test = published(out)
        assert np.array_equal(val.logits, arrays(rows=8, seed=1)[0])
        assert np.array_equal(test.logits, arrays()[0])
        assert test.label.tolist() == arrays()[1].tolist()
        assert test.index.tolist() == list(range(20))
        assert test.metadata == {
            **KEY,
            "split": "test",
            "checkpoint": "last",
            "n_classes": 4,
            "fingerprint": "f1",
        }
        assert val.metadata["split"] == "val"
        assert json.loads((out / "predict.json").read_text())["fingerprint"] == "f1"

    def test_without_val_the_test_rows_are_split(self, tmp_path, rows_file):
        out = tmp_path / "run"
        import_run(spec(split_seed=3, val_fraction=0.25), [rows_file], out)
        val, test = published(out)
        assert (len(val), len(test)) == (5, 15)
        assert sorted([*val.index, *test.index]) == list(range(20))
        logits, labels = arrays()
        for part in (val, test):
            assert np.array_equal(part.logits, logits[part.index])
            assert np.array_equal(part.label, labels[part.index])

    def test_the_same_files_give_the_same_bytes(self, tmp_path, rows_file):
        outs = [tmp_path / name for name in ("one", "two")]
        for out in outs:
            import_run(spec(split_seed=3, val_fraction=0.5), [rows_file], out)
        for name in (name for name in OUTPUTS if name.endswith(".parquet")):  # the record holds times
            assert (outs[0] / name).read_bytes() == (outs[1] / name).read_bytes()

    def test_probabilities_become_their_logarithm(self, tmp_path):
        logits, labels = arrays()
        path = npz(tmp_path / "probs.npz", probs=softmax(logits), labels=labels)
        import_run(spec(split_seed=0, val_fraction=0.5, kind="probabilities"), [path], tmp_path / "run")
        _, test = published(tmp_path / "run")
        assert softmax(test.logits) == pytest.approx(softmax(logits)[test.index], abs=1e-6)
        assert "probabilities" not in pq.read_schema(tmp_path / "run" / OUTPUTS[1]).names

    def test_features_come_along(self, tmp_path):
        logits, labels = arrays()
        features = np.arange(60, dtype=np.float64).reshape(20, 3)
        path = npz(tmp_path / "test.npz", logits=logits, label=labels, features=features)
        import_run(spec(split_seed=0, val_fraction=0.5), [path], tmp_path / "run")
        val, _ = published(tmp_path / "run")
        assert np.array_equal(val.features, features[val.index])

    def test_val_and_test_of_different_classes(self, tmp_path, val_file, refuses):
        logits, labels = arrays(classes=3)
        other = npz(tmp_path / "other.npz", logits=logits, label=labels)
        with refuses(DataError, "val.npz: logits have 4 columns, expected 3 as in the other files"):
            import_run(spec(), [val_file, other], tmp_path / "run")

    def test_a_bad_file_publishes_nothing(self, tmp_path, val_file):
        bad = npz(tmp_path / "bad.npz", logits=np.full((3, 2), np.nan), label=np.zeros(3, int))
        with pytest.raises(DataError):
            import_run(spec(), [val_file, bad], tmp_path / "run")
        assert not any((tmp_path / "run" / name).exists() for name in OUTPUTS)


class TestSplit:
    @staticmethod
    def data(rows):
        logits, labels = arrays(rows)
        return Logits(np.arange(rows, dtype=np.int32) * 10, labels.astype(np.int32), logits)

    @settings(deadline=None, max_examples=50)
    @given(st.integers(2, 60), st.integers(0, 2**32 - 1), st.floats(0.05, 0.95))
    def test_every_row_is_in_one_part_in_its_old_order(self, rows, seed, fraction):
        data = self.data(rows)
        if not 0 < round(rows * fraction) < rows:
            with pytest.raises(DataError, match="one side would be empty"):
                split_rows(data, seed, fraction)
            return
        val, test = split_rows(data, seed, fraction)
        assert len(val) == round(rows * fraction)
        assert set(val.index).isdisjoint(test.index)
        assert sorted([*val.index, *test.index]) == data.index.tolist()
        for part in (val, test):
            assert (np.diff(part.index) > 0).all()
            assert np.array_equal(part.logits, data.logits[part.index // 10])

    def test_it_depends_on_the_seed_and_nothing_else(self):
        data = self.data(50)
        parts = [split_rows(data, seed, 0.5)[0].index.tolist() for seed in (1, 1, 2)]
        assert parts[0] == parts[1] != parts[2]
        other = Logits(data.index, data.label[::-1].copy(), -data.logits)
        assert split_rows(other, 1, 0.5)[0].index.tolist() == parts[0]

    @pytest.mark.parametrize(("rows", "fraction"), [(1, 0.5), (3, 0.01), (3, 0.99)])
    def test_no_part_is_empty(self, rows, fraction, refuses):
        with refuses(DataError, f"{rows} rows cannot be split with val_fraction {fraction}"):
            split_rows(self.data(rows), 0, fraction)


class TestRead:
    @pytest.mark.parametrize("label_name", ["label", "labels", "y"])
    @pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
    def test_arrays(self, tmp_path, suffix, label_name):
        logits, labels = arrays()
        path = tmp_path / f"test{suffix}"
        content = {"logits": logits, label_name: labels}
        if suffix == ".npz":
            npz(path, **content)
        else:
            save_file(content, path)
        data = read_any(path, "logits")
        assert np.array_equal(data.logits, logits)
        assert data.label.tolist() == labels.tolist()
        assert (data.label.dtype, data.logits.dtype) == (np.int32, np.float32)

    @pytest.mark.parametrize("kind", [np.float16, np.float64, np.int64])
    def test_any_real_numbers(self, tmp_path, kind):
        path = npz(tmp_path / "test.npz", logits=np.array([[1, -2], [3, 0]], kind), label=np.array([0, 1], np.uint8))
        assert read_any(path, "logits").logits.tolist() == [[1.0, -2.0], [3.0, 0.0]]

    def test_parquet_of_ours_and_of_others(self, tmp_path):
        logits, labels = arrays()
        ours, theirs = tmp_path / "ours.parquet", tmp_path / "theirs.PARQUET"
        write_logits(ours, Logits(np.arange(20, dtype=np.int32), labels.astype(np.int32), logits))
        pq.write_table(pa.table({"label": labels, "logits": logits.astype(float).tolist()}), theirs)
        for path in (ours, theirs):
            data = read_any(path, "logits")
            assert np.array_equal(data.logits, logits)
            assert data.label.tolist() == labels.tolist()

    def test_probabilities_of_zero_and_one(self, tmp_path):
        path = npz(tmp_path / "p.npz", probabilities=np.eye(3), label=np.arange(3))
        data = read_any(path, "probabilities")
        assert np.isfinite(data.logits).all()
        assert softmax(data.logits) == pytest.approx(np.eye(3), abs=1e-30)

    def test_the_kind_is_stated_and_never_guessed(self, tmp_path, refuses):
        """Probabilities that are stated to be logits are refused, other logits are not."""
        probabilities, labels = softmax(arrays()[0]), arrays()[1]
        path = npz(tmp_path / "p.npz", logits=probabilities.astype(np.float16), label=labels)
        said = "p.npz is stated to hold logits, but every row is 0 or more and sums to 1"
        with refuses(DataError, said, "--kind probabilities", "kind: probabilities", "subtract 1"):
            read_any(path, "logits")
        assert read_any(path, "probabilities").probabilities == pytest.approx(probabilities, abs=1e-3)
        for other in (probabilities - 1, np.r_[probabilities[:-1], [[0, 0, 0, 3]]], np.log(probabilities)):
            path = npz(tmp_path / "l.npz", logits=other, label=labels)
            assert predicted(read_any(path, "logits")) == pytest.approx(softmax(other.astype(np.float32)))

    @pytest.mark.parametrize("shape", [(20,), (20, 1)])
    @pytest.mark.parametrize(("kind", "recipe"), [("logits", "np.c_[0 * z, z]"), ("probabilities", "np.c_[1 - p, p]")])
    def test_one_column_for_two_classes(self, tmp_path, refuses, kind, recipe, shape):
        path = npz(tmp_path / "t.npz", label=np.arange(20) % 2, **{kind: np.full(shape, 0.25)})
        with refuses(DataError, f"{kind} must have shape (N, K)", f"got {shape}", f"write both: {recipe}"):
            read_any(path, kind)

    def test_an_index_that_is_there_twice(self, tmp_path, refuses):
        logits, labels = arrays()
        path = npz(tmp_path / "t.npz", logits=logits, label=labels, index=np.arange(20) % 17)
        with refuses(DataError, "t.npz has index 0 more than once", "give each its own, or leave 'index' out"):
            read_any(path, "logits")

    @pytest.mark.parametrize("name", ["probs", "probabilities"])
    @pytest.mark.parametrize("suffix", ["npz", "parquet"])
    def test_probabilities_that_are_not_stated_are_refused(self, tmp_path, refuses, suffix, name):
        path = file_of(tmp_path / f"p.{suffix}", **{name: np.eye(2)}, label=np.arange(2))
        said = f"{path} is stated to hold logits, but it holds '{name}'"
        with refuses(DataError, said, "--kind probabilities", "kind: probabilities"):
            read_any(path, "logits")

    @pytest.mark.parametrize("suffix", ["npz", "parquet"])
    def test_what_is_stated_counts_and_not_that_the_column_is_named_logits(self, tmp_path, refuses, suffix):
        path = file_of(tmp_path / f"p.{suffix}", logits=np.eye(2, dtype=np.float32), label=np.arange(2))
        assert np.array_equal(read_any(path, "probabilities").probabilities, np.eye(2))
        path = file_of(tmp_path / f"l.{suffix}", logits=3 * np.eye(2, dtype=np.float32), label=np.arange(2))
        with refuses(DataError, "stated to hold probabilities, but row 0 sums to 3"):
            read_any(path, "probabilities")

    @pytest.mark.parametrize("suffix", ["npz", "parquet"])
    def test_of_both_kinds_the_stated_one_is_read(self, tmp_path, suffix):
        logits, labels = arrays()
        shares = np.full((20, 4), 0.25)
        path = file_of(tmp_path / f"p.{suffix}", logits=logits, probabilities=shares, label=labels)
        assert np.array_equal(read_any(path, "logits").logits, logits)
        assert read_any(path, "logits").probabilities is None
        assert np.array_equal(read_any(path, "probabilities").probabilities, shares)

    @pytest.mark.parametrize("suffix", ["npz", "parquet"])
    def test_names_of_labels(self, tmp_path, refuses, suffix):
        logits, labels = arrays()
        for name in ("label", "labels", "y"):
            path = file_of(tmp_path / f"{name}.{suffix}", logits=logits, **{name: labels})
            assert read_any(path, "logits").label.tolist() == labels.tolist()
        same = file_of(tmp_path / f"same.{suffix}", logits=logits, label=labels, y=labels)
        assert read_any(same, "logits").label.tolist() == labels.tolist()
        other = file_of(tmp_path / f"other.{suffix}", logits=logits, label=labels, labels=3 - labels)
        with refuses(DataError, f"{other} holds 'label' and 'labels', which differ"):
            read_any(other, "logits")

    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    @pytest.mark.parametrize("suffix", ["npz", "parquet"])
    def test_probabilities_are_kept_to_the_last_bit(self, tmp_path, suffix, dtype):
        """Shares of votes: their logarithm in float32 would break the ties."""
        shares = (np.random.default_rng(0).multinomial(5, [0.2] * 5, 50) / 5).astype(dtype)
        path = file_of(tmp_path / f"votes.{suffix}", probs=shares, label=np.arange(50) % 5)
        found = predicted(read_any(path, "probabilities"))
        assert found.dtype == dtype
        assert np.array_equal(found, shares)

    def test_rows_that_the_metrics_would_refuse_are_divided_by_their_sum(self, tmp_path):
        path = npz(tmp_path / "p.npz", probs=np.array([[0.5, 0.5], [0.5, 0.5005]]), label=np.array([0, 1]))
        found = predicted(read_any(path, "probabilities"))
        assert found.sum(axis=1) == pytest.approx([1, 1], abs=1e-12)
        assert found[1, 1] == pytest.approx(0.5005 / 1.0005)

    def test_members_that_are_no_arrays(self, tmp_path, refuses):
        path = tmp_path / "t.npz"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("logits", "1 2 3")
        with refuses(DataError, "must hold an array 'logits'", "it holds nothing"):
            read_any(path, "logits")

    def test_a_member_that_is_there_twice(self, tmp_path, refuses):
        logits, labels = arrays()
        path = npz(tmp_path / "t.npz", logits=logits, label=labels)
        with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("logits.npy", archive.read("label.npy"))
        with refuses(DataError, "t.npz has several members named 'logits': keep one"):
            read_any(path, "logits")

    def test_labels_that_count_from_one(self, tmp_path, refuses):
        path = npz(tmp_path / "t.npz", logits=np.zeros((3, 3)), label=np.array([1, 2, 3]))
        with refuses(DataError, "label 3 is outside 0..2", "count from 1, so subtract 1"):
            read_any(path, "logits")

    @pytest.mark.parametrize("name", ["t.npz", "t.parquet", "t.safetensors"])
    def test_a_file_that_may_not_be_read_is_not_called_damaged(self, tmp_path, monkeypatch, name):
        (tmp_path / name).write_bytes(b"closed")

        def closed(path, *_args, **_options):
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(Path, "open", closed)
        with pytest.raises(PermissionError, match=name):
            read_any(tmp_path / name, "logits")

    def test_a_damaged_file_of_yours_is_to_be_written_again(self, tmp_path, refuses):
        (tmp_path / "t.parquet").write_bytes(b"no table")
        with refuses(DataError, "t.parquet is damaged", "write it again"):
            read_any(tmp_path / "t.parquet", "logits")

    @pytest.mark.parametrize(
        ("values", "parts"),
        [
            ([[0.5, 0.5], [0.5, 0.6]], ["row 1 sums to 1.1", "kind: logits"]),
            ([[1.5, -0.5], [0.5, 0.5]], ["smallest value -0.5"]),
            ([[2.0, 3.0], [0.0, 1.0]], ["row 0 sums to 5"]),
        ],
    )
    def test_what_is_no_probability(self, tmp_path, refuses, values, parts):
        path = npz(tmp_path / "p.npz", probs=np.array(values), label=np.array([0, 1]))
        with refuses(DataError, str(path), "is stated to hold probabilities", *parts):
            read_any(path, "probabilities")

    def test_rows_without_a_label(self, tmp_path, refuses):
        path = npz(tmp_path / "t.npz", logits=arrays()[0], label=np.full(20, -1))
        with refuses(DataError, "20 rows have no label (-1)", "cannot be scored"):
            read_any(path, "logits")

    def test_nothing_is_unpickled(self, tmp_path, refuses):
        path = tmp_path / "t.npz"
        np.savez(path, logits=np.array([[1.0, None]], dtype=object), label=np.array([0]))
        with refuses(DataError, f"The file {path} cannot be read"):
            read_any(path, "logits")

    @pytest.mark.parametrize("name", ["t.npz", "t.safetensors", "t.parquet"])
    def test_missing_files_and_folders(self, tmp_path, refuses, name):
        with refuses(DataError, name, "does not exist"):
            read_any(tmp_path / name, "logits")
        (tmp_path / name).mkdir()
        with refuses(DataError, name, "is a folder"):
            read_any(tmp_path / name, "logits")

    @pytest.mark.parametrize("name", ["t.csv", "t", "t.pt"])
    def test_other_kinds_of_file(self, tmp_path, refuses, name):
        (tmp_path / name).touch()
        with refuses(DataError, "unknown file type", "use .parquet, .npz or .safetensors"):
            read_any(tmp_path / name, "logits")
