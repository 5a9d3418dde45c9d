"""Logits files: an exact schema, the same bytes, read by everybody; clear refusals."""

import json
from dataclasses import replace

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.mistakes import cases

from calgrid.errors import DataError
from calgrid.storage.logits import (
    Logits,
    count_groups,
    read_logits,
    read_table,
    validate_logits,
    write_logits,
)

METADATA = {"method": "ce", "seed": 1, "split": "test", "n_classes": 3, "fingerprint": "f1"}
SHARES = np.float32([[0.5, 0.25, 0.25], [1, 0, 0], [0, 0.75, 0.25], [0.1, 0.2, 0.7]])


def make(rows=4, classes=3, **changes):
    rng = np.random.default_rng(0)
    fields = {
        "index": np.arange(rows, dtype=np.int32),
        "label": rng.integers(0, classes, rows).astype(np.int32),
        "logits": rng.normal(size=(rows, classes)).astype(np.float32),
        "metadata": METADATA,
    }
    return Logits(**{**fields, **changes})


def family(rows=4):
    return {
        "shift": np.array(["noise", "blur", "noise", "noise"] * (rows // 4)),
        "severity": np.array([2, 1, 2, 1] * (rows // 4), dtype=np.int8),
    }


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "logits" / "last" / "test.parquet"


def foreign(path, **columns):
    """A file that somebody else wrote, with plain types and several row groups."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=2)


def assert_same(left, right):
    for name in ("index", "label", "logits", "shift", "severity", "features", "distribution"):
        one, two = getattr(left, name), getattr(right, name)
        assert (one is None) == (two is None), name
        if one is not None:
            assert np.array_equal(one, two), name
            assert one.dtype.kind == two.dtype.kind
    assert dict(left.metadata) == dict(right.metadata)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"features": np.arange(8, dtype=np.float32).reshape(4, 2)},
        family(),
        {**family(), "features": np.ones((4, 1), dtype=np.float32)},
        {"label": np.full(4, -1, dtype=np.int32), "metadata": {}},
        {"logits": np.float32([[0, -np.inf, 1]] * 4)},  # an impossible class
        {"distribution": SHARES},
    ],
)
def test_round_trip(path, changes):
    data = make(**changes)
    write_logits(path, data)
    assert_same(read_logits(path), data)


@settings(deadline=None, max_examples=30)
@given(
    arrays(
        np.float32,
        st.tuples(st.integers(1, 6), st.integers(2, 5)),
        elements=st.floats(-(2.0**99), 2.0**99, width=32),
    )
)
def test_every_finite_float_comes_back_to_the_last_bit(tmp_path_factory, values):
    path = tmp_path_factory.getbasetemp() / "any.parquet"
    write_logits(path, make(*values.shape, logits=values))
    assert read_logits(path).logits.tobytes() == values.tobytes()


def test_exact_schema(path):
    features = np.ones((4, 5), dtype=np.float32)
    write_logits(path, make(**family(), features=features, distribution=SHARES))
    schema = pq.read_schema(path)
    assert list(zip(schema.names, schema.types, strict=True)) == [
        ("index", pa.int32()),
        ("label", pa.int32()),
        ("logits", pa.list_(pa.float32(), 3)),
        ("shift", pa.dictionary(pa.int32(), pa.string())),
        ("severity", pa.int8()),
        ("features", pa.list_(pa.float32(), 5)),
        ("distribution", pa.list_(pa.float32(), 3)),
    ]
    assert list(schema.metadata) == [b"calgrid"]
    assert json.loads(schema.metadata[b"calgrid"]) == METADATA
    logits = pq.ParquetFile(path).metadata.row_group(0).column(2)
    assert (logits.path_in_schema, logits.compression) == ("logits.list.element", "ZSTD")
    assert "BYTE_STREAM_SPLIT" in logits.encodings


def test_the_same_data_give_the_same_bytes(path, tmp_path):
    write_logits(path, make(**family()))
    other = tmp_path / "other.parquet"
    write_logits(other, make(**family(), metadata=dict(reversed(METADATA.items()))))
    assert other.read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (family(), [("noise", 2, [0, 2]), ("blur", 1, [1]), ("noise", 1, [3])]),
        ({}, [("", 0, [0, 1, 2, 3])]),  # a split has one condition without a name
    ],
)
def test_conditions_in_order_of_appearance(columns, expected):
    found = make(**columns).conditions()
    assert [(*condition, rows.tolist()) for *condition, rows in found] == expected


def test_pandas_polars_and_duckdb_read_it_in_one_line(path):
    data = make(**family())
    write_logits(path, data)
    frames = (
        pd.read_parquet(path),
        pl.read_parquet(path),
        duckdb.sql(f"from '{path}' order by index").df(),
    )
    for frame in frames:
        assert np.array_equal(np.stack(frame["logits"].to_numpy()), data.logits)
        assert list(frame["shift"]) == data.shift.tolist()
        assert list(frame["severity"]) == data.severity.tolist()


class TestFilesOfSomebodyElse:
    VALUES = ((0.5, -1.0), (2.0, 3.0), (0.0, 1.5))

    @pytest.mark.parametrize(
        "kind",
        [
            pa.list_(pa.float64()),
            pa.large_list(pa.float64()),
            pa.list_(pa.float32()),
            pa.list_(pa.float64(), 2),
            pa.list_(pa.float16()),
        ],
        ids=str,
    )
    def test_plain_lists_and_wide_labels_are_read(self, path, kind):
        values = [[np.float16(v) if "half" in str(kind) else v for v in row] for row in self.VALUES]
        shift = {"shift": ["b", "a", "b"], "severity": [1, 1, 1]}
        foreign(path, label=pa.array([0, 1, 1], pa.int64()), logits=pa.array(values, kind), **shift)
        data = read_logits(path)
        assert data.logits.dtype == np.float32
        assert data.logits.tolist() == [list(row) for row in self.VALUES]
        assert data.label.tolist() == [0, 1, 1]
        assert data.index.tolist() == [0, 1, 2]
        found = [(name, rows.tolist()) for name, _, rows in data.conditions()]
        assert found == [("b", [0, 2]), ("a", [1])]
        assert data.metadata == {}

    @pytest.mark.parametrize(("library", "write"), [(pd, "to_parquet"), (pl, "write_parquet")])
    def test_a_frame(self, tmp_path, library, write):
        frame = library.DataFrame(
            {"label": [0, 1], "logits": [[0.5, 1.0], [2.0, 3.0]], "note": ["a", "b"]}
        )
        getattr(frame, write)(tmp_path / "test.parquet")
        assert read_logits(tmp_path / "test.parquet").logits.tolist() == [[0.5, 1.0], [2.0, 3.0]]

    def test_folders_named_like_partitions_add_no_columns(self, tmp_path):
        path = tmp_path / "label=7" / "seed=1" / "test.parquet"
        write_logits(path, make())
        assert read_table(path).column_names == ["index", "label", "logits"]


GOOD = {"label": [0, 1, 1], "logits": [[0.5, -1.0], [2.0, 3.0], [0.0, 1.5]]}


@pytest.mark.parametrize(
    ("columns", "parts"),
    cases(
        """
logits: [[0.0, 1.0], [.nan, 1.0], [.nan, .nan]]
    2 rows of logits hold NaN or infinity ... first is row 1
logits: [[0.0, 1.0], [0.0, 1.0], [.inf, 1.0]]
    1 rows of logits hold NaN or infinity ... first is row 2
logits: [[-.inf, -.inf], [0.0, 1.0], [0.0, 1.0]]
    first is row 0 (counted from 0); -inf is allowed only beside a finite logit
logits: [[0.0, 1.0e+300], [0.0, 1.0], [0.0, 1.0]]
    NaN or infinity ... first is row 0
logits: [[0.0, null], [0.0, 1.0], [0.0, 1.0]]
    NaN or infinity ... first is row 0
logits: [[0.0, 1.0], [0.0, 1.0, 2.0], [0.0, 1.0]]
    'logits' ... rows of different length (2 to 3)
logits: [[0.0, 1.0], null, [0.0, 1.0]]
    'logits' ... has no value in 1 of 3 rows
logits: [[0.0], [1.0], [2.0]]
    logits have 1 columns, expected at least 2
logits: [0.5, 1.0, 1.5]
    'logits' ... must hold a list of numbers a row ... double
label: [0, 1, 2]
    label 2 in row 2 (counted from 0) is outside 0..1 (or -1 for none)
label: [0, -2, 1]
    label -2 in row 1 (counted from 0) is outside 0..1
label: [0, 4294967296, 1]
    label 4294967296 in row 1
label: [0.0, 1.0, 1.0]
    labels must be integers, got float64
label: [0, null, 1]
    'label' ... in 1 of 3 rows, the first is row 1 (counted from 0)
index: [0, null, 1]
    'index' ... has no value in 1 of 3 rows
index: [0, 1099511627776, 1]
    'index' must hold integers of 32 bits, got 0 to 1099511627776
index: [a, b, c]
    'index' must hold integers ... got object ... correct or omit 'index'
index: [[0], [1], [2]]
    'index' ... must hold one value a row, it holds list<
{shift: [a, a, b], severity: [1, 300, 1]}
    'severity' must hold integers of 8 bits, got 1 to 300
label: null
    has no column 'label' (it has logits)
logits: null
    has no column 'logits' (it has label)
features: [[1.0], [1.0, 2.0], [1.0]]
    'features' ... different length
"""
    ),
)
def test_what_is_wrong_with_a_file_is_said_in_one_sentence(path, refuses, columns, parts):
    given = {name: values for name, values in {**GOOD, **columns}.items() if values is not None}
    foreign(path, **given)
    with refuses(DataError, str(path), *parts):
        read_logits(path)


def test_a_file_without_rows_is_refused(path, refuses):
    foreign(path, label=pa.array([], pa.int32()), logits=pa.array([], pa.list_(pa.float32(), 3)))
    with refuses(DataError, str(path), "with N >= 1"):
        read_logits(path)


def test_a_missing_or_damaged_file_and_a_folder_are_refused(path, tmp_path, refuses):
    with refuses(DataError, f"The logits file {path} does not exist"):
        read_logits(path)
    write_logits(path, make())
    for content in (path.read_bytes()[:-30], b"label,logits\n" * 9, b""):
        path.write_bytes(content)
        said = f"The logits file {path} is damaged or no Parquet file"
        with refuses(DataError, said, "calgrid verify STUDY --delete"):
            read_logits(path)
    with refuses(DataError, f"The logits file {tmp_path} is a folder"):
        read_logits(tmp_path)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"label": np.zeros(3, dtype=int)}, "3 values of 'label' for 4 rows of logits"),
        ({"index": np.arange(5)}, "5 values of 'index' for 4 rows of logits"),
        ({"label": np.zeros((4, 1), dtype=int)}, "'label' has the wrong shape (4, 1)"),
        ({"features": np.zeros(4)}, "'features' has the wrong shape (4,)"),
        ({"logits": np.zeros(4)}, "logits must have shape (N, K) ... (4,)"),
        ({"logits": np.full((4, 3), np.nan)}, "4 rows of logits hold NaN"),
        ({"distribution": SHARES[:, :2]}, "must have the shape (4, 3), ... got (4, 2)"),
        ({"distribution": SHARES[:3]}, "3 values of 'distribution' for 4 rows"),
        ({"distribution": SHARES[0]}, "'distribution' has the wrong shape"),
        ({"distribution": SHARES * [[1], [1], [2], [0.5]]}, "2 rows of ... the first is row 2"),
        ({"distribution": SHARES + np.array([1, -1, 0])}, "negative somewhere or do not sum to 1"),
        ({"distribution": np.where(SHARES == 0.75, np.nan, SHARES)}, "the first is row 2"),
    ],
)
def test_wrong_arrays_are_not_written(path, refuses, changes, parts):
    with refuses(DataError, str(path), parts):
        write_logits(path, make(**changes))
    assert not path.exists()


def test_files_that_belong_together_have_the_same_classes(refuses):
    with refuses(DataError, "val.parquet: logits have 3 columns, expected 5 as in the other files"):
        validate_logits(make(), "val.parquet", n_classes=5)


@pytest.mark.parametrize("content", [b"no JSON", b"[1]", b"\xff", b"[" * 100_000])
def test_metadata_that_somebody_else_wrote_under_our_name_is_none(path, content):
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table(GOOD).replace_schema_metadata({"calgrid": content}), path)
    assert read_logits(path).metadata == {}


def test_two_columns_of_one_name_are_refused(path, refuses):
    path.parent.mkdir(parents=True)
    labels = pa.array(GOOD["label"])
    pq.write_table(
        pa.table([labels, labels, pa.array(GOOD["logits"])], names=["label", "label", "logits"]),
        path,
    )
    with refuses(DataError, f"{path} has 2 columns named 'label'; keep one"):
        read_logits(path)


def test_probabilities_are_written_as_they_are_beside_their_logarithm(path):
    shares = SHARES.astype(np.float64) / SHARES.sum(axis=1, keepdims=True, dtype=np.float64)
    write_logits(path, make(probabilities=shares))
    column = pq.read_table(path).column("probabilities").combine_chunks()
    assert column.type == pa.list_(pa.float64(), 3)
    assert np.array_equal(column.flatten().to_numpy().reshape(shares.shape), shares)
    assert_same(read_logits(path), make())


def test_parts_are_read_one_by_one_or_all_together(path):
    whole = make(8, **family(8), features=np.arange(16, dtype=np.float32).reshape(8, 2))
    parts = [whole.rows(np.arange(begin, begin + 4)) for begin in (0, 4)]
    write_logits(path, (replace(part, metadata=METADATA) for part in parts))
    assert count_groups(path) == 2
    assert_same(read_logits(path), whole)
    for number, part in enumerate(parts):
        assert_same(read_logits(path, number), replace(part, metadata=METADATA))


def test_a_part_that_is_wrong_leaves_no_file(path):
    parts = [make(), make(label=np.full(4, 7, dtype=np.int32))]
    with pytest.raises(DataError, match=r"label 7 in row 0 \(counted from 0\) is outside"):
        write_logits(path, iter(parts))
    assert not path.exists()
    assert not list(path.parent.iterdir())
