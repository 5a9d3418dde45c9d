"""Tables of papers: ranks and best cells of published numbers, and ours beside them."""

import html
import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from tests.report.conftest import CLEAN
from tests.statistics.cases import DEFAULTS

from calgrid.jobs.summaries import shift_means
from calgrid.papers.cells import BEST, row_ranks
from calgrid.papers.declared import declared
from calgrid.papers.report import write_report
from calgrid.papers.tables import paper_tables, write_tables
from calgrid.report.index import write_index
from calgrid.report.study import StudyData
from calgrid.storage.schema import (
    METRICS,
    RESAMPLE_COLUMNS,
    RESAMPLES,
    RUN_KEY,
    SHIFT_MEANS,
    TEST_COLUMNS,
    TESTS,
)
from calgrid.storage.tables import read_published, write_frame

#: of the tables of papers, which few edits touch
pytestmark = pytest.mark.slow

PAPERS = ("fedlas", "maccal", "smart")
NETS = ("resnet50", "resnet101")
#: our networks behind the cells of FeDLaS' Table 1
PLACES = [
    *(("tiny_imagenet", f"{net}_tiny") for net in NETS),
    *((data, net) for data in ("cifar10", "cifar100") for net in NETS),
]
RUN = {**DEFAULTS, "protocol": "aclsline", "value": 0.05}
COST = {name: RUN[name] for name in RUN_KEY}
COSTS = [*COST, "stage", "item", "fit_seed", "seconds"]


def write_study(folder, rows=(), costs=(), resamples=()):
    """Write the files of a study that tables of papers read."""
    metrics = pd.DataFrame(rows, columns=list(RUN))
    metrics = metrics if len(rows) else metrics.astype({"seed": int, "severity": int})
    write_frame(folder / METRICS, metrics)
    write_frame(folder / SHIFT_MEANS, shift_means(metrics))
    write_frame(folder / "costs.parquet", pd.DataFrame(costs, columns=COSTS))
    write_frame(folder / RESAMPLES, pd.DataFrame(resamples, columns=[*RUN_KEY, *RESAMPLE_COLUMNS]))
    write_frame(folder / TESTS, pd.DataFrame(columns=list(TEST_COLUMNS)).astype(TEST_COLUMNS))


def part(name, numbers=(), claims=(), own=()):
    """A paper with these tables and claims alone, for speed; ``own``: protocols of its study."""
    whole = declared(name, own)
    tables = [each for each in whole.tables if each.number in numbers]
    kept = [each for each in whole.claims if each.id in claims]
    return replace(whole, tables=tables, claims=kept, unchecked=[])


def tables_of(folder, papers, **manifested):
    statistics = {"baseline": "ce", "level": 0.95, "bins": 15}
    manifest = {"configuration": {"statistics": statistics}, "runs": [], **manifested}
    return paper_tables(StudyData(folder, manifest), papers)


@pytest.fixture
def fill(tmp_path):
    """Table of a paper, by its number, for made metrics; ``own``: protocols of its study."""

    def build(name, number, rows=(), costs=(), own=(), **manifested):
        write_study(tmp_path, [{**RUN, **row} for row in rows], [{**COST, **row} for row in costs])
        (found,) = tables_of(tmp_path, [part(name, [number], own=own)], **manifested)
        return found

    return build


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """Claims and all tables without any run of ours."""
    folder = tmp_path_factory.mktemp("alone")
    write_study(folder)
    return tables_of(folder, list(map(declared, PAPERS)))


@pytest.fixture(scope="module")
def alone(printed):
    """The tables, by identifier."""
    return {table.id: table for table in printed[1:]}


def best(table, **where):
    """Values of the axis that competes where the published number is best."""
    cells = table.frame[table.frame["published_mark"] == BEST]
    for axis, value in where.items():
        cells = cells[cells[axis] == value]
    return cells


def cell(table, **where):
    rows = table.frame[
        np.logical_and.reduce([table.frame[axis] == value for axis, value in where.items()])
    ]
    assert len(rows) == 1
    return rows.iloc[0]


def line(table, text):
    """Row of a claim in the Markdown table, by heading."""
    header, _, *rows = [row for row in table.markdown.splitlines() if row.startswith("| ")]
    (found,) = [row for row in rows if row.startswith(f"| {text} |")]
    return dict(zip(header.strip("| ").split(" | "), found.strip("| ").split(" | "), strict=True))


# methods and calibrators that a paper does not name
# ------------------------------------------------------------------------------------------


def test_an_own_calibrator_is_a_column_of_tables_of_calibrators(fill):
    values = {"none": 0.04, "ts": 0.02, "shrink_ts": 0.01, "vs": 0.03}
    rows = [
        {"method": "ce", "dataset": "cifar10", "backbone": "resnet50", "calibrator": name}
        | {"value": value}
        for name, value in values.items()
    ]
    table = fill("smart", "1", rows)
    own = table.frame[table.frame["ours"].notna()].set_index("calibrator")
    assert own["ours"].to_dict() == values
    assert own.loc[["shrink_ts", "vs"], "published"].isna().all()
    assert own["ours_mark"].to_dict() == {"none": "", "ts": "second", "shrink_ts": BEST, "vs": ""}
    (section,) = table.sections
    assert list(section.header[-2:]) == ["shrink_ts", "vs"]
    assert section.header[section.ruled_column] == "shrink_ts"
    assert section.ruled_row is None
    first = section.rows[0]
    assert [cell.text for cell in first[-2:]] == ["1.00", "3.00"]
    assert [cell.printed for cell in first[-2:]] == [None, None]
    header, _, line, *_ = [row for row in table.markdown.splitlines() if row.startswith("| ")]
    assert header.endswith("| smart |  | shrink_ts | vs |")
    assert line.endswith("|  | **1.00** n=1 | 3.00 n=1 |")
    assert "\\begin{tabular}{lllrrrrrrrrr|rr}" in table.latex
    assert "no table of the paper names" in table.caption


def test_an_own_method_is_a_row_without_a_place_in_mean_ranks(fill):
    """Its mean over data sets and networks is that of its six cells; ranks stay those of print."""
    methods = {"ce": 0.05, "ls": 0.03, "tst+mine": 0.01}
    rows = [
        {"method": method, "dataset": dataset, "backbone": backbone, "metric": metric}
        | {"value": value + 0.001 * number}
        for method, value in methods.items()
        for number, (dataset, backbone) in enumerate(PLACES)
        for metric in ("ece", "accuracy")
    ]
    table = fill("fedlas", "1", rows)
    paper_rows = len(part("fedlas", ["1"]).tables[0].printed_rows)
    own = table.frame[table.frame["row"] >= paper_rows]
    assert set(own["method"]) == {"tst+mine"}
    mean = own[own["metric"] == "accuracy"]["ours"].item()
    assert mean == pytest.approx(0.01 + 0.001 * np.arange(6).mean())
    assert own.loc[own["metric"].str.startswith("mean_rank"), "ours"].isna().all()
    ranks = table.frame[(table.frame["metric"] == "mean_rank_ece") & table.frame["ours"].notna()]
    assert ranks.set_index("method")["ours"].to_dict() == {"ce": 2.0, "ls": 1.0}
    (section,) = table.sections
    assert (section.ruled_row, section.ruled_column) == (paper_rows, None)
    assert [cell.text for cell in section.rows[-1][:2]] == ["tst+mine", "none"]
    lines = table.latex.splitlines()
    assert lines[lines.index("\\bottomrule") - 2] == "\\midrule"
    assert set(re.sub(r"[| ]", "", table.markdown.splitlines()[-2])) == set()


def test_what_another_table_of_the_paper_names_is_not_added(tmp_path):
    """ts_ls is of SMART's Table 3."""
    place = {"method": "ce", "dataset": "cifar10", "backbone": "resnet50", "value": 0.02}
    write_study(tmp_path, [{**RUN, **place, "calibrator": name} for name in ("none", "ts_ls")])
    (table, _) = tables_of(tmp_path, [part("smart", ["1", "3"])])
    (section,) = table.sections
    assert (section.ruled_row, section.ruled_column) == (None, None)
    assert "no table of the paper names" not in table.caption


# published numbers alone
# ------------------------------------------------------------------------------------------


def test_every_printed_cell_is_in_its_table_once_and_no_other(alone):
    files = read_published([declared(name).published for name in PAPERS])
    tables = {id: table for id, table in alone.items() if "figure" not in id}
    counts = {
        name: sum(len(t.frame) for id, t in tables.items() if id.startswith(name))
        for name in PAPERS
    }
    assert counts == files.groupby("paper").size().to_dict()
    assert all(table.frame["published"].notna().all() for table in tables.values())
    assert all(alone[id].frame["published"].isna().all() for id in alone.keys() - tables)
    doubted = sum((table.frame["suspect"] != "").sum() for table in alone.values())
    assert doubted == files["suspect"].notna().sum()


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("metric", ["ece", "aece"])
def test_ranks_of_fedlas_are_those_printed(alone, number, metric):
    spec = declared("fedlas").tables[number - 1]
    frame = alone[f"fedlas_table{number}"].frame
    rank = frame[frame["metric"] == f"mean_rank_{metric}"]
    printed = rank.set_index("row")["published"]
    cells = frame.assign(is_mean=frame["dataset"] == "average")
    ranks = row_ranks(spec, cells, "published", metric)
    assert ranks.round(2).to_dict() == printed.to_dict()


def test_mean_accuracies_of_fedlas_table_2_are_cut_off(alone):
    frame = alone["fedlas_table2"].frame.query("metric == 'accuracy'")
    mean = frame[frame["dataset"] != "average"].groupby("method")["published"].mean() * 1e4
    printed = frame[frame["dataset"] == "average"].set_index("method")["published"] * 1e4
    assert np.floor(mean + 1e-6).to_dict() == printed.round().to_dict()


def test_best_cells_of_smart(alone):
    """Table 8 as printed has SMART first in 20 rows, where the paper counts 24."""
    counts = {
        number: (best(alone[f"smart_table{number}"])["calibrator"] == "smart").sum()
        for number in (1, 8)
    }
    assert counts == {1: 25, 8: 20}
    tied = best(alone["smart_table1"], dataset="imagenet_lt", backbone="imagenet_resnet50")
    assert tied["calibrator"].tolist() == ["spline", "smart"]
    # one of twelve cells for each of eight networks, as the captions say
    among_losses = best(alone["smart_table2"])
    assert set(among_losses["calibrator"]) == {"smart"}
    losses = "flsd53 ls brier ce fl3 fl3 brier flsd53"
    assert among_losses["method"].tolist() == losses.split()
    counts = best(alone["smart_table12"])["calibrator"].value_counts()
    assert counts.to_dict() == {"smart": 5, "none": 3}


def test_suspect_cells_are_marked_and_do_not_compete(alone):
    place = {"dataset": "imagenet", "backbone": "imagenet_densenet121", "shift": ""}
    row = cell(alone["smart_table6"], **place, calibrator="pts")
    found = row[["published", "suspect", "published_mark"]].tolist()
    assert found == [0.0002, "contradicts Table 1", ""]
    assert "0.02?" in alone["smart_table6"].markdown
    pair = alone["maccal_table3"].frame.query(
        "dataset == 'tiny_imagenet' and method == 'mixup' and metric == 'ece'"
    )
    assert pair["published_mark"].tolist() == ["", ""]


def test_tables_say_that_nothing_of_ours_is_there(alone):
    for table in alone.values():
        assert table.frame["ours"].isna().all()
        assert "no run of ours is here" in table.markdown


def test_claims_that_hold_in_fewer_printed_cells_than_claimed(printed):
    """Those that config/papers/checked.md lists."""
    fewer = {}
    for name in PAPERS:
        tables = {table.number: table for table in declared(name).tables}
        for claim in declared(name).claims:
            held, known = map(int, line(printed[0], claim.text)["In print"].split(" of "))
            cases = len(claim.cases(tables[str(claim.table)]))
            if held < (claim.at_least or cases) - (cases - known):
                fewer[claim.id] = f"{held} of {known}"
    assert fewer == {
        "fedlas_ls_ece": "4 of 6",
        "fedlas_ls_fine_grained": "3 of 4",
        "fedlas_ls_over_confidence": "1 of 3",
        "fedlas_mbls_over_confidence": "2 of 3",
        "maccal_accuracy": "28 of 29",
        "maccal_a3_ablation": "1 of 2",
        "maccal_time_stages": "4 of 6",
        "smart_best_aece": "19 of 26",
        "smart_delta_resnet_narrow": "2 of 3",
        "smart_margin": "4 of 5",
    }


# ours
# --------------------------------------------------------------------------------------------------


def test_ours_stand_beside_published(fill):
    rows = [{"seed": seed, "value": value} for seed, value in ((1, 0.05), (2, 0.06), (3, 0.07))]
    table = fill("fedlas", "1", rows)
    row = cell(
        table, dataset="cifar10", backbone="resnet50", method="ce", calibrator="none", metric="ece"
    )
    assert row[["protocol", "checkpoint", "n_seeds"]].tolist() == ["aclsline", "best", 3]
    assert row["ours"] == pytest.approx(0.06)
    assert row["difference"] == pytest.approx(0.06 - 0.0585)
    odds = 0.06 / 0.94 * math.exp(4.3027 * 0.01 / math.sqrt(3) / (0.06 * 0.94))
    assert row["ci_high"] == pytest.approx(odds / (1 + odds), rel=1e-4)
    assert "6.00 [3.95, 9.02] n=3 \\| 5.85 (+0.15)" in table.markdown
    assert table.frame["ours"].notna().sum() == 1
    assert "interval of the mean over n seeds" in table.caption
    assert "– \\| 3.73" in table.markdown  # what is missing stays empty beside the printed number


def test_no_difference_to_a_suspect_number(fill):
    run = {"dataset": "tiny_imagenet", "backbone": "resnet50_tiny", "method": "mixup"}
    table = fill("maccal", "1", [{**run, "protocol": "fcline"}])
    row = cell(table, dataset="tiny_imagenet", method="mixup")
    assert (row["ours"], row["suspect"]) == (0.05, "contradicts Table 3")
    assert math.isnan(row["difference"])


def test_protocols_and_checkpoints_fill_tables_of_their_own(fill):
    table = fill("fedlas", "1", [{}, {"checkpoint": "last", "value": 0.08}])
    assert re.findall("^## (.*)$", table.markdown, flags=re.MULTILINE) == [
        "Protocol aclsline, best checkpoint",
        "Protocol aclsline, last checkpoint",
    ]
    assert len(table.frame) == 2 * 240


def test_ranks_are_among_the_rows_that_we_have(fill):
    values = {"ce": 0.05, "ls": 0.03, "mbls": 0.03001, "acls": 0.01}
    rows = [
        {"dataset": data, "backbone": net, "method": method, "value": value}
        for data, net in PLACES
        for method, value in values.items()
        if method != "acls" or data != "cifar10"  # one that lacks a column has no rank
    ]
    table = fill("fedlas", "1", rows)
    ranks = table.frame.query("metric == 'mean_rank_ece'").set_index("method")
    # ties by the digits shown share the place
    assert ranks["ours"].dropna().to_dict() == {"ce": 3, "ls": 1, "mbls": 1}
    assert ranks.loc["ls", "n_ranked"] == 3
    assert ranks["difference"].isna().all()
    assert "1.00** of 3" in table.markdown


DONE = {
    "fcline_code": "350 epochs, the sum of the loss over a batch",
    "aclsline": "350 epochs, the mean of the loss over a batch",
}


def test_the_note_on_the_papers_study_is_shown_for_its_runs_only(fill):
    """The plan describes another protocol; of both, the note names the sections it is about."""
    noted = "losses of first stages summed over the batch"
    other = "Protocol aclsline: 350 epochs, the mean of the loss over a batch."

    def caption(*protocols):
        rows = [{"protocol": each} for each in protocols]
        return fill("maccal", "1", rows, own=["fcline_code"], protocols=DONE).caption

    of_paper, of_other = caption("fcline_code"), caption("aclsline")
    assert noted in of_paper
    assert not any(said in of_paper for said in (other, "On protocol"))
    assert noted not in of_other
    assert other in of_other
    assert "config/papers/maccal/study.yaml" in of_other
    of_both = caption("fcline_code", "aclsline")
    assert "On protocol fcline_code: Baselines" in of_both
    assert other in of_both


def test_the_note_on_the_papers_study_is_not_shown_for_a_line_with_another_protocol(fill):
    lines = dict.fromkeys(DONE, "both")
    rows = [{"protocol": "fcline_code"}, {"protocol": "aclsline", "backbone": "resnet110"}]
    table = fill("maccal", "1", rows, own=["fcline_code"], protocols=DONE, lines=lines)
    assert "summed over the batch" not in table.caption
    assert all(f"Protocol {name}: {said}." in table.caption for name, said in DONE.items())


def test_a_deviation_covers_the_images_that_fit_only_where_each_seed_draws_them(alone):
    drawn = "each seed draws anew which test images fit"
    assert {id: drawn in table.caption for id, table in alone.items() if "smart" in id} == {
        f"smart_{name}": name in ("table1", "table6", "table7", "table8", "figure11")
        for name in [*(f"table{n}" for n in range(1, 15)), "figure5", "figure11"]
    }


def test_protocols_of_one_line_fill_one_table(fill):
    rows = [
        {"dataset": data, "backbone": net, "method": method, "metric": metric, "value": value}
        | {"protocol": "aclsline_tiny" if data == "tiny_imagenet" else "aclsline"}
        for data, net in PLACES
        for method, value in (("ce", 0.05), ("ls", 0.03))
        for metric in ("ece", "accuracy")
    ]
    apart = fill("fedlas", "1", rows)
    assert apart.frame.query("metric in ('accuracy', 'mean_rank_ece')")["ours"].isna().all()
    lines = {"aclsline": "cifar_and_tiny", "aclsline_tiny": "cifar_and_tiny"}
    table = fill("fedlas", "1", rows, lines=lines)
    assert table.markdown.count("Protocol cifar_and_tiny, best checkpoint") == 1
    assert len(table.frame) == 240
    found = table.frame.query("method == 'ce' and calibrator == 'none'").set_index(
        ["dataset", "backbone", "metric"]
    )
    assert found.loc[("average", "average", "accuracy"), "ours"] == pytest.approx(0.05)
    assert found.loc[("average", "average", "mean_rank_ece"), "ours"] == 2
    assert found.loc[("tiny_imagenet", "resnet50", "ece"), "published"] == pytest.approx(0.0373)


def test_corruptions_are_averaged_and_fitted_on_their_own_rows(fill):
    place = {"dataset": "imagenet", "backbone": "imagenet_resnet50", "protocol": "external"}
    place["calibrator"] = "ts"
    shifted = {**place, "split": "shift", "severity": 5}
    rows = [
        {**shifted, "shift": shift, "fit_on": fit_on, "value": value, "fit_seed": seed}
        for fit_on, values in (("same_shift", (0.02, 0.04)), ("val", (0.5, 0.5)))
        for shift, value in zip(("fog", "snow"), values, strict=True)
        for seed in (0, 1)
    ]
    rows.append({**place, "dataset": "imagenet_sketch", "fit_on": "redrawn", "value": 0.07})
    frame = fill("smart", "1", rows).frame
    ours = frame[frame["ours"].notna()].set_index(["dataset", "shift"])["ours"]
    assert ours.to_dict() == {
        ("imagenet", "mean"): pytest.approx(0.03),
        ("imagenet_sketch", ""): pytest.approx(0.07),
    }


def test_times_come_from_the_costs(fill):
    net = {"protocol": "fcline", "dataset": "imagenet", "backbone": "imagenet_resnet50"}
    run = {"protocol": "fcline", "method": "tst"}
    rows = [run, {**net, "calibrator": "ts"}]
    costs = [
        {**run, "stage": "first_stage", "item": "ce", "seconds": 100},
        {**run, "stage": "train", "item": "", "seconds": 20},
        {**net, "stage": "calibrate", "item": "ts", "fit_seed": 1, "seconds": 2},
        *(
            {**net, "stage": "calibrate", "item": "smart", "fit_seed": n, "seconds": 2 * n}
            for n in (1, 1, 2, 3)
        ),
    ]
    trained = fill("maccal", "4", rows, costs)
    assert cell(trained, dataset="cifar10", backbone="resnet50", method="tst")["ours"] == 120
    assert "120 n=1 \\| 14959 (-14839)" in trained.markdown

    fits = fill("smart", "5", rows, costs)
    once, often = (cell(fits, calibrator=name) for name in ("ts", "smart"))
    assert (once["ours"], once["n_seeds"], often["ours"], often["n_seeds"]) == (2, 1, 4, 3)
    assert math.isnan(once["std"])
    assert often["std"] == 2
    assert "**2.00** n=1 \\| **2.42** ± 0.10 (-0.42)" in fits.markdown
    assert "4.00 ± 2.00 n=3 \\| <u>23.03</u> ± 0.41 (-19.03)" in fits.markdown


def test_nll_is_shown_as_printed_and_kept_in_nats(fill):
    table = fill("smart", "12", [{"metric": "nll", "value": 0.25, "protocol": "external"}])
    row = cell(table, dataset="cifar10", backbone="resnet50", method="ce", calibrator="none")
    assert row["ours"] == 0.25
    assert f"25.00 n=1 \\| {100 * row['published']:.2f}" in table.markdown


# formats
# --------------------------------------------------------------------------------------------------


def lines_of(markdown):
    """Cells of the lines of a Markdown table."""
    return [line[2:-2].split(" | ") for line in markdown.splitlines() if line.startswith("| ")]


def cells_of(page):
    """Texts of the cells of an HTML table, with the best as in Markdown."""
    rows = []
    for row in re.findall(r"<tr.*?</tr>", page, re.DOTALL):
        cells = re.findall(r"<t[dh].*?>(.*?)</t[dh]>", row, re.DOTALL)
        marked = [re.sub("</?b>", "**", cell).replace("\xa0", " ") for cell in cells]
        rows.append([html.unescape(re.sub("<.*?>", "", cell)) for cell in marked])
    return rows


# the stage
# --------------------------------------------------------------------------------------------------


def test_the_stage_writes_them_and_the_report_shows_them(make, tmp_path, monkeypatch):
    place = {"datasets": ("cifar10",), "backbones": ("resnet50",), "seeds": (0,)}
    study = make(methods=("ce", "ls", "mixup_a01"), **place, **CLEAN)
    paper = part("fedlas", ["1"], ("fedlas_ls_ece", "fedlas_mbls_ece"))
    monkeypatch.setattr("calgrid.papers.tables.papers_of", lambda _: [paper])
    manifest = {**study.manifest, "papers": [{"name": "fedlas", "own_protocols": []}]}
    out = study.folder / "tables"
    written = {path.name for path in write_tables(study.folder, manifest, out)}
    assert {f"fedlas_table1.{kind}" for kind in ("csv", "md", "tex")} <= written
    ours = pd.read_csv(out / "fedlas_table1.csv")
    metrics = pd.read_parquet(study.folder / "metrics.parquet")
    tested = metrics.query(
        "method == 'ce' and calibrator == 'none' and split == 'test' and metric == 'ece'"
    )["value"]
    found = ours.query(
        "dataset == 'cifar10' and backbone == 'resnet50' and method == 'ce' and metric == 'ece'"
    )
    assert found.query("calibrator == 'none'")["ours"].tolist() == [pytest.approx(tested.mean())]
    write_index(study.folder / "figures", [])
    write_report(study.folder, manifest, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "FeDLaS, Table 1" in page
    first = page.split("<main>")[0]
    link = r'<a href="#table-claims">Claims of fedlas \(.*\)</a>: (\d+) cannot tell</p>'
    assert re.findall(link, first) == ["2"]
    article = page.partition('<article id="table-fedlas_table1">')[2]
    shown = cells_of(article.partition("</table>")[0])
    # the method of no paper is behind a rule, which in Markdown is an empty row
    header, _, *lines = lines_of((out / "fedlas_table1.md").read_text())
    kept = [header, *(line for line in lines if any(line))]
    assert len(kept) == len(lines)
    assert shown == [[re.sub(r"\\(?=\|)|</?u>", "", cell) for cell in line] for line in kept]
    assert article.partition("</article>")[0].count('<tr class="ruled">') == 1
