"""The table of distances to the truth: only where it is known, beside what labels show."""

import pandas as pd
import pytest
from tests.report.conftest import PAIR, read_markdown


@pytest.fixture(scope="module")
def written(make):
    """A study with two backbones, of one of which the truth is known, and its table."""
    study = make(**PAIR, backbones=("resnet8", "resnet20"), truth_known_of=("resnet20",))
    return study, study.tables("soft_labels")


def test_rows_are_those_whose_truth_is_known(written):
    study, out = written
    sections = read_markdown(out / "soft_labels.md")
    assert list(sections) == ["digits, resnet20"]
    rows = sections["digits, resnet20"]
    assert [row["Calibrator"] for row in rows] == ["none", "ts"] * 2
    assert {"ECE (%) ↓", "ECE debiased (%) ↓", "ECE null (%)", "Accuracy (%) ↑"} < set(rows[0])
    summary = pd.read_parquet(study.folder / "summary.parquet")
    summary = summary.query("split == 'test' and backbone == 'resnet20'")
    summary = summary.set_index(["method", "calibrator"])
    frame = pd.read_csv(out / "soft_labels.csv").set_index(["method", "calibrator"])
    assert len(frame) == len(rows) == 4
    for metric in ("soft_kl", "soft_tv", "soft_ece", "ece", "ece_null"):
        expected = summary[summary["metric"] == metric]["mean"].to_dict()
        assert frame[f"{metric}_mean"].to_dict() == pytest.approx(expected), metric


def test_the_truth_itself_is_the_best_of_its_method(written):
    """Temperature scaling on val is the truth of this study, so its distance is 0, and bold."""
    _, out = written
    for rows in read_markdown(out / "soft_labels.md").values():
        for row in rows:
            for column in ("KL to truth (nats) ↓", "TV to truth (%) ↓", "ECE to truth (%) ↓"):
                assert row[column].startswith("**0.00") == (row["Calibrator"] == "ts")
