"""Tuned methods: choices by validation rows, test numbers, differences to the default."""

import pandas as pd
import pytest
from tests.report.conftest import CLEAN, Written, read_markdown

from calgrid.report.findings import findings

LISTS = {"ce": ["ce", "mbls"], "ls": ["ls", "fl3"]}


@pytest.fixture(scope="module")
def written(make):
    study = make(methods=("ce", "mbls", "ls", "fl3"), **CLEAN)
    candidates = {}
    for name, methods in LISTS.items():
        candidates[name] = [{"protocol": "quick", "method": method} for method in methods]
    tuning = {"metric": "nll", "protocol": "quick", "methods": candidates}
    study.manifest["configuration"]["tuning"] = tuning
    return study, study.tables("tuned")


def test_numbers_are_those_of_the_chosen_runs(written):
    study, out = written
    metrics = pd.read_parquet(study.folder / "metrics.parquet").query("metric == 'nll'")
    bare = metrics[metrics["calibrator"] == "none"]
    val = bare[bare["split"] == "val"].pivot(index="seed", columns="method", values="value")
    test = (
        metrics[metrics["split"] == "test"]
        .set_index(["calibrator", "method", "seed"])["value"]
        .sort_index()
    )
    table = pd.read_csv(out / "tuned.csv").set_index(["method", "calibrator"])
    for name, listed in LISTS.items():
        chosen = val[listed].idxmin(axis=1)
        for calibrator in ("none", "ts"):
            values = [test[calibrator, method, seed] for seed, method in chosen.items()]
            default = test[calibrator, listed[0]].mean()
            row = table.loc[name, calibrator]
            assert row["nll_mean"] == pytest.approx(sum(values) / len(values))
            assert row["nll_to_default"] == pytest.approx(row["nll_mean"] - default)
            assert row["n_seeds"] == len(values)


def test_what_was_chosen_is_counted_and_how_is_said(written):
    _, out = written
    ((heading, rows),) = read_markdown(out / "tuned.md").items()
    assert heading == "digits, resnet8, last checkpoint"
    assert [(row["Method"], row["Calibrator"]) for row in rows] == [
        ("ce", "none"),
        ("ce", "ts"),
        ("ls", "none"),
        ("ls", "ts"),
    ]
    # mbls is nearly calibrated in this study and ce far from it
    assert rows[0]["Chosen"] == "mbls × 2, ce"
    assert rows[0]["Δ NLL to default"].startswith("-")
    judged = [row["Δ NLL to ce (verdict; Holm p)"] for row in rows]
    assert judged[:2] == ["–", "–"]
    assert all("tie" not in cell for cell in judged)
    text = (out / "tuned.md").read_text()
    assert "tried with 2 candidates" in text
    assert "NLL of its uncalibrated network on validation rows" in text


def test_the_finding_says_what_is_left_of_the_differences(written):
    study, out = written
    said = [sentence for sentence in findings(*study.opened()) if sentence.startswith("Tuned")]
    table = pd.read_csv(out / "tuned.csv").query("calibrator == 'none'").set_index("method")
    best = table["nll_mean"].idxmin()
    survive = int(table.loc["ls", "nll_p_holm"] < 0.05)
    assert said == [
        "Tuned with 2 candidates each, chosen by the NLL of validation rows: of 2 methods "
        f"`{best}` has the lowest NLL, {table.loc[best, 'nll_mean']:.4f} nats; against `ce`, "
        f"{table.loc['ce', 'nll_mean']:.4f} nats, {survive} of 1 differences are significant over "
        "seeds and test images."
    ]
    configuration = {**study.manifest["configuration"], "tuning": None}
    untuned = Written(study.folder, {**study.manifest, "configuration": configuration})
    assert not [sentence for sentence in findings(*untuned.opened()) if "Tuned" in sentence]
