"""Tables of papers: what a file may say, how its blocks are written out, and each refusal in one sentence."""

import json
import shutil

import pytest
import yaml

from calgrid.configuration.plan import Plan
from calgrid.configuration.study import Study
from calgrid.configuration.tables import load_table, paper
from calgrid.errors import ConfigError

TABLE = {
    "title": "A table",
    "where": {"dataset": "cifar10", "backbone": "resnet50"},
    "rows": [{"method": ["ce", "ls"]}, {"method": "ce", "calibrator": "ts"}],
    "columns": [{"metric": ["ece", "nll"]}],
    "best_over": ["method", "calibrator"],
}


@pytest.fixture
def load(tmp_path, home):
    def run(name="table3.yaml", **changes):
        path = tmp_path / name
        content = {key: value for key, value in {**TABLE, **changes}.items() if value is not None}
        path.write_text(yaml.safe_dump(content))
        return load_table(path, home / "workflow" / "schemas" / "table.schema.yaml")

    return run


def test_blocks_are_products_in_order(load):
    table = load(columns=[{"dataset": ["a", "b"], "metric": ["ece", "nll"]}], where={"backbone": "resnet50"})
    assert [tuple(column["where"].values()) for column in table["columns"]] == [
        ("a", "ece"),
        ("a", "nll"),
        ("b", "ece"),
        ("b", "nll"),
    ]
    assert [row["heading"] for row in table["rows"]] == [["ce", "none"], ["ls", "none"], ["ce", "ts"]]
    assert (table["table"], table["row_axes"], table["digits"]) == ("3", ["method", "calibrator"], 2)


def test_names_stand_in_headings(load):
    table = load(names={"ls": "label smoothing"})
    assert table["rows"][1] == {"heading": ["label smoothing", "none"], "where": {"method": "ls"}}


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"title": None}, ["the key 'title' is missing"]),
        ({"colums": []}, ["Unknown key 'colums'", "did you mean 'columns'?"]),
        ({"rows": []}, ["rows must not be empty"]),
        ({"rows": [{"methd": "ce"}]}, ["Unknown key 'methd'", "did you mean 'method'?"]),
        ({"best_over": ["methods"]}, ["best_over[0] must be one of dataset, backbone, method"]),
        ({"digits": "two"}, ["digits must be of type integer, got 'two'"]),
        ({"where": None}, ["a cell has no 'dataset'", "name it in rows, columns or where"]),
        ({"columns": [{"metric": "ece", "method": "ls"}]}, ["'method' stands in rows and in columns"]),
        ({"columns": [{"metric": "eec"}]}, ["Unknown metric 'eec'", "did you mean 'ece'?"]),
        ({"columns": [{"metric": "ece"}, {"metric": "ece"}]}, ["the cell", "metric=ece", "is there twice"]),
        ({"means": [{"where": {"dataset": "b"}, "over": {"backbone": "x"}}]}, ["means: no cell has", "correct or"]),
        ({"ranks": {"mean_rank_ece": "ece"}}, ["ranks: 'mean_rank_ece' ranks 'ece', of which one is in no cell"]),
    ],
)
def test_what_does_not_fit_is_refused(load, refuses, changes, parts):
    with refuses(ConfigError, "table3.yaml", *parts):
        load(**changes)


def test_files_are_named_after_their_table(load, refuses):
    with refuses(ConfigError, "must be named after its table"):
        load("ece.yaml")


def test_damaged_yaml_is_refused(tmp_path, home, refuses):
    path = tmp_path / "table1.yaml"
    path.write_text("title: [")
    with refuses(ConfigError, "table1.yaml, line 1, column 9, is not valid YAML"):
        load_table(path, home / "workflow" / "schemas" / "table.schema.yaml")


def test_a_paper_needs_its_numbers(tmp_path, home, refuses):
    shutil.copytree(home / "config" / "tables", tmp_path / "config" / "tables")
    with refuses(ConfigError, "papers: 'smart' has tables but no numbers"):
        paper(tmp_path, "smart", "papers")


def test_tables_come_in_the_order_of_their_numbers(home):
    numbers = {name: [t["id"] for t in paper(home, name, "papers")["tables"]] for name in ("fedlas", "maccal", "smart")}
    assert numbers == {
        "fedlas": [f"fedlas_table{n}" for n in range(1, 5)],
        "maccal": [f"maccal_table{n}" for n in range(1, 6)],
        "smart": [f"smart_table{n}" for n in range(1, 15)],
    }


# studies ----------------------------------------------------------------------------------------------------------


def test_a_study_names_papers(make_config, home):
    manifest = Plan(Study(make_config(papers=["fedlas"]), home)).manifest()
    (entry,) = manifest["papers"]
    assert entry["name"] == "fedlas"
    assert manifest["published"] == [str(home / "config" / "published" / "fedlas.csv")]
    assert json.loads(json.dumps(manifest)) == manifest


def test_papers_change_nothing_but_what_is_reported(make_config, home):
    with_papers, without = (Plan(Study(make_config(papers=names), home)) for names in (["smart", "maccal"], []))
    assert without.manifest()["papers"] == []
    assert list(with_papers.study.runs) == list(without.study.runs)
    keys = without.study.evaluations
    assert [with_papers.calibrate(key) for key in keys] == [without.calibrate(key) for key in keys]


def test_an_edited_number_or_table_is_noticed(make_config, home, tmp_path):
    for folder in ("config", "workflow"):
        shutil.copytree(home / folder, tmp_path / folder)

    def fingerprint():
        return Plan(Study(make_config(papers=["maccal"]), tmp_path)).manifest()["fingerprint"]

    found = [fingerprint(), fingerprint()]
    for file in ("config/published/maccal.csv", "config/tables/maccal/table1.yaml", "config/claims/maccal.yaml"):
        path = tmp_path / file
        path.write_text(path.read_text().replace("4.11", "4.12").replace("sixteen", "16"))
        found.append(fingerprint())
    assert found[0] == found[1]
    assert len(set(found)) == 4


def test_an_unknown_paper_is_refused(make_config, home, refuses):
    with refuses(ConfigError, "Unknown paper 'fedls' in papers", "did you mean 'fedlas'?"):
        Study(make_config(papers=["fedls"]), home)
