"""Claims of papers on made runs: each verdict, and what stands beside it."""

import functools

import numpy as np
import pytest
from scipy.stats import rankdata, ttest_1samp
from tests.report.test_papers import PLACES, RUN, line, part, tables_of, write_study
from tests.statistics.cases import frame, resamples

from calgrid.papers.declared import declared

#: of the tables of papers, which few edits touch
pytestmark = pytest.mark.slow

#: the same as the paper names them
PRINTED_PLACES = [(data, net.removesuffix("_tiny")) for data, net in PLACES]
EVERY_CELL = "FeDLaS on top of label smoothing has a lower ECE than label smoothing in every cell."


def runs(gains, seeds=(1, 2, 3, 4, 5), places=PLACES, jitter=0.0005):
    """Rows of ls and fedlas_ls; ``gains``: how much lower the second's ECE is, by place."""
    rows = []
    for (data, net), gain in zip(places, gains, strict=True):
        for seed in seeds:
            noise = jitter * (-1) ** seed * (1 + seed / 7)
            place = {"dataset": data, "backbone": net, "seed": seed}
            rows.append({**place, "method": "ls", "value": 0.05 + seed / 1000})
            rows.append(
                {**place, "method": "fedlas_ls", "value": 0.05 + seed / 1000 - gain + noise}
            )
    return rows


def with_squares(rows, std=0.0):
    """The same values as squared errors too, which decide, and their resamples."""
    squares = [{**row, "metric": "squared_ce"} for row in rows]
    return [*rows, *squares], resamples(frame(*[{**RUN, **row} for row in squares]), std)


@pytest.fixture
def check(tmp_path):
    """Claims of FeDLaS about its Table 1, that about every cell alone if no others are named."""

    def build(rows, std=0.0, claims=("fedlas_ls_ece",), whole=None):
        both, drawn = with_squares(rows, std)
        write_study(tmp_path, [{**RUN, **row} for row in both], resamples=drawn)
        return tables_of(tmp_path, [whole or part("fedlas", ["1"], claims)])[0]

    return build


@pytest.mark.parametrize(
    ("last", "verdict", "counts"), [(0.01, "confirmed", "600"), (-0.01, "not confirmed", "510")]
)
def test_confirmed_or_not(check, last, verdict, counts):
    row = line(check(runs([0.01] * 5 + [last])), EVERY_CELL)
    assert row["Verdict"] == f"**{verdict}**"
    assert (row["Confirmed"], row["Not confirmed"], row["Cannot tell"], row["With runs"]) == (
        *counts,
        "6 of 6",
    )
    assert row["Seeds to tell"] == "–"
    assert row["In print"] == "4 of 6"  # on ResNet-101 the printed numbers say the opposite twice


def test_cannot_tell_for_want_of_seeds(check):
    row = line(check(runs([0.01] * 5 + [0.0002])), EVERY_CELL)
    assert row["Verdict"] == "cannot tell"
    assert (row["Confirmed"], row["Not confirmed"], row["Cannot tell"]) == ("5", "0", "1")
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
    assert "no two runs of ours to compare" in nothing.markdown
    assert line(nothing, EVERY_CELL)["Seeds to tell"] == "runs are missing"


def test_a_claim_stands_only_where_runs_of_ours_can_be_compared(check):
    fedlas = declared("fedlas")
    rest = [claim.text for claim in fedlas.claims if claim.text != EVERY_CELL]
    both = [
        *runs([0.01] * 6),
        *({**row, "protocol": "fcline"} for row in runs([0.01] * 2, places=PLACES[:2])),
    ]
    both += [
        {"dataset": data, "backbone": net, "method": "mbls", "protocol": "finegrained"}
        for data, net in PLACES
    ]
    table = check(both, whole=fedlas)
    parts = [each.partition("\n") for each in table.markdown.split("## ")[1:]]
    sections = {title.partition(": ")[2]: body for title, _, body in parts}
    found = {
        title: [text for text in (EVERY_CELL, *rest) if f"| {text} |" in body]
        for title, body in sections.items()
        if title != "without a verdict"
    }
    without = sections.pop("without a verdict")
    for text, reason in fedlas.unchecked:
        assert f"| {text} | {reason} |" in without
    assert list(sections)[-1] == "no two runs of ours to compare"
    here, there = (
        found[f"protocol {protocol}, best checkpoint"] for protocol in ("aclsline", "fcline")
    )
    assert here == there
    assert EVERY_CELL in here
    assert {*here, *found["no two runs of ours to compare"]} == {EVERY_CELL, *rest}
    assert [len(texts) for texts in found.values()] == [
        len(here),
        len(here),
        len(rest) + 1 - len(here),
    ]
    assert "2 of 6" in sections["protocol fcline, best checkpoint"]


def test_the_tests_behind_a_verdict_are_in_the_csv(check):
    frame = check(runs([0.01] * 6)).frame
    own = frame[frame["claim"] == "fedlas_ls_ece"]
    assert own[["dataset", "backbone"]].apply(tuple, axis=1).tolist() == PRINTED_PLACES
    assert set(own["rival_method"]) == {"ls"}
    assert (own["n_seeds"] == 5).all()
    assert (own["p_value"] <= own["p_holm"]).all()
    assert own["gain"].between(0.009, 0.011).all()
    assert set(own["decided_by"]) == {"squared_ce"}


def test_test_images_may_hide_what_seeds_show(check):
    row = line(check(runs([0.01] * 6), std=0.02), EVERY_CELL)
    assert (row["Verdict"], row["Seeds to tell"]) == ("cannot tell", "more test images")


def test_ranks_are_compared_seed_by_seed_where_all_rows_are_there(check):
    rows = [row.where for row in declared("fedlas").tables[0].printed_rows]
    errors = np.random.default_rng(0).uniform(0.01, 0.09, (3, len(PLACES), len(rows))).round(4)
    made = [
        {"dataset": data, "backbone": net, "seed": seed, "calibrator": "none", **row}
        | {"value": errors[seed, place, i]}
        for seed in range(3)
        for place, (data, net) in enumerate(PLACES)
        for i, row in enumerate(rows)
    ]
    methods = [row["method"] for row in rows]
    ranks = rankdata(errors, method="min", axis=2).mean(axis=1)
    gains = ranks[:, methods.index("ls")] - ranks[:, methods.index("fedlas_ls")]
    ranks_of = ("fedlas_ls_rank", "fedlas_mbls_rank_ece")
    table = check(made, claims=ranks_of)
    frame = table.frame.set_index("claim")
    found = frame.loc["fedlas_ls_rank"]
    assert found["n_seeds"] == 3
    assert found["gain"] == pytest.approx(gains.mean())
    assert found["p_seeds"] == pytest.approx(ttest_1samp(gains, 0).pvalue)
    assert found["verdict"] == "cannot tell"  # ranks have no variance over test images
    rank = "FeDLaS on top of label smoothing has a lower mean rank by ECE than label smoothing."
    assert line(table, rank)["Seeds to tell"] == "no verdict on ranks"
    assert len(frame.loc["fedlas_mbls_rank_ece"]) == 15
    partial = check(made[1:], claims=ranks_of).frame
    assert "fedlas_ls_rank" not in set(partial.query("n_seeds == 3")["claim"])


# calibrators of one network
# ---------------------------------------------------------------------------------------

LOSSES = "SMART lowers the ECE of networks trained with each of six losses."
NETWORKS = [
    {"dataset": dataset, "backbone": backbone, "method": method}
    for dataset, smoothed in (("cifar10", "ls"), ("cifar100", "ls_005"))
    for backbone in ("resnet50", "resnet110", "densenet121", "wrn26_10")
    for method in ("ce", "brier", "mmce_w", smoothed, "flsd53", "fl3")
]


@pytest.fixture(scope="module")
def smart(tmp_path_factory):
    """SMART's tables and claim about losses; smart lowers an ECE of 5 % by a gain, in five fits."""

    @functools.cache
    def build(gain, noise=0.001, resampled=True, numbers=("2",)):
        folder = tmp_path_factory.mktemp("smart")
        rows, drawn = [], []
        for number, network in enumerate(NETWORKS):
            place = {**network, "protocol": "p", "seed": 1, "checkpoint": "last"}
            rows.append({**place, "calibrator": "none", "fit_seed": 1, "value": 0.05})
            fits = [0.05 - gain + 0.0001 * seed for seed in (-2, -1, 0, 1, 2)]
            rows += [
                {**place, "calibrator": "smart", "fit_seed": seed, "value": value}
                for seed, value in enumerate(fits, 1)
            ]
            rng = np.random.default_rng(number)
            squares = {**RUN, **place, "fit_on": "val", "split": "test", "metric": "squared_ce"}
            for name, seeds in (("none", [1]), ("smart", range(1, 6))):
                drawn += [
                    {**squares, "calibrator": name, "fit_seed": seed, "pairs": []}
                    | {"draws": noise * rng.normal(size=200)}
                    for seed in seeds
                ]
        rows += [{**row, "metric": "squared_ce"} for row in rows]
        runs = [{**RUN, **row} for row in rows]
        write_study(folder, runs, resamples=drawn if resampled else ())
        found = tables_of(folder, [part("smart", numbers, ("smart_any_loss",))])
        return {table.id: table for table in found}

    return build


def test_claims_about_fits_of_one_network_are_told_by_resamples(smart):
    row = line(smart(0.02, numbers=("2", "6", "8"))["claims"], LOSSES)
    assert (row["Verdict"], row["Confirmed"], row["With runs"]) == (
        "**confirmed**",
        "48",
        "48 of 48",
    )
    assert line(smart(-0.02)["claims"], LOSSES)["Verdict"] == "**not confirmed**"


def test_without_resamples_the_claims_say_what_is_missing(smart):
    row = line(smart(0.02, resampled=False)["claims"], LOSSES)
    assert row["Verdict"] == "cannot tell"
    assert row["Seeds to tell"] == "resamples of the test images are missing"


def test_fits_that_agree_do_not_hide_the_choice_of_test_images(smart):
    claims = smart(0.001, noise=0.01)["claims"]
    row = line(claims, LOSSES)
    assert (row["Verdict"], row["Seeds to tell"]) == ("cannot tell", "more test images")
    own = claims.frame[claims.frame["claim"] == "smart_any_loss"]
    std_fit = own["std_seed"] / np.sqrt(own["n_seeds"])
    assert (own["std_test"] > 10 * std_fit).all()
    assert std_fit.to_numpy() == pytest.approx(np.full(48, 0.0001 * np.sqrt(2.5 / 5)))


def test_cells_show_the_spread_of_the_fits_and_say_so(smart):
    found = smart(0.02, numbers=("2", "6", "8"))
    table = found["smart_table2"]
    cells = table.frame[(table.frame["protocol"] == "p") & (table.frame["calibrator"] == "smart")]
    assert (cells["n_seeds"] == 5).all()
    assert cells["std"].to_numpy() == pytest.approx(np.full(48, 0.0001 * np.sqrt(2.5)))
    assert "± 0.02 n=5" in table.markdown
    assert "seeds of the calibrator" in table.caption
    assert "does not cover retraining, other images to test on, or a choice" in table.caption
    # printed deviations stand beside the printed numbers
    assert "| **0.87** ± 0.18 |" in found["smart_table6"].markdown
    # those of Table 8 have a percent sign and are not shown
    assert "± 44.10" not in found["smart_table8"].markdown
    assert found["smart_table8"].frame["published_std"].isna().all()


#: claims of FeDLaS that it corrects both directions
BOTH_DIRECTIONS = tuple(
    f"fedlas_{base}_{part}_confidence" for base in ("ls", "mbls") for part in ("over", "under")
)


def both_parts(lower, seeds=10):
    """Runs of ls and mbls; FeDLaS lowers the O-ECE and U-ECE of both by ``lower``."""
    rows = []
    for data, net in PLACES:
        for metric in ("o_ece", "u_ece"):
            for place, method in enumerate(("ls", "fedlas_ls", "mbls", "fedlas_mbls")):
                for seed in range(seeds):
                    value = 0.03 + 0.001 * np.sin(7 * seed + place) - lower * ("fedlas" in method)
                    at = {"dataset": data, "backbone": net, "metric": metric, "seed": seed}
                    rows.append({**RUN, **at, "method": method, "value": value})
    return rows


@pytest.mark.parametrize(
    ("lower", "verdict", "counts"), [(0.01, "confirmed", "300"), (-0.01, "not confirmed", "030")]
)
def test_whether_both_directions_are_corrected_is_decided(tmp_path, lower, verdict, counts):
    """The claims about Table 4 of FeDLaS, by the parts of the ECE themselves."""
    rows = both_parts(lower)
    write_study(tmp_path, rows, resamples=resamples(frame(*rows), 0.0005))
    table = tables_of(tmp_path, [part("fedlas", ["4"], BOTH_DIRECTIONS)])[0]
    for claim in declared("fedlas").claims:
        if claim.id in BOTH_DIRECTIONS:
            row = line(table, claim.text)
            assert row["Verdict"] == f"**{verdict}**"
            found = row["Confirmed"], row["Not confirmed"], row["Cannot tell"]
            assert (found, row["With runs"]) == ((*counts,), "3 of 3")


def test_a_metric_without_a_test_is_no_lack_of_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("calgrid.metrics.table.PRINTED_ERRORS", ())
    write_study(tmp_path, both_parts(0.01))
    paper = part("fedlas", ["4"], BOTH_DIRECTIONS[:1])
    row = line(tables_of(tmp_path, [paper])[0], paper.claims[0].text)
    assert (row["Verdict"], row["With runs"]) == ("cannot tell", "3 of 3")
    assert row["Seeds to tell"] == "no test of O-ECE"
