"""Published numbers stand beside the rows they are about, in the unit of the metric."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.statistics.cases import frame, one

from calgrid.calibrators import build_calibrator
from calgrid.errors import DataError
from calgrid.metrics import METRICS
from calgrid.statistics import match_published, printed_numbers, summarise
from calgrid.storage.schema import PUBLISHED_COLUMNS, PUBLISHED_PLACE
from calgrid.storage.tables import read_published
from calgrid.study.runs import registered_methods

FOLDER = Path(__file__).parents[2] / "config" / "papers"
PAPERS = ("fedlas", "maccal", "smart")
CELL = {
    "paper": "fedlas",
    "table": 1,
    "dataset": "cifar10",
    "backbone": "resnet50",
    "method": "ce",
    "calibrator": "none",
    "metric": "ece",
    "shift": np.nan,
    "severity": 0,
    "value": 5.85,
    "std": np.nan,
    "unit": "percent",
    "suspect": np.nan,
    "note": np.nan,
}


def published(*rows):
    return pd.DataFrame([{**CELL, **row} for row in rows])


def match(rows, *cells):
    return match_published(rows, published(*cells)).iloc[0].tolist()


def test_numbers_are_converted_to_the_units_of_the_metrics():
    printed = {"percent": 5.85, "centinats": 41.2, "seconds": 13.5, "rank": 7.83}
    rows = [{"unit": unit, "value": value, "std": 2.0} for unit, value in printed.items()]
    cells = printed_numbers(published(*rows))
    assert cells["value"].tolist() == pytest.approx([0.0585, 0.412, 13.5, 7.83])
    assert cells["std"].tolist() == pytest.approx([0.02, 0.02, 2.0, 2.0])


def test_everything_must_match_on_the_clean_test_set():
    cells = {"dataset": "cifar100", "backbone": "wrn26_10", "method": "ls", "calibrator": "ts"}
    for column, value in {**cells, "metric": "mce"}.items():
        assert match(frame({}), {column: value}) == [pytest.approx(np.nan, nan_ok=True), ""], column
    for elsewhere in ({"split": "val"}, {"split": "shift", "shift": "fog", "severity": 5}):
        assert np.isnan(match(frame(elsewhere), {})[0])


def test_the_first_paper_and_table_count():
    cells = (
        {"paper": "smart", "value": 4.34},
        {"paper": "maccal", "table": 10, "value": 1.0},
        {"paper": "maccal", "table": 2},
    )
    assert match(frame({}), *cells) == [pytest.approx(0.0585), "maccal t2"]
    words = [{**cell, "table": str(cell.get("table", 1))} for cell in cells]
    assert match(frame({}), *words)[1] == "maccal t2"


def test_suspect_numbers_come_last_and_are_marked():
    suspect = {"suspect": "contradicts the text", "value": 9.0}
    found = match(frame({}), suspect, {"paper": "smart", "value": 4.34})
    assert found == [pytest.approx(0.0434), "smart t1"]
    assert match(frame({}), suspect) == [pytest.approx(0.09), "fedlas t1 (suspect)"]


def test_out_of_distribution_numbers_name_their_set():
    auroc, svhn = {"metric": "auroc"}, {"metric": "auroc", "shift": "ood/svhn"}
    rows = frame({**svhn, "split": "ood"}, {**auroc, "split": "ood", "shift": "ood/cifar100"})
    cells = published({**svhn, "value": 91.37}, {**auroc, "value": 50.0})
    summary = summarise(rows, published=cells)
    assert one(summary, shift="ood/svhn")["published"] == pytest.approx(0.9137)
    assert np.isnan(one(summary, shift="ood/cifar100")["published"])


def test_rows_keep_their_index_and_number():
    matched = match_published(
        frame({}, {"method": "ls"}).set_axis([7, 3]), published({}, {"table": 2})
    )
    assert matched.index.tolist() == [7, 3]
    assert matched["published"].notna().tolist() == [True, False]


def test_columns_and_units_are_checked(refuses, tmp_path):
    with refuses(DataError, "published must have the columns", "missing: shift"):
        match_published(frame({}), published({}).drop(columns="shift"))
    with refuses(DataError, "a unit of percent, centinats, seconds, rank", "'%'"):
        printed_numbers(published({}, {"unit": "%"}))
    with refuses(DataError, "published numbers cannot be read", "correct the file"):
        read_published([tmp_path / "no.csv"])


# the files
# --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def files():
    return read_published(FOLDER / paper / "published.csv" for paper in PAPERS)


def test_files_hold_every_printed_cell_once(files):
    assert set(PUBLISHED_COLUMNS) <= set(files)
    assert files.groupby("paper").size().to_dict() == {"fedlas": 441, "maccal": 390, "smart": 1371}
    assert not files.duplicated(["paper", "table", *PUBLISHED_PLACE]).any()
    numbers = printed_numbers(files)
    assert numbers["value"].notna().all()
    assert numbers.loc[files["unit"] == "percent", "value"].between(0, 1).all()


def test_ids_are_ours(files):
    """Variants of a configuration are those that the folder's README defines."""
    defined = (FOLDER / "README.md").read_text()
    stages = {stage for method in files["method"] for stage in method.split("+")}
    variants = stages - set(registered_methods())
    of_baselines = {"acls_m10", "ls_005", "mbls_l01", "mit_l_m0"}
    assert variants == of_baselines | {f"maccal_a{number}" for number in range(1, 5)}
    calibrators = set(files["calibrator"])
    bases = ("ts_", "pts_", "cts_", "smart_")
    configured = {name for name in calibrators if name.startswith(bases)}
    assert all(f"`{name}`" in defined for name in variants)
    for name in calibrators - configured:
        assert build_calibrator(name)
    assert len(configured) == 5 + 5 + 1 + 5 + 5 + 19
    timed = {"mean_rank_ece", "mean_rank_aece", "runtime_seconds", "train_seconds"}
    assert set(files["metric"]) - set(METRICS) == timed
