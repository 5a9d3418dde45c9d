"""A study is named by its configuration or by the folder of its results, in every command."""

import contextlib
import json
import shutil
from pathlib import Path

import pytest
import yaml
from tests.cli.conftest import overconfident, write

from calgrid.cli import main
from calgrid.storage.publish import Call, write_part
from calgrid.storage.records import read_record

ORIGIN = ("--creator", "A", "--licence", "CC0-1.0")
RUN = "model/seed0"
#: command -> arguments with the study as ``{}``, or as the first of them
COMMANDS = {
    "check": [],
    "cost": [],
    "status": [],
    "status --why": ["{}", "--why", RUN],
    "verify": [],
    "clean": ["{}", "--run", RUN],
    "show": ["{}", RUN],
    "pack": ["{}", "study.zip", *ORIGIN],
    "export": ["{}", "--csv", "tables"],
    "run": ["{}", "-n"],
}
#: files that commands write
WRITTEN = ("study.zip", "tables")


def quickly(call, make=Call.make):
    """Make a result of a plan; tables, figures and the report are one small file each."""
    stage = call.module.rpartition(".")[2]

    def write(_study, _manifest, place):
        (place / "index.json" if place.is_dir() else place).write_text("[]")

    if stage in ("tables", "figures", "report"):
        write_part(call, stage if stage != "report" else "report.html", write)
    else:
        make(call)


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """A finished study of the logits of one network, and its configuration; never changed."""
    folder = tmp_path_factory.mktemp("study")
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Call, "make", quickly)
        for number, name in enumerate(("val", "test")):
            write(Path(name), "npz", *overconfident(number))
        logits = ("--fit", "val.npz", "--apply", "test.npz", "--calibrator", "ts")
        assert main(["report-logits", "tiny", *logits, "--bootstrap", "0"]) == 0
        given = read_record(Path("results/tiny/manifest.json"))["given"]
        Path("my_study.yaml").write_text(yaml.safe_dump(given))
    return folder


@pytest.fixture
def place(once, tmp_path, monkeypatch):
    """Working directory with the study."""
    shutil.copytree(once, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def arguments(command, study):
    further = [study if part == "{}" else part for part in COMMANDS[command]]
    return [command.split()[0], *(further or [study])]


@pytest.mark.parametrize("command", sorted({*COMMANDS} - {"run"}))
def test_a_study_is_named_by_its_configuration_or_its_folder(command, succeeds, place):
    said = []
    for study in ("my_study.yaml", "results/tiny", place / "results/tiny"):
        done = succeeds(*arguments(command, study))
        assert done.out
        said.append(done.out + done.err)
        for name in WRITTEN:
            path = Path(name)
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    assert said[1] == said[0]
    assert said[2].replace(f"{place}/", "") == said[0]


@pytest.mark.parametrize("command", COMMANDS)
def test_what_names_no_study_is_refused(command, fails, place):
    Path("data").mkdir()
    said = "There is no tiny; give the configuration of a study"
    fails(*arguments(command, "tiny"), parts=[said])
    fails(*arguments(command, "data"), parts=["The folder data holds no study; give"])
    if command not in ("export", "verify"):
        Path("x.zip").write_bytes(b"PK\5\6" + bytes(18))
        fails(*arguments(command, "x.zip"), parts=["x.zip is an archive; unpack it with"])


@pytest.mark.parametrize("command", ["verify", "show", "pack", "export"])
def test_a_study_without_results(command, fails, place):
    shutil.rmtree("results/tiny")
    said = "The study of my_study.yaml has no results in results/tiny; run it with 'calgrid run"
    fails(*arguments(command, "my_study.yaml"), parts=[said])
    Path("other.yaml").write_text("data: data")
    fails(*arguments(command, "other.yaml"), parts=["The configuration has no key 'study'; give"])


@pytest.mark.parametrize("command", ["pack", "export"])
def test_a_study_that_is_not_finished(command, fails, place):
    manifest = Path("results/tiny/manifest.json")
    plan = Path("results/tiny/.calgrid/plan-1.json")
    plan.parent.mkdir(exist_ok=True)
    plan.write_text(json.dumps({"manifest": read_record(manifest)}))
    manifest.unlink()
    fails(*arguments(command, "results/tiny"), parts=["tiny is not finished; run it first"])


def test_a_deleted_file_of_logits_is_named(fails, place):
    (file,) = Path("results").glob("runs/*/*/*/*/*/predict-*/logits/last/test.parquet")
    file.unlink()
    fails("show", "results/tiny", RUN, parts=["test.parquet does not exist", "--delete"])


def test_verify_finds_what_a_study_lacks(calgrid, place):
    (predicted,) = Path("results").glob("runs/*/*/*/*/*/predict-*")
    assert calgrid("verify", "my_study.yaml").out.startswith(
        "all intact: 2 results of study 'tiny'"
    )
    (predicted / "logits/last/test.parquet").unlink()
    for study in ("my_study.yaml", "results/tiny", "results"):
        done = calgrid("verify", study)
        assert done.code == 2
        assert "intact" not in done.out
        assert f"'calgrid verify {study} --delete'" in done.err
    shutil.rmtree(predicted)
    predicted.mkdir()  # as Snakemake does
    done = calgrid("verify", "results/tiny")
    first, last = done.out.splitlines()
    assert (done.code, first) == (2, f"{predicted}: missing")
    assert last.startswith("1 result of study 'tiny'; ")
    assert done.err.startswith("calgrid verify: 1 result of study 'tiny' is missing; run again.")


def test_a_copied_study_is_that_of_its_folder(calgrid, place):
    Path("results").rename("elsewhere")
    Path("elsewhere/tiny").rename("elsewhere/mine")
    jobs = json.loads(calgrid("status", "elsewhere/mine", "--json").out)
    assert jobs["study"] == "mine"
    assert {job["state"] for job in jobs["jobs"]} == {"done"}


def test_an_unpacked_archive_names_its_study(calgrid, succeeds, place):
    calgrid(*arguments("pack", "results/tiny"))
    shutil.unpack_archive("study.zip", "archive")
    shutil.rmtree("results")
    for study in ("archive", "archive/tiny"):
        succeeds("show", study, RUN)
        assert calgrid("check", study).out.startswith("study 'tiny': ")
    succeeds("export", "study.zip", "--csv", "a")
    succeeds("export", "archive", "--csv", "b")


def test_clean_names_no_results_of_one_study_without_its_runs(fails, calgrid, place):
    for study in ("my_study.yaml", "results/tiny"):
        said = "results/tiny is one study: name its runs with --run"
        fails("clean", study, "--yes", parts=[said])
    assert "There is nothing to remove" in calgrid("clean", "results").out
