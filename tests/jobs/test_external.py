"""Logits made elsewhere: read as they are, split without leaks, published like those of a run of
ours.
"""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.jobs.small import import_run
from tests.logits.user_files import arrays, npz
from tests.metrics.cases import softmax

from calgrid.errors import DataError, StateError
from calgrid.logits.entry import split_rows
from calgrid.storage.arrays import read_head
from calgrid.storage.logits import Logits, read_logits
from calgrid.storage.records import logits_files

OUTPUTS = logits_files(["last"])
KEY = {"protocol": "external", "dataset": "cifar10", "backbone": "vit", "method": "ce", "seed": 1}


@pytest.fixture
def rows_file(tmp_path):
    logits, labels = arrays()
    return npz(tmp_path / "test.npz", logits=logits, label=labels)


@pytest.fixture
def val_file(tmp_path):
    logits, labels = arrays(rows=8, seed=1)
    return npz(tmp_path / "val.npz", logits=logits, label=labels)


def spec(**external):
    return {
        "key": KEY,
        "external": {"kind": "logits", "test": "test.npz", **external},
        "fingerprint": "f1",
    }


def published(out):
    return [read_logits(out / f"logits/last/{name}.parquet") for name in ("val", "test")]


class TestValidationRows:
    def test_smaller_sets_lie_within_larger_ones(self, tmp_path, val_file, rows_file):
        kept = {}
        for rows in (3, 5):
            out = tmp_path / f"run{rows}"
            import_run(spec(val="val.npz", val_rows=rows, val_seed=1), [val_file, rows_file], out)
            val, test = published(out)
            kept[rows] = set(val.index)
            assert (len(val), len(test)) == (rows, 20)
            assert list(val.index) == sorted(val.index)
        assert kept[3] < kept[5]

        with pytest.raises(DataError, match="val_rows 9 is more than the 8 val rows"):
            import_run(
                spec(val="val.npz", val_rows=9, val_seed=1), [val_file, rows_file], tmp_path / "run"
            )


class TestOrder:
    def test_rows_are_in_the_order_of_their_index(self, tmp_path, val_file):
        logits, labels = arrays()
        order = np.random.default_rng(3).permutation(len(labels))
        rows = npz(tmp_path / "test.npz", logits=logits[order], label=labels[order], index=order)
        import_run(spec(val="val.npz"), [val_file, rows], tmp_path / "run")
        _, test = published(tmp_path / "run")
        assert test.index.tolist() == list(range(len(labels)))
        np.testing.assert_array_equal(test.label, labels)
        np.testing.assert_allclose(test.logits, logits, atol=1e-6)


class TestHead:
    def test_the_last_layer_is_published_beside_the_logits(self, tmp_path, val_file, rows_file):
        weight, bias = np.arange(12.0).reshape(4, 3), np.arange(4.0)
        head = npz(tmp_path / "head.npz", weight=weight, bias=bias)
        import_run(
            spec(val="val.npz", head="head.npz"), [val_file, rows_file, head], tmp_path / "run"
        )
        found = read_head(tmp_path / "run" / "logits/last/head.safetensors", "f1")
        assert np.array_equal(found[0], weight)
        assert np.array_equal(found[1], bias)
        with pytest.raises(StateError, match="belongs to another configuration"):
            read_head(tmp_path / "run" / "logits/last/head.safetensors", "f2")

    def test_no_file_is_no_head_and_one_without_weight_or_bias_or_a_damaged_one_is_named(
        self, tmp_path, rows_file
    ):
        head = npz(tmp_path / "head.npz", weights=np.zeros((4, 3)))
        with pytest.raises(DataError, match=r"must contain 'weight' .* it contains weights"):
            import_run(
                spec(head="head.npz", split_seed=1, val_fraction=0.5),
                [rows_file, head],
                tmp_path / "run",
            )
        assert not (tmp_path / "run" / "predict.json").exists()
        assert read_head(tmp_path / "head.safetensors", "f") is None
        (tmp_path / "head.safetensors").write_bytes(b"no tensors")
        with pytest.raises(StateError, match="is damaged"):
            read_head(tmp_path / "head.safetensors", "f")


class TestImport:
    def test_val_and_test_are_published_like_those_of_a_run(self, tmp_path, val_file, rows_file):
        out = tmp_path / "run"
        assert import_run(spec(val="val.npz"), [val_file, rows_file], out)
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
        record = json.loads((out / "predict.json").read_text())
        assert record["fingerprint"] == record["spec"]["fingerprint"] == "f1"
        assert record["seconds"] > 0
        assert record["peak_memory_mb"] > 10
        assert "cpu" in record["environment"]

    def test_rows_of_test_that_are_rows_of_val_too_publish_nothing(
        self, tmp_path, rows_file, refuses
    ):
        logits, labels = arrays()
        val = npz(tmp_path / "val.npz", logits=logits[::-1][:10], label=labels[::-1][:10])
        with refuses(DataError, "val.npz and", "test.npz share rows", "give other rows as test"):
            import_run(spec(val="val.npz"), [val, rows_file], tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_without_val_the_test_rows_are_split_with_their_features(self, tmp_path):
        logits, labels = arrays()
        features = np.arange(60, dtype=np.float64).reshape(20, 3)
        path = npz(tmp_path / "test.npz", logits=logits, label=labels, features=features)
        import_run(spec(split_seed=3, val_fraction=0.25), [path], tmp_path / "run")
        val, test = published(tmp_path / "run")
        assert (len(val), len(test)) == (5, 15)
        assert sorted([*val.index, *test.index]) == list(range(20))
        for part in (val, test):
            assert np.array_equal(part.logits, logits[part.index])
            assert np.array_equal(part.label, labels[part.index])
            assert np.array_equal(part.features, features[part.index])

    def test_probabilities_become_their_logarithm(self, tmp_path):
        logits, labels = arrays()
        path = npz(tmp_path / "probs.npz", probs=softmax(logits), labels=labels)
        import_run(
            spec(split_seed=0, val_fraction=0.5, kind="probabilities"), [path], tmp_path / "run"
        )
        _, test = published(tmp_path / "run")
        assert softmax(test.logits) == pytest.approx(softmax(logits)[test.index], abs=1e-6)
        assert "probabilities" not in pq.read_schema(tmp_path / "run" / OUTPUTS[1]).names

    def test_files_and_names_are_those_of_the_entry(self, tmp_path):
        logits, labels = arrays()
        files = {
            "val": "v.npz",
            "val_labels": "y.npz",
            "test": "z.npz",
            "test_labels": "y.npz",
            "head": "h.npz",
        }
        npz(tmp_path / "v.npz", logits=logits + 1)
        npz(tmp_path / "z.npz", logits=logits)
        npz(tmp_path / "y.npz", label=np.array(list("abcd"))[labels])
        npz(tmp_path / "h.npz", weight=np.zeros((4, 3)), bias=np.zeros(4))
        given = [tmp_path / name for name in files.values()]
        import_run(spec(**files, classes=list("abcd")), given, tmp_path / "run")
        for part, added in zip(published(tmp_path / "run"), [1, 0], strict=True):
            assert np.array_equal(part.logits, logits + np.float32(added))
            assert part.label.tolist() == labels.tolist()
            assert part.metadata["classes"] == list("abcd")
        assert read_head(tmp_path / "run" / "logits/last/head.safetensors", "f1") is not None

    def test_val_and_test_of_different_classes_publish_nothing(self, tmp_path, val_file, refuses):
        logits, labels = arrays(classes=3)
        other = npz(tmp_path / "other.npz", logits=logits, label=labels)
        with refuses(
            DataError, "val.npz has 4 classes, but ", "other.npz has 3; give files of one model"
        ):
            import_run(spec(val="val.npz"), [val_file, other], tmp_path / "run")
        assert not any((tmp_path / "run" / name).exists() for name in OUTPUTS)


class TestSplit:
    @staticmethod
    def data(rows):
        logits, labels = arrays(rows)
        return Logits(np.arange(rows, dtype=np.int32) * 10, labels.astype(np.int32), logits)

    @settings(deadline=None, max_examples=50)
    @given(st.integers(2, 60), st.integers(0, 2**32 - 1), st.floats(0.05, 0.95))
    @example(1, 0, 0.5)
    @example(3, 0, 0.01)
    @example(3, 0, 0.99)
    def test_every_row_is_in_one_part_in_its_old_order(self, rows, seed, fraction):
        data = self.data(rows)
        if not 0 < round(rows * fraction) < rows:
            with pytest.raises(
                DataError,
                match=f"{rows} rows cannot be split with val_fraction {fraction}: one part",
            ):
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
