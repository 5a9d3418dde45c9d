"""Papers that a study names, and runs that are those of a paper's study."""

import json
import shutil

import numpy as np
import pytest
import yaml

from calgrid.errors import ConfigError
from calgrid.plan.plan import Plan
from calgrid.study.model import Config
from calgrid.study.papers import own_protocols
from calgrid.study.study import Study


def test_a_study_names_papers(plan, home):
    manifest = plan(papers=["fedlas"]).manifest()
    (entry,) = manifest["papers"]
    assert entry["name"] == "fedlas"
    assert manifest["published"] == [str(home / "config/papers/fedlas/published.csv")]
    assert json.loads(json.dumps(manifest)) == manifest


def test_an_unknown_paper_is_refused(study, refuses):
    with refuses(ConfigError, "Unknown paper 'fedls' in papers", "did you mean 'fedlas'?"):
        study(papers=["fedls"])


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


def test_an_edited_number_table_claim_or_figure_is_noticed(make_config, home, tmp_path):
    for folder in ("config", "workflow"):
        shutil.copytree(home / folder, tmp_path / folder)

    def fingerprint():
        plan = Plan(Study(make_config(papers=["maccal"]), tmp_path))
        return plan.stage("tables").fingerprint

    found = [fingerprint(), fingerprint()]
    for file, old, new in (
        ("published.csv", "4.11", "4.12"),
        ("tables.yaml", "sixteen", "16"),
        ("claims.yaml", "sixteen", "16"),
        ("figures.yaml", "A drawing without data.", "A drawing."),
    ):
        path = tmp_path / "config/papers/maccal" / file
        path.write_text(path.read_text().replace(old, new))
        found.append(fingerprint())
    assert found[0] == found[1]
    assert len(set(found)) == 5
