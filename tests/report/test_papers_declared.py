"""Tables, claims and printed figures as the folders of papers declare them."""

import itertools

import pytest

from calgrid.metrics import METRICS
from calgrid.papers.claims import TIMES
from calgrid.papers.declared import COORDINATES, Claim, PaperTable, declared

PAPERS = {name: declared(name) for name in ("fedlas", "maccal", "smart")}
TABLES = [table for paper in PAPERS.values() for table in paper.tables]
FEDLAS = {table.number: table for table in PAPERS["fedlas"].tables}


def name_of(table):
    return f"{table.paper}_{table.id}"


def test_blocks_are_products_in_order_and_names_stand_in_headings():
    table = PaperTable(
        *("mine", "table3", "A table"),
        where={"backbone": "resnet50"},
        rows=[{"method": ["ce", "ls"]}, {"method": "ce", "calibrator": "ts"}],
        columns=[{"dataset": ["a", "b"], "metric": ["ece", "nll"]}],
        best_over=["method"],
        names={"ls": "label smoothing"},
    )
    columns = [tuple(column.where.values()) for column in table.printed_columns]
    assert columns == [("a", "ece"), ("a", "nll"), ("b", "ece"), ("b", "nll")]
    headings = [row.heading for row in table.printed_rows]
    assert headings == [["ce", "none"], ["label smoothing", "none"], ["ce", "ts"]]
    assert (table.number, table.row_axes) == ("3", ["method", "calibrator"])
    assert [table.cells[5][axis] for axis in ("method", "dataset", "metric")] == ["ls", "a", "nll"]


def test_tables_come_in_the_order_of_their_numbers():
    assert {name: [table.id for table in paper.tables] for name, paper in PAPERS.items()} == {
        "fedlas": [f"table{n}" for n in range(1, 5)],
        "maccal": [*(f"table{n}" for n in range(1, 6)), *(f"figure{n}" for n in range(4, 8))],
        "smart": [*(f"table{n}" for n in range(1, 15)), "figure5", "figure11"],
    }


@pytest.mark.parametrize("table", TABLES, ids=name_of)
def test_every_cell_has_each_coordinate_and_is_there_once_and_means_are_of_cells(table):
    for row, column in itertools.product(table.printed_rows, table.printed_columns):
        assert not row.where.keys() & column.where.keys()
    assert all(cell.keys() == {*COORDINATES} for cell in table.cells)
    assert len({tuple(sorted(cell.items())) for cell in table.cells}) == len(table.cells)
    metrics = {cell["metric"] for cell in table.cells}
    assert metrics <= {*METRICS, *TIMES, *table.ranks}
    assert {*table.ranks, *table.ranks.values()} <= metrics
    assert {*table.best_over} < {*COORDINATES} - {"metric"}
    for mean in table.means:
        assert any(mean["where"].items() <= cell.items() for cell in table.cells)


def test_a_mean_is_over_all_combinations_under_the_names_that_ours_have():
    cell = {**FEDLAS["2"].cells[0], "dataset": "average", "backbone": "average"}
    places = [(place["dataset"], place["backbone"]) for place in FEDLAS["2"].places(cell)]
    assert places == [
        ("fgvc_aircraft", "imagenet_resnet101"),
        ("fgvc_aircraft_448", "vit_b16_384"),
        ("cub200", "imagenet_resnet101"),
        ("cub200_448", "vit_b16_384"),
    ]
    (single,) = FEDLAS["2"].places({**cell, "dataset": "cub200", "backbone": "resnet101"})
    assert (single["dataset"], single["backbone"]) == ("cub200", "imagenet_resnet101")


# claims
# --------------------------------------------------------------------------------------------------

CLAIM = {
    "id": "mine",
    "text": "It is better.",
    "table": 1,
    "where": {"metric": "ece"},
    "better": {"method": "fedlas_ls"},
    "than": {"method": "ls"},
}


def cases(**changes):
    claim = Claim(**{**CLAIM, **changes})
    return claim.cases(FEDLAS[str(claim.table)])


def test_cells_and_their_rival():
    cells = [
        (FEDLAS["1"].cells[case.cell], FEDLAS["1"].cells[n])
        for case in cases()
        for n in case.rivals
    ]
    assert len(cells) == 6
    for mine, rival in cells:
        assert (mine["method"], mine["metric"]) == ("fedlas_ls", "ece")
        assert rival == {**mine, "method": "ls"}


@pytest.mark.parametrize(
    ("claim", "rivals"),
    [
        ({"than": None}, [15] * 6),  # all that compete
        ({"than": {"method": ["ls", "mbls", "ce"]}}, [3] * 6),
        ({"better": {"method": ["fedlas_ls", "acls"]}}, [1] * 12),  # claimed of each
        # means over data sets and ranks are cells of a claim only by name
        ({"table": 2, "where": {"metric": "accuracy"}}, [1] * 4),
        ({"where": {"dataset": "average", "metric": "mean_rank_ece"}, "than": None}, [15]),
        # all rivals must exist
        ({"better": {"method": "no_such"}}, []),
        ({"than": {"method": ["ls", "no_such"]}}, []),
    ],
)
def test_rivals_of_each_cell(claim, rivals):
    assert [len(case.rivals) for case in cases(**claim)] == rivals


@pytest.mark.parametrize(("name", "count"), [("fedlas", 23), ("maccal", 22), ("smart", 27)])
def test_shipped_claims_are_about_cells(name, count):
    paper = PAPERS[name]
    tables = {table.number: table for table in paper.tables}
    assert len({claim.id for claim in paper.claims}) == len(paper.claims) == count
    for claim in paper.claims:
        found = len(claim.cases(tables[str(claim.table)]))
        assert 1 <= (claim.at_least or found) <= found
        assert claim.margin >= 0
        assert claim.text.endswith(".")
    assert all(text.endswith(".") and reason for text, reason in paper.unchecked)
