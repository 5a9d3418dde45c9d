"""``make same-numbers`` finds one other bit, and ignores order and fingerprints."""

import numpy as np
import pandas as pd
import pytest
from benchmarks.same_numbers import FILES, main


@pytest.fixture
def studies(tmp_path):
    """Two folders with the same numbers, of other fingerprints and in another order."""
    rows = pd.DataFrame(
        {"method": ["ce", "ls"], "value": [0.1, np.nan], "n_samples": [7, 7], "fingerprint": "a"}
    )
    for study, table in (("one", rows), ("other", rows[::-1].assign(fingerprint="b"))):
        (tmp_path / study).mkdir()
        for name in FILES:
            table.to_parquet(tmp_path / study / name, index=False)
    return tmp_path / "one", tmp_path / "other"


def test_equal_numbers(studies):
    assert main(*studies) == 0


@pytest.mark.parametrize("name", FILES)
def test_one_bit_is_a_difference(studies, name, capsys):
    table = pd.read_parquet(studies[1] / name)
    table.loc[table["method"] == "ce", "value"] = np.nextafter(0.1, 1)
    table.to_parquet(studies[1] / name, index=False)
    assert main(*studies) == 1
    assert f"{name}: 2 rows, 1 differences" in capsys.readouterr().out
