"""Two laboratories: what the first one packs, the second one merges and compares without training
it.
"""

import json
import re
import shutil

import pandas as pd
import pytest
from tests.workflow.dag import (
    AGGREGATION,
    CONFIG,
    HOME,
    METHODS,
    METRICS,
    RUN,
    Repository,
    branch,
    changed,
)

from calgrid.configuration.plan import Plan
from calgrid.configuration.repair import find_repairs
from calgrid.configuration.study import Study
from calgrid.errors import StateError
from calgrid.files.pack import pack

pytestmark = pytest.mark.workflow
BLOCKS = re.findall(r"```bash\n(.*?)```", (HOME / "docs" / "sharing.md").read_text(), re.DOTALL)
OF_A = {
    "creators": ["Laboratory A"],
    "licence": "CC-BY-4.0",
    "cite": "https://doi.org/10.5281/zenodo.1",
}
#: tables that show measured times
TIMED = re.compile(r"costs|training_time|overview|index\.json|pareto")


def shell(repository, block):
    """Call commands of the page on sharing, of the study of these tests."""
    repository.shell(block.replace("my_study", "tiny").replace("--cores all", "--cores 2"))


@pytest.fixture(scope="module")
def archive(finished_once, tmp_path_factory):
    first = finished_once.copy(tmp_path_factory.mktemp("a") / "repository")
    shell(first, BLOCKS[0])
    return first.root / "study.zip"


@pytest.fixture(scope="module")
def merged(archive, tmp_path_factory):
    """The second laboratory, without data, after its first call."""
    second = Repository(tmp_path_factory.mktemp("b") / "repository")
    shutil.copy(archive, second.root)
    *before, snakemake = BLOCKS[1].splitlines()
    shell(second, "\n".join(before))
    assert (
        second.plan("archive/study.yaml") == branch(*METHODS, stages=("calibrate",)) | AGGREGATION
    )
    shell(second, snakemake)
    return second


@pytest.fixture
def laboratory(merged, tmp_path):
    return merged.copy(tmp_path / "b")


def tables(repository):
    found = {
        path.name: path.read_bytes() for path in (repository.root / "results/tiny/tables").iterdir()
    }
    return {name: content for name, content in found.items() if not TIMED.search(name)}


def test_the_tables_of_both_are_equal_and_so_is_what_the_second_packs(
    merged, finished_once, archive, tmp_path
):
    assert len(tables(finished_once)) > 5
    assert tables(merged) == tables(finished_once)
    assert (merged.root / METRICS).read_bytes() == (finished_once.root / METRICS).read_bytes()
    assert not list((merged.root / "results").rglob("model.safetensors"))
    assert not (merged.root / "results/data").exists()
    pack(merged.root / "results/tiny", tmp_path / "again.zip", **OF_A)
    assert (tmp_path / "again.zip").read_bytes() == archive.read_bytes()
    assert (
        f"merged, of Laboratory A, {OF_A['cite']} (CC-BY-4.0)"
        in (merged.root / "results/tiny/report.html").read_text()
    )
    runs = json.loads((merged.root / "results/tiny/runs.json").read_text())["runs"]
    assert [run["origin"]["creators"] for run in runs] == [OF_A["creators"]] * len(METHODS)


def test_a_method_of_the_second_laboratory_is_trained_alone_also_when_its_data_are_newer(
    laboratory, finished_once
):
    laboratory.configure(changed(methods=[*METHODS, "ls"]))
    own = branch("ls") | AGGREGATION
    assert laboratory.plan() == own | {"prepare_data digits", "prepare_data photos"}
    # as its data would be after that call: newer than all that was merged
    data = finished_once.root / "results/data"
    for path in data.rglob("*"):
        if path.is_file() and ".calgrid" not in path.parts:
            copy = laboratory.root / "results/data" / path.relative_to(data)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
    assert laboratory.plan("tiny.yaml", "--max-checksum-file-size", "1") == own


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"methods": ["tst"]},
            "ce/seed1/train.json was merged from an archive, but the study needs its network",
        ),
        (
            {"shifts": ["digits_c"]},
            "ce/seed1/predict.json was merged from an archive, but the study needs files that",
        ),
        (
            {"probes": ["profiles"]},
            "profiles.json was merged from an archive, but the study needs this file",
        ),
    ],
)
def test_a_study_that_needs_more_than_the_archive_has_is_refused(
    merged, monkeypatch, refuses, changes, said
):
    monkeypatch.chdir(merged.root)
    with refuses(StateError, said, "move its folder away to train it here"):
        find_repairs(Plan(Study(changed(**changes), HOME)))


def test_a_study_with_other_options_is_refused_before_any_job(merged):
    merged.configure(
        {**CONFIG, "overrides": [{"match": {"method": "mbls"}, "set": {"margin": 10.0}}]}
    )
    result = merged.snakemake("--configfile", "tiny.yaml", "-n", "--cores", "2")
    assert result.returncode != 0
    said = "mbls/seed1/train.json was merged from an archive, but its fingerprint differs from the plan"
    assert said in result.stdout
    assert "Traceback" not in result.stdout + result.stderr


def test_a_damaged_merged_run_is_refused_and_trained_here_once_its_folder_is_gone(laboratory):
    run = laboratory.root / RUN / "ce/seed1"
    (run / "logits/last/val.parquet").write_bytes(b"")
    result = laboratory.snakemake("--configfile", "archive/study.yaml", "-n", "--cores", "2")
    assert (
        "ce/seed1/predict.json was merged from an archive, but one of its files is damaged"
        in result.stdout
    )
    run.rename(laboratory.root / "away")
    data = {"prepare_data digits", "prepare_data photos"}
    assert laboratory.plan("archive/study.yaml", METRICS) == branch("ce") | data | {"aggregate"}


def test_as_logits_made_elsewhere_they_stand_beside_runs_of_the_same_key(laboratory):
    shell(laboratory, BLOCKS[2].replace("snakemake", f"snakemake {METRICS}"))
    metrics = pd.read_parquet(laboratory.root / METRICS)
    clean = metrics[(metrics["metric"] == "ece_debiased") & (metrics["split"] == "test")]
    values = clean.pivot_table(index="calibrator", columns="method", values="value", observed=True)
    assert set(values) == {*METHODS, *(f"{method}.last.lab_a" for method in METHODS)}
    assert len(values) == 2
    for method in METHODS:
        assert (values[method] == values[f"{method}.last.lab_a"]).all()
