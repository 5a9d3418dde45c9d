"""Result tables: tidy, small, the same bytes, never of another configuration."""

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calgrid.errors import StateError
from calgrid.storage.tables import (
    as_table,
    join_any,
    read_frame,
    read_result,
    read_rows,
    table_of_rows,
    to_table,
    with_columns,
    write_frame,
    writing,
)


@pytest.fixture
def frame():
    return pd.DataFrame(
        {
            "method": ["ce", "mbls", "ce"],
            "seed": np.array([1, 2, 3], dtype=np.int64),
            "severity": np.array([0, 1, 2], dtype=np.int8),
            "value": [0.1, np.nan, 0.3],
            "shift": ["", "noise", ""],
        },
        index=[7, 8, 9],
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "study" / "metrics.parquet"


@pytest.mark.parametrize("kind", ["str", "object", "category"])
def test_round_trip_without_the_index_and_with_strings_stored_once(path, frame, kind):
    write_frame(path, frame.astype({"method": kind}))
    assert pa.types.is_dictionary(pq.read_schema(path).field("method").type)
    pd.testing.assert_frame_equal(read_frame(path), frame.reset_index(drop=True), check_dtype=False)
    assert read_frame(path)["method"].dtype == "str"
    assert read_frame(path)["severity"].dtype == np.int8
    write_frame(path, frame.iloc[:0])
    pd.testing.assert_frame_equal(
        read_frame(path), frame.iloc[:0], check_dtype=False, check_index_type=False
    )


def test_the_same_rows_give_the_same_bytes(path, frame, tmp_path):
    write_frame(path, frame, {"fingerprint": "f1", "a": 1})
    other = tmp_path / "other.parquet"
    write_frame(other, frame.reset_index(drop=True), {"a": 1, "fingerprint": "f1"})
    assert other.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("found", ["f1", None])
def test_a_table_of_another_configuration_is_refused(path, frame, refuses, found):
    write_frame(path, frame, {"fingerprint": found} if found else {})
    said = f"The metrics file {path} ... fingerprint {found}, expected f2"
    with refuses(StateError, said, "calgrid verify STUDY --delete"):
        read_frame(path, "metrics file", fingerprint="f2")
    write_frame(path, frame, {"fingerprint": "f2"})
    assert len(read_frame(path, fingerprint="f2")) == 3


# piece by piece


def test_pieces_of_a_small_table_give_the_bytes_of_the_whole(path, frame, tmp_path):
    write_frame(path, pd.concat([frame, frame.assign(method="ls"), frame.iloc[:0]]))
    with writing(tmp_path / "pieces.parquet") as writer:
        for piece in (frame, frame.assign(method="ls"), frame.iloc[:0]):
            writer.add(to_table(piece))
    assert (tmp_path / "pieces.parquet").read_bytes() == path.read_bytes()


def test_a_large_table_is_written_in_row_groups_and_read_as_one(path, frame, monkeypatch):
    monkeypatch.setattr("calgrid.storage.tables.PIECE_ROWS", 6)
    with writing(path) as writer:
        for number in range(5):
            writer.add(to_table(frame.assign(method=f"m{number}")))
    file = pq.ParquetFile(path)
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [6, 6, 3]
    assert read_frame(path)["method"].tolist() == [
        f"m{number}" for number in range(5) for _ in range(3)
    ]
    # other programs read it in one line
    assert pd.read_parquet(path)["method"].tolist() == read_frame(path)["method"].tolist()
    assert pl.read_parquet(path).filter(pl.col("method") == "m3")["seed"].to_list() == [1, 2, 3]
    assert duckdb.sql(f"select count(*) from '{path}' where method = 'm3'").fetchall() == [(3,)]


def test_an_error_on_the_way_leaves_the_old_table(path, frame):
    write_frame(path, frame)
    before = path.read_bytes()
    with pytest.raises(RuntimeError), writing(path) as writer:
        writer.add(to_table(frame.assign(method="new")))
        raise RuntimeError
    assert path.read_bytes() == before


def test_rows_become_the_columns_that_are_asked_for():
    rows = [{"item": "ts", "seconds": 1}, {"item": None, "seconds": 0.5}, {"seconds": None}]
    table = table_of_rows(rows, {"item": "str", "seconds": "float64", "epochs": "float64"})
    assert table.column_names == ["item", "seconds", "epochs"]
    assert table.column("item").to_pylist() == ["ts", None, None]
    assert table.column("seconds").to_pylist() == [1.0, 0.5, None]
    assert table.schema.field("epochs").type == pa.float64()


@pytest.mark.parametrize("columns", [{"colour": "str"}, {"method": "float64"}])
def test_other_columns_are_refused(path, frame, columns, refuses):
    write_frame(path, frame)
    with refuses(StateError, f"The metrics file {path}", "columns", "delete it and run again"):
        read_result(path, "metrics file", columns=columns)
    found = read_result(path, columns={"seed": "int64", "method": "str"})
    assert found.column_names == ["seed", "method"]


def test_tables_of_other_columns_are_joined_and_what_they_lack_is_missing():
    one = with_columns(
        pa.table({"x": [1, 2], "word": pa.array(["a", "b"]).dictionary_encode()}), {"run": "first"}
    )
    other = with_columns(pa.table({"y": [0.5], "word": ["a"]}), {"run": "second"})
    found = join_any([one, other]).to_pandas()
    assert found["run"].tolist() == ["first", "first", "second"]
    assert found["word"].tolist() == ["a", "b", "a"]
    assert found["x"].tolist()[:2] == [1, 2]
    assert found["x"].isna().tolist() == [False, False, True]
    assert found["y"].isna().tolist() == [True, True, False]
    assert str(found["word"].dtype) == "category"


def test_rows_of_some_values_are_read_from_every_row_group(tmp_path, refuses):
    frame = pd.DataFrame(
        {"word": list("abcabc"), "level": [1, 1, 2, 2, 3, 3], "value": np.arange(6.0)}
    )
    with pq.ParquetWriter(tmp_path / "t.parquet", to_table(frame).schema) as writer:
        for rows in (frame[:2], frame[2:]):  # whose words have other numbers
            writer.write_table(to_table(rows))
    found = read_rows(tmp_path / "t.parquet", "table", {"word": ("a", "c", "x"), "level": (2, 3)})
    assert found.value.tolist() == [2.0, 3.0, 5.0]
    assert (found.word.tolist(), found.level.tolist()) == (["c", "a", "c"], [2, 2, 3])
    words = read_rows(tmp_path / "t.parquet", "table", {"level": (2, 1)}, ["word"], distinct=True)
    assert words["word"].tolist() == ["a", "b", "c"]
    assert read_rows(tmp_path / "t.parquet", "table", {"word": ("x",)}).dtypes["word"] == "str"
    with refuses(StateError, "The table", "lacks the column colour", "delete it and run again"):
        read_rows(tmp_path / "t.parquet", "table", {"colour": ("red",)})
    # a column without values
    write_frame(tmp_path / "t.parquet", pd.DataFrame({"word": [None], "value": [1.0]}))
    assert read_rows(tmp_path / "t.parquet", "table", {"word": ("a",), "value": (1.0,)}).empty


def test_a_frame_without_rows_becomes_a_table_of_the_same_types():
    columns = {"word": "str", "value": "float64"}
    filled = as_table(pd.DataFrame({"word": ["a"], "value": [1.0]}), columns)
    assert as_table(pd.DataFrame({"word": [], "value": []}), columns).schema.equals(filled.schema)
