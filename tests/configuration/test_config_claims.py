"""Claims of papers: which cells they are about, and each refusal in one sentence."""

import pytest
import yaml

from calgrid.configuration.claims import load_claims
from calgrid.configuration.tables import paper
from calgrid.errors import ConfigError

CLAIM = {
    "id": "mine",
    "text": "It is better.",
    "table": 1,
    "where": {"metric": "ece"},
    "better": {"method": "fedlas_ls"},
    "than": {"method": "ls"},
}


@pytest.fixture
def load(tmp_path, home):
    tables = paper(home, "fedlas", "papers")["tables"]

    def run(*claims):
        path = tmp_path / "mine.yaml"
        changed = [{key: value for key, value in {**CLAIM, **claim}.items() if value is not None} for claim in claims]
        path.write_text(yaml.safe_dump({"claims": changed}))
        return load_claims(path, home / "workflow" / "schemas" / "claims.schema.yaml", tables)

    return run


def test_cells_and_their_rival(load, home):
    (claim,) = load({})
    table = paper(home, "fedlas", "papers")["tables"][0]
    width = len(table["columns"])
    assert [(s["cell"] % width, [r % width for r in s["rivals"]]) for s in claim["settings"]] == [
        (column, [column]) for column in (0, 2, 4, 6, 8, 10)
    ]
    methods = [row["where"]["method"] for row in table["rows"]]
    assert {(methods[s["cell"] // width], methods[s["rivals"][0] // width]) for s in claim["settings"]} == {
        ("fedlas_ls", "ls")
    }
    assert (claim["at_least"], claim["margin"], claim["table"]) == (6, 0.0, "fedlas_table1")


def test_without_than_all_that_compete_are_rivals(load):
    (claim,) = load({"than": None, "at_least": 4})
    assert claim["at_least"] == 4
    assert [len(setting["rivals"]) for setting in claim["settings"]] == [15] * 6


def test_than_names_several_rivals_that_must_all_be_there(load, refuses):
    (claim,) = load({"than": {"method": ["ls", "mbls", "ce"]}})
    assert [len(setting["rivals"]) for setting in claim["settings"]] == [3] * 6
    with refuses(ConfigError, "0 cells of table 1 match and have a rival"):
        load({"than": {"method": ["ls", "no_such"]}})


def test_means_and_ranks_are_no_cells_of_a_claim(load):
    (claim,) = load({"table": 2, "where": {"metric": "accuracy"}, "margin": 0.01})
    assert len(claim["settings"]) == 4
    assert claim["margin"] == 0.01


@pytest.mark.parametrize(
    ("claim", "parts"),
    [
        ({"text": None}, ["the key 'text' is missing"]),
        ({"bettr": {}}, ["Unknown key 'bettr'", "did you mean 'better'?"]),
        ({"table": 9}, ["mine: there is no table 9; valid: 1, 2, 3, 4"]),
        ({"better": {"method": "no_such"}}, ["0 cells of table 1 match and have a rival"]),
        ({"than": {"method": "no_such"}}, ["0 cells of table 1 match and have a rival"]),
        ({"at_least": 7}, ["6 cells of table 1 match", "which is too few"]),
        ({"margin": 0}, ["margin", "minimum of 0"]),
    ],
)
def test_what_does_not_fit_is_refused(load, refuses, claim, parts):
    with refuses(ConfigError, "claims mine.yaml", *parts):
        load(claim)


def test_ids_are_there_once(load, refuses):
    with refuses(ConfigError, "the id 'mine' is there twice"):
        load({}, {})


@pytest.mark.parametrize(("name", "count"), [("fedlas", 12), ("maccal", 6), ("smart", 8)])
def test_shipped_claims_are_about_cells(home, name, count):
    claims = paper(home, name, "papers")["claims"]
    assert len(claims) == count
    assert all(claim["settings"] and claim["text"].endswith(".") for claim in claims)
