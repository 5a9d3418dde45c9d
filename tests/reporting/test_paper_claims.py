"""Claims of papers on made runs: each verdict, and what stands beside it."""

import re

import pandas as pd
import pytest
from tests.reporting.test_papers import HOME, PLACES, tables  # noqa: F401  (a fixture)

from calgrid.configuration.tables import paper

#: the same as the paper names them
PRINTED_PLACES = [(data, net.removesuffix("_tiny")) for data, net in PLACES]
EVERY_CELL = "FeDLaS on top of label smoothing has a lower ECE than label smoothing in every cell."


def runs(gains, seeds=(1, 2, 3, 4, 5), places=PLACES, jitter=0.0005):
    """Rows of ls and fedlas_ls; ``gains``: how much lower the ECE of the second is, for each place."""
    rows = []
    for (data, net), gain in zip(places, gains, strict=True):
        for seed in seeds:
            noise = jitter * (-1) ** seed * (1 + seed / 7)
            place = {"dataset": data, "backbone": net, "seed": seed}
            rows.append({**place, "method": "ls", "value": 0.05 + seed / 1000})
            rows.append({**place, "method": "fedlas_ls", "value": 0.05 + seed / 1000 - gain + noise})
    return rows


def line(table, text):
    """Row of a claim in the Markdown table, by heading."""
    header, _, *rows = [row for row in table.markdown.splitlines() if row.startswith("| ")]
    (found,) = [row for row in rows if row.startswith(f"| {text} |")]
    return dict(zip(header.strip("| ").split(" | "), found.strip("| ").split(" | "), strict=True))


@pytest.fixture
def check(tables):  # noqa: F811
    return lambda rows: tables("fedlas", rows)["claims"]


def test_confirmed(check):
    row = line(check(runs([0.01] * 6)), EVERY_CELL)
    assert row["Verdict"] == "**confirmed**"
    assert (row["Holds"], row["Opposite"], row["Open"], row["With runs"]) == ("6", "0", "0", "6 of 6")
    assert row["Seeds to tell"] == "–"
    assert row["In print"] == "4 of 6"  # on ResNet-101 the printed numbers say the opposite twice


def test_not_confirmed(check):
    row = line(check(runs([0.01] * 5 + [-0.01])), EVERY_CELL)
    assert row["Verdict"] == "**not confirmed**"
    assert (row["Holds"], row["Opposite"]) == ("5", "1")


def test_cannot_tell_for_want_of_seeds(check):
    row = line(check(runs([0.01] * 5 + [0.0002])), EVERY_CELL)
    assert row["Verdict"] == "cannot tell"
    assert (row["Holds"], row["Opposite"], row["Open"]) == ("5", "0", "1")
    assert 10 < int(row["Seeds to tell"].replace(",", "")) < 1000
    assert line(check(runs([0.01] * 6, seeds=(1,))), EVERY_CELL)["Seeds to tell"] == "at least 2"


def test_cannot_tell_for_want_of_runs(check):
    row = line(check(runs([0.01] * 4, places=PLACES[:4])), EVERY_CELL)
    assert (row["Verdict"], row["With runs"], row["Seeds to tell"]) == (
        "cannot tell",
        "4 of 6",
        "at least 2, and runs are missing",
    )
    nothing = check([])
    assert "no run of ours in its cells" in nothing.markdown
    assert line(nothing, EVERY_CELL)["Seeds to tell"] == "runs are missing"


def test_the_tests_behind_a_verdict_are_in_the_csv(check):
    frame = check(runs([0.01] * 6)).frame
    own = frame[frame["claim"] == "fedlas_ls_ece"]
    assert own[["dataset", "backbone"]].apply(tuple, axis=1).tolist() == PRINTED_PLACES
    assert set(own["rival_method"]) == {"ls"}
    assert (own["n_seeds"] == 5).all()
    assert (own["p_value"] <= own["p_holm"]).all()
    assert own["gain"].between(0.009, 0.011).all()


def test_each_paper_has_its_claims_in_words_of_our_own(check):
    words = [claim["text"] for claim in paper(HOME, "fedlas", "papers")["claims"]]
    shown = check([]).markdown
    assert all(text in shown for text in words)
    assert re.search(r"^# Claims of papers$", shown, flags=re.MULTILINE)
    assert isinstance(check([]).frame, pd.DataFrame)
