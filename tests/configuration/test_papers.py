"""Tables of papers: what a file may say, how its blocks are written out, and each refusal in one
sentence.
"""

import json
import shutil

import numpy as np
import pytest
import yaml

from calgrid.configuration.model import Config
from calgrid.configuration.papers import load_claims, load_table, own_protocols, paper
from calgrid.configuration.plan import Plan
from calgrid.configuration.study import Study
from calgrid.errors import ConfigError

TABLE = {
    "title": "A table",
    "where": {"dataset": "cifar10", "backbone": "resnet50"},
    "rows": [{"method": ["ce", "ls"]}, {"method": "ce", "calibrator": "ts"}],
    "columns": [{"metric": ["ece", "nll"]}],
    "best_over": ["method", "calibrator"],
}


@pytest.fixture
def load(tmp_path):
    def run(name="table3.yaml", **changes):
        path = tmp_path / name
        content = {key: value for key, value in {**TABLE, **changes}.items() if value is not None}
        path.write_text(yaml.safe_dump(content))
        return load_table(path, "mine")

    return run


def test_blocks_are_products_in_order_and_names_stand_in_headings(load):
    blocks = [{"dataset": ["a", "b"], "metric": ["ece", "nll"]}]
    table = load(columns=blocks, where={"backbone": "resnet50"}, names={"ls": "label smoothing"})
    columns = [tuple(column["where"].values()) for column in table["columns"]]
    assert columns == [("a", "ece"), ("a", "nll"), ("b", "ece"), ("b", "nll")]
    assert [row["heading"] for row in table["rows"]] == [
        ["ce", "none"],
        ["label smoothing", "none"],
        ["ce", "ts"],
    ]
    assert table["rows"][1]["where"] == {"method": "ls"}
    assert (table["table"], table["row_axes"], table["digits"]) == (
        "3",
        ["method", "calibrator"],
        2,
    )


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"rows": [{"methd": "ce"}]}, ["Unknown key 'methd'", "did you mean 'method'?"]),
        ({"best_over": ["methods"]}, ["best_over[0] must be one of dataset, backbone, method"]),
        ({"best_over": ["metric"]}, ["best_over: cells of different metrics do not compete"]),
        ({"where": None}, ["a cell has no 'dataset'", "add it to rows, columns or where"]),
        ({"columns": [{"metric": "ece", "method": "ls"}]}, ["'method' is in rows and in columns"]),
        ({"columns": [{"metric": "eec"}]}, ["Unknown metric 'eec'", "did you mean 'ece'?"]),
        (
            {"columns": [{"metric": "ece"}, {"metric": "ece"}]},
            ["the cell", "metric=ece", "appears twice"],
        ),
        (
            {"means": [{"where": {"dataset": "b"}, "over": {"backbone": "x"}}]},
            ["means: no cell has", "correct or"],
        ),
        (
            {"ranks": {"mean_rank_ece": "ece"}},
            ["ranks: 'mean_rank_ece' or the metric 'ece' that it ranks"],
        ),
    ],
)
def test_what_does_not_fit_is_refused(load, refuses, changes, parts):
    with refuses(ConfigError, "table3.yaml", *parts):
        load(**changes)


def test_files_are_named_after_their_table(load, refuses):
    with refuses(ConfigError, "must have a name like table1.yaml"):
        load("ece.yaml")


def test_a_paper_needs_its_numbers(tmp_path, home, refuses):
    shutil.copytree(home / "config" / "papers", tmp_path / "config" / "papers")
    (tmp_path / "config/papers/smart/published.csv").unlink()
    with refuses(ConfigError, "papers: 'smart' has tables but no published numbers"):
        paper(tmp_path, "smart", "papers")


def test_tables_come_in_the_order_of_their_numbers(home):
    numbers = {
        name: [t["id"] for t in paper(home, name, "papers")["tables"]]
        for name in ("fedlas", "maccal", "smart")
    }
    assert numbers == {
        "fedlas": [f"fedlas_table{n}" for n in range(1, 5)],
        "maccal": [
            *(f"maccal_table{n}" for n in range(1, 6)),
            *(f"maccal_figure{n}" for n in range(4, 8)),
        ],
        "smart": [*(f"smart_table{n}" for n in range(1, 15)), "smart_figure5", "smart_figure11"],
    }


# studies
# --------------------------------------------------------------------------------------------------


def test_a_study_names_papers(plan, home):
    manifest = plan(papers=["fedlas"]).manifest()
    (entry,) = manifest["papers"]
    assert entry["name"] == "fedlas"
    assert manifest["published"] == [str(home / "config/papers/fedlas/published.csv")]
    assert json.loads(json.dumps(manifest)) == manifest


class TestRunsOfThePapersStudy:
    """Notes on its runs are shown where the configuration defines all names as the paper's does."""

    @pytest.fixture
    def maccal(self, home):
        return yaml.safe_load((home / "config/papers/maccal/study.yaml").read_text())

    def own(self, home, config):
        return own_protocols(home, "maccal", Config.model_validate(config))

    def test_they_may_be_fewer_and_beside_others(self, home, maccal):
        protocols = ["fcline", "fcline_code", "fcline_tiny_128"]
        assert self.own(home, maccal) == protocols
        maccal["methods"]["ls_02"] = {"base": "ls", "alpha": 0.2}
        maccal["grids"] = [{**maccal["grids"][0], "methods": ["ce", "ls_02"], "seeds": [1, 2]}]
        assert self.own(home, maccal) == protocols

    @pytest.mark.parametrize(
        "change",
        [
            {"protocols": {}},
            {"methods": {"acls_m10": {"base": "acls", "margin": 6.0}}},
            {"overrides": [{"match": {"method": "mixup"}, "set": {"alpha": 1.0}}]},
        ],
    )
    def test_of_another_definition_none_are(self, home, maccal, change):
        assert self.own(home, {**maccal, **change}) == []

    def test_protocols_in_another_line_are_not_the_papers(self, home, maccal):
        assert self.own(home, {**maccal, "lines": {}}) == ["fcline"]
        fewer = {"fcline_as_their_code": ["fcline_code"]}
        assert self.own(home, {**maccal, "lines": fewer}) == ["fcline", "fcline_code"]

    def test_logits_under_the_name_of_a_protocol_are_not_its_runs(self, home, maccal, tmp_path):
        labels = np.array([0, 1, 2, 0])
        np.savez(tmp_path / "test.npz", logits=np.eye(3)[labels], labels=labels)
        names = {"dataset": "cifar10", "backbone": "resnet50", "method": "ce", "seed": 1}
        theirs = {"test": "test.npz", "split_seed": 1, "kind": "logits", "protocol": "fcline"}
        config = {name: maccal[name] for name in ("study", "methods", "protocols", "papers")}
        config |= {"data_root": str(tmp_path), "external": {"theirs": {**theirs, **names}}}
        manifest = Plan(Study(config, home)).manifest()
        assert manifest["papers"][0]["own_protocols"] == []
        assert manifest["protocols"] == {"fcline": "logits that were not made by this study"}

    def test_a_study_says_what_its_own_protocols_do(self, plan):
        grid = {"protocol": "aclsline", "datasets": ["cifar10"], "backbones": ["resnet50"]}
        grids = [{**grid, "methods": ["ce"]}, {**grid, "methods": ["ce"], "protocol": "code"}]
        constants = {"cifar100": "imagenet"}
        code = {"base": "fcline", "val_draw": "seed", "test_normalisation": constants}
        manifest = plan(*grids, papers=["fedlas"], protocols={"code": code}).manifest()
        assert manifest["papers"][0]["own_protocols"] == []
        assert manifest["protocols"] == {
            "aclsline": "350 epochs in batches of 128, the mean of the loss over a batch, in "
            "second stages the mean, the same validation images for all seeds, test images "
            "normalised as in training",
            "code": "350 epochs in batches of 128, the sum of the loss over a batch, in second "
            "stages the mean, validation images drawn for each seed, cifar100 tested with the "
            "constants of imagenet",
        }


def test_an_edited_number_or_table_is_noticed(make_config, home, tmp_path):
    for folder in ("config", "workflow"):
        shutil.copytree(home / folder, tmp_path / folder)

    def fingerprint():
        return Plan(Study(make_config(papers=["maccal"]), tmp_path)).manifest()["fingerprint"]

    found = [fingerprint(), fingerprint()]
    for file in (
        "config/papers/maccal/published.csv",
        "config/papers/maccal/tables/table1.yaml",
        "config/papers/maccal/claims.yaml",
    ):
        path = tmp_path / file
        path.write_text(path.read_text().replace("4.11", "4.12").replace("sixteen", "16"))
        found.append(fingerprint())
    assert found[0] == found[1]
    assert len(set(found)) == 4


def test_an_unknown_paper_is_refused(study, refuses):
    with refuses(ConfigError, "Unknown paper 'fedls' in papers", "did you mean 'fedlas'?"):
        study(papers=["fedls"])


CLAIM = {
    "id": "mine",
    "text": "It is better.",
    "table": 1,
    "where": {"metric": "ece"},
    "better": {"method": "fedlas_ls"},
    "than": {"method": "ls"},
}


@pytest.fixture
def load_claim(tmp_path, home):
    tables = paper(home, "fedlas", "papers")["tables"]

    def run(*claims):
        path = tmp_path / "mine.yaml"
        changed = [
            {key: value for key, value in {**CLAIM, **claim}.items() if value is not None}
            for claim in claims
        ]
        path.write_text(yaml.safe_dump({"claims": changed}))
        return load_claims(path, tables)[0]

    return run


def test_cells_and_their_rival(load_claim, home):
    (claim,) = load_claim({})
    table = paper(home, "fedlas", "papers")["tables"][0]
    methods, width = [row["where"]["method"] for row in table["rows"]], len(table["columns"])
    cells = [
        [(methods[n // width], n % width) for n in (s["cell"], *s["rivals"])]
        for s in claim["cases"]
    ]
    assert cells == [[("fedlas_ls", column), ("ls", column)] for column in (0, 2, 4, 6, 8, 10)]
    assert (claim["at_least"], claim["margin"], claim["table"]) == (6, 0.0, "fedlas_table1")


@pytest.mark.parametrize(
    ("claim", "rivals"),
    [
        ({"than": None, "at_least": 4}, [15] * 6),  # all that compete
        ({"than": {"method": ["ls", "mbls", "ce"]}}, [3] * 6),
        ({"better": {"method": ["fedlas_ls", "acls"]}}, [1] * 12),  # claimed of each
        # means over data sets and ranks are cells of a claim only by name
        ({"table": 2, "where": {"metric": "accuracy"}}, [1] * 4),
        ({"where": {"dataset": "average", "metric": "mean_rank_ece"}, "than": None}, [15]),
    ],
)
def test_rivals_of_each_cell(load_claim, claim, rivals):
    (found,) = load_claim({**claim, "margin": 0.01})
    assert [len(case["rivals"]) for case in found["cases"]] == rivals
    assert (found["at_least"], found["margin"]) == (claim.get("at_least", len(rivals)), 0.01)


def test_claims_may_be_about_the_numbers_behind_a_figure(home):
    known = {claim["id"]: claim for claim in paper(home, "maccal", "papers")["claims"]}
    assert known["maccal_shift"]["table"] == "maccal_figure5"
    assert len(known["maccal_shift"]["cases"]) == 10


@pytest.mark.parametrize(
    ("claim", "parts"),
    [
        ({"table": 9}, ["mine: there is no table 9; valid: 1, 2, 3, 4"]),
        ({"better": {"method": "no_such"}}, ["0 cells of table 1 match and have a rival"]),
        ({"than": {"method": ["ls", "no_such"]}}, ["0 cells of table 1 match and have a rival"]),
        ({"at_least": 7}, ["only 6 cells of table 1 match"]),
    ],
)
def test_claims_that_do_not_fit_are_refused(load_claim, refuses, claim, parts):
    with refuses(ConfigError, "mine.yaml", *parts):
        load_claim(claim)


def test_ids_are_there_once(load_claim, refuses):
    with refuses(ConfigError, "the id 'mine' appears twice"):
        load_claim({}, {})


@pytest.mark.parametrize(("name", "count"), [("fedlas", 23), ("maccal", 22), ("smart", 27)])
def test_shipped_claims_are_about_cells(home, name, count):
    read = paper(home, name, "papers")
    claims = read["claims"]
    assert len(claims) == count
    assert all(each["text"].endswith(".") for each in read["unchecked"])
    assert all(claim["cases"] and claim["text"].endswith(".") for claim in claims)
