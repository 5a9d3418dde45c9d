"""Published numbers stand beside the rows they are about, as fractions."""

import numpy as np
import pandas as pd
import pytest
from tests.statistics.cases import frame, one

from calgrid.errors import DataError
from calgrid.statistics import match_published, summarise

CELL = {
    "paper": "fedlas",
    "table": 1,
    "dataset": "cifar10",
    "backbone": "resnet50",
    "method": "ce",
    "calibrator": "none",
    "metric": "ece",
    "value": 5.85,
    "std": np.nan,
    "note": np.nan,
}


def published(*rows):
    return pd.DataFrame([{**CELL, **row} for row in rows])


def match(rows, *cells):
    summary = summarise(rows, published=published(*cells))
    return summary[["published", "published_source"]].iloc[0].tolist()


def test_percent_become_fractions():
    assert match(frame({}), {}) == [pytest.approx(0.0585), "fedlas t1"]


def test_nll_is_printed_times_a_hundred():
    assert match(frame({"metric": "nll"}), {"metric": "nll", "value": 41.2}) == [pytest.approx(0.412), "fedlas t1"]


@pytest.mark.parametrize(
    "other",
    [{"dataset": "cifar100"}, {"backbone": "wrn26_10"}, {"method": "ls"}, {"calibrator": "ts"}, {"metric": "mce"}],
)
def test_everything_must_match(other):
    value, source = match(frame({}), other)
    assert np.isnan(value)
    assert source == ""


@pytest.mark.parametrize("elsewhere", [{"split": "val"}, {"split": "shift", "shift": "fog", "severity": 5}])
def test_numbers_are_about_the_clean_test_set(elsewhere):
    assert np.isnan(match(frame(elsewhere), {})[0])


def test_the_first_paper_and_table_count():
    cells = (
        {"paper": "smart", "value": 4.34},
        {"paper": "maccal", "table": 10, "value": 1.0},
        {"paper": "maccal", "table": 2},
    )
    assert match(frame({}), *cells) == [pytest.approx(0.0585), "maccal t2"]
    assert match(frame({}), *({**cell, "table": str(cell.get("table", 1))} for cell in cells))[1] == "maccal t2"


def test_suspect_numbers_come_last_and_are_marked():
    suspect = {"note": "backbone_inferred;suspect", "value": 9.0}
    assert match(frame({}), suspect, {"paper": "smart", "value": 4.34}) == [pytest.approx(0.0434), "smart t1"]
    assert match(frame({}), suspect) == [pytest.approx(0.09), "fedlas t1 (suspect)"]


@pytest.mark.parametrize("note", ["objective=mse;top1_fraction=0.761", "indicator=entropy", "a;lambda=0.10;delta=1.0"])
def test_varied_settings_are_not_the_method(note):
    assert np.isnan(match(frame({}), {"note": note})[0])


def test_of_cumulative_components_the_last_is_the_method():
    steps = [
        {"paper": "maccal", "note": f"backbone_inferred;component={n}", "value": v} for n, v in (("a", 3), ("b", 1))
    ]
    assert match(frame({}), *steps)[0] == pytest.approx(0.01)


def test_maccal_on_a_method_is_a_second_stage():
    stacked = {"method": "mbls", "calibrator": "maccal", "value": 0.85}
    assert match(frame({"method": "maccal+mbls"}), stacked)[0] == pytest.approx(0.0085)
    assert match(frame({"method": "maccal"}), {**stacked, "method": "ce"})[0] == pytest.approx(0.0085)


def test_out_of_distribution_numbers_name_their_set():
    rows = frame(
        {"metric": "auroc", "split": "ood", "shift": "ood/svhn"},
        {"metric": "auroc", "split": "ood", "shift": "ood/cifar100"},
    )
    cells = published({"metric": "auroc", "value": 91.37, "note": "ood=svhn"}, {"metric": "auroc", "value": 50.0})
    summary = summarise(rows, published=cells)
    assert one(summary, shift="ood/svhn")["published"] == pytest.approx(0.9137)
    assert np.isnan(one(summary, shift="ood/cifar100")["published"])


def test_rows_keep_their_index_and_number():
    summary = summarise(frame({}, {"method": "ls"})).set_axis([7, 3])
    matched = match_published(summary, published({}, {"table": 2}))
    assert matched.index.tolist() == [7, 3]
    assert matched["published"].notna().tolist() == [True, False]


def test_columns_are_checked():
    with pytest.raises(DataError, match=r"published must have the columns .* missing: note"):
        summarise(frame({}), published=published({}).drop(columns="note"))
