"""Records: one flipped bit in a published file, or in the record itself, is refused by name."""

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.numpy import save_file
from tests.conftest import flip

from calgrid.errors import DataError, StateError
from calgrid.storage.arrays import read_arrays, write_arrays
from calgrid.storage.checkpoint import (
    load_checkpoint,
    load_resume_state,
    save_checkpoint,
    save_resume_state,
)
from calgrid.storage.records import FILES, Record, listed, read_record, verified, write_record
from calgrid.storage.tables import read_frame, write_frame


def damages(path, count=60, bits=()):
    """Damage a file in many ways, one at a time: cut it off, or flip a bit; mend it in the end."""
    right = path.read_bytes()
    for keep in (0, 4, 40, -1):
        yield path.write_bytes(right[:keep])
    drawn = np.random.default_rng(0).choice(8 * len(right), count, replace=False)
    for bit in [*bits, *drawn.tolist()]:
        path.write_bytes(right)
        yield flip(path, bit)
    path.write_bytes(right)


@pytest.fixture
def root(tmp_path):
    write_frame(tmp_path / "metrics.parquet", pd.DataFrame({"value": np.arange(100.0)}))
    write_record(
        tmp_path / "stage.json",
        {FILES: listed(tmp_path, ["metrics.parquet"]), "seconds": 1.5, "μ": (1, None)},
    )
    return tmp_path


def test_no_byte_of_a_record_can_change_its_content(root):
    """A bit of each byte, the eight of them in turn."""
    path = root / "stage.json"
    right, content = path.read_bytes(), read_record(path)
    assert (content["seconds"], content["μ"]) == (1.5, [1, None])
    for byte in range(len(right)):
        flip(path, 8 * byte + byte % 8)
        try:
            # é and É of an escape: other bytes for the same content
            assert read_record(path) == content
        except DataError as error:
            assert str(path) in str(error)
        path.write_bytes(right)


@pytest.mark.parametrize(
    "content", ["[]", "null", "3", '"text"', "{}", "", "[" * 100_000, '{"a": ' * 100_000]
)
def test_a_record_that_is_none_is_refused(root, refuses, content):
    path = root / "stage.json"
    path.write_text(content)
    with refuses(DataError, f"The stage record {path} ", "calgrid verify STUDY --delete"):
        Record.read(root, "stage.json")
    path.unlink()
    path.mkdir()
    with refuses(DataError, f"The stage record {path} is a folder", "calgrid verify STUDY"):
        Record.read(root, "stage.json")


@pytest.mark.parametrize("name", ["/etc/hostname", "../x", "a/../x", "a/..", "a\\x", "..\\x"])
def test_a_record_of_files_outside_of_its_folder_is_refused(root, refuses, name):
    path = root / "stage.json"
    write_record(path, {FILES: {"a..b/c.x": {}, name: {"bytes": 1, "sha256": ""}}})
    with refuses(DataError, f"The stage record {path} lists {name!r}, outside of its folder"):
        Record.read(root, "stage.json")


def test_every_bit_of_a_listed_file_counts(root, refuses):
    path = root / "metrics.parquet"
    assert verified(root, "stage.json", path.name) == path
    assert Record.read(root, "stage.json").damaged() == []
    for _ in damages(path):
        with refuses(StateError, f"The table {path} is damaged", "calgrid verify STUDY --delete"):
            verified(root, "stage.json", path.name, "table")
        assert Record.read(root, "stage.json").damaged() == [path.name]


def test_bits_of_the_data_of_a_table_count_without_a_record(root, refuses):
    """Where a table was copied away from its record: Parquet's own checksums of pages."""
    path = root / "metrics.parquet"
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    flip(path, 8 * (column.data_page_offset + column.total_compressed_size - 4))
    with refuses(DataError, f"The table {path} is damaged"):
        read_frame(path)


def test_a_file_that_is_missing_or_not_listed_is_named(root, refuses):
    (root / "metrics.parquet").unlink()
    with refuses(DataError, f"The table {root / 'metrics.parquet'} does not exist", "run again"):
        verified(root, "stage.json", "metrics.parquet", "table")
    with refuses(StateError, "does not list other.parquet"):
        verified(root, "stage.json", "other.parquet")
    with refuses(DataError, "The other record"):
        Record.read(root, "other.json")
    assert verified(root, "other.json", "copy.parquet") == root / "copy.parquet"


ARRAYS = {
    "b": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a": np.float64(2.5),
    "empty": np.zeros((0, 3), np.int64),
}


def test_arrays_round_trip_with_any_shape(tmp_path):
    write_arrays(tmp_path / "x.safetensors", ARRAYS, {"id": "ts", "K": 3})
    arrays, description = read_arrays(tmp_path / "x.safetensors", "file")
    assert description == {"id": "ts", "K": 3}
    for name, values in ARRAYS.items():
        assert arrays[name].dtype == values.dtype
        np.testing.assert_array_equal(arrays[name], values)


@pytest.mark.parametrize(
    ("write", "read"),
    [
        (
            lambda path: write_arrays(path, ARRAYS, {"id": "ts"}),
            lambda path: read_arrays(path, "file"),
        ),
        (lambda path: save_checkpoint(path, {"a": {"w": torch.randn(20)}}, {}), load_checkpoint),
    ],
    ids=["arrays", "checkpoint"],
)
def test_every_bit_of_a_file_of_arrays_counts(tmp_path, refuses, write, read):
    path = tmp_path / "x.safetensors"
    write(path)
    for _ in damages(path, bits=range(64)):
        with refuses(StateError, f"{path} is damaged", "calgrid verify STUDY --delete"):
            read(path)


def test_a_description_that_is_nested_too_deeply_is_damage(tmp_path, refuses):
    path = tmp_path / "x.safetensors"
    save_file({"w": np.ones(2)}, path, metadata={"calgrid": "[" * 100_000})
    with refuses(StateError, f"The file {path} is damaged (it is nested too deeply)"):
        read_arrays(path, "file")


def test_every_bit_of_a_resume_state_counts(tmp_path, capsys):
    path = tmp_path / "resume.pt"
    save_resume_state(path, {"epoch": 3, "states": {"w": torch.ones(100)}})
    for _ in damages(path):
        assert load_resume_state(path) is None
        message = "is damaged: it is deleted and the run starts from its beginning."
        assert f"The resume state {path} {message}" in capsys.readouterr().err
        assert not path.exists()
    assert load_resume_state(path)["epoch"] == 3
