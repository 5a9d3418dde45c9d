"""Logits from a loop over batches are read as they were, and what is none is refused."""

import numpy as np
import pytest
import torch

import calgrid
from calgrid.errors import DataError
from calgrid.logits.reading import read_any
from calgrid.storage.logits import NO_LABEL

LOGITS = np.array([[2.0, -1.0, 0.5], [0.0, 3.0, -2.0], [1.0, 1.5, 4.0], [-3.0, 0.0, 0.25]])
LABELS = np.array([0, 1, 2, 1])
NAMES = ["cat", "dog", "fox"]


@pytest.mark.parametrize(
    ("logits", "labels"),
    [
        (LOGITS, LABELS),
        (LOGITS.tolist(), LABELS.tolist()),
        (LOGITS, [NAMES[label] for label in LABELS]),
        ([LOGITS[:3], LOGITS[3:]], [LABELS[:3], LABELS[3:]]),
        (
            [torch.tensor(LOGITS[:3], requires_grad=True), torch.tensor(LOGITS[3:])],
            [torch.tensor(LABELS[:3]), torch.tensor(LABELS[3:])],
        ),
        (list(torch.tensor(LOGITS, dtype=torch.bfloat16).split(2)), torch.tensor(LABELS)),
    ],
    ids=["arrays", "lists", "names", "batches", "tensors", "bfloat16"],
)
def test_what_is_written_is_read(tmp_path, logits, labels):
    path = tmp_path / "val.parquet"
    calgrid.write_logits(path, logits, labels, classes=NAMES)
    data = read_any(path, None)
    assert data.logits.tolist() == LOGITS.tolist()  # all are exact in bfloat16
    assert data.label.tolist() == LABELS.tolist()
    assert data.metadata["classes"] == NAMES


def test_labels_names_and_features_are_optional(tmp_path):
    path = tmp_path / "val.parquet"
    calgrid.write_logits(path, LOGITS)
    data = read_any(path, None, labelled=False)
    assert data.label.tolist() == [NO_LABEL] * 4
    assert "classes" not in data.metadata
    calgrid.write_logits(path, LOGITS, LABELS, features=[LOGITS[:1], LOGITS[1:]])
    assert read_any(path, None).features.tolist() == LOGITS.tolist()


def test_what_is_no_file_of_logits_is_refused_before_it_is_written(tmp_path, refuses):
    path = tmp_path / "val.parquet"
    for arguments, parts in (
        ((path.with_suffix(".csv"), LOGITS, LABELS), ["let the name end with .parquet"]),
        ((path, LOGITS, LABELS, ["cat", "dog"]), ["one different name per column", "got 2"]),
        ((path, LOGITS, LABELS[:3]), ["3 values of 'label' for 4 rows"]),
        ((path, LOGITS, LABELS + 1), ["they seem to count from 1"]),
        ((path, np.full((4, 2), 0.5), LABELS % 2), ["every row is non-negative and sums to 1"]),
        ((path, [LOGITS, LOGITS[:, :2]], LABELS), ["The batches of logits do not fit together"]),
    ):
        with refuses(DataError, *parts):
            calgrid.write_logits(*arguments)
    assert not list(tmp_path.iterdir())
