"""What docs/ say of files is what the files hold."""

import re

import pytest
from tests.conftest import HOME

from calgrid.storage import schema
from calgrid.storage.logits import COLUMNS

PAGE = (HOME / "docs" / "files.md").read_text()
NAMES = set(re.findall(r"`([a-z0-9_]+)`", PAGE))


@pytest.mark.parametrize("name", [name for name in vars(schema) if name.endswith("_COLUMNS")])
def test_every_column_is_explained(name):
    assert set(getattr(schema, name)) <= NAMES


def test_every_file_of_a_study_and_every_column_of_logits_is_explained():
    assert all(f"`{name}`" in PAGE for name in (*schema.STUDY_FILES, "manifest.json"))
    assert set(COLUMNS) <= NAMES


def test_every_column_of_the_summary_is_explained(small_metrics):
    from calgrid.statistics import summarise

    assert set(summarise(small_metrics)) <= NAMES


@pytest.fixture
def small_metrics():
    import pandas as pd

    row = {
        **dict.fromkeys(schema.METRIC_COLUMNS, ""),
        "method": "ce",
        "metric": "ece",
        "calibrator": "none",
        "split": "test",
        "value": 0.1,
        "seed": 1,
        "fit_seed": 0,
        "severity": 0,
        "ci_low": 0.05,
        "ci_high": 0.15,
        "n_samples": 10,
    }
    return pd.DataFrame([row])
