"""Every number stands on the content that it names: what has changed is computed again, or refused.

The studies are of logits in files, which are imported and scored in seconds, and of copies of a
small grid.
"""

import json
import os
import time

import numpy as np
import pandas as pd
import pytest
from tests.conftest import flip
from tests.workflow.dag import AGGREGATION, METRICS, Repository, branch, edits

from calgrid.cli import main
from calgrid.report.changes import changes

pytestmark = pytest.mark.workflow
IMPORTED = {"import_external m/seed0", "calibrate m/seed0"}
NAMES = (
    "paper,table,dataset,backbone,method,calibrator,metric,shift,severity,value,std,unit,suspect"
)
#: computations of PyTorch on another type of processor, with other bits
OTHER_PROCESSOR = {"ATEN_CPU_CAPABILITY": "default", "DNNL_MAX_CPU_ISA": "SSE41"}


def logits(path, changed=0):
    """Logits of 400 rows of which about 80 % are right; the labels of some rows are changed."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 400)
    values = rng.normal(size=(400, 4)) + 2 * np.eye(4)[labels]
    labels[:changed] = (labels[:changed] + 1) % 4
    np.savez(path, logits=values.astype(np.float32), labels=labels)


def accuracy(repository, study="files"):
    table = pd.read_parquet(repository.root / f"results/{study}/metrics.parquet")
    chosen = (table["metric"] == "accuracy") & (table["calibrator"] == "none")
    return table[chosen & (table["split"] == "test")]["value"].item()


def study_of_files(root, calibrators, **changes):
    """A repository with a study of one file of logits."""
    repository = Repository(root)
    (root / "data").mkdir()
    logits(root / "data/r.npz")
    run = {"kind": "logits", "test": "r.npz", "split_seed": 1, "dataset": "d", "method": "m"}
    study = {"study": "files", "data_root": "data", "statistics": {"bootstrap": 20}, **changes}
    study["external"] = {"r": {**run, "backbone": "b", "calibrators": calibrators}}
    repository.configure(study, "files.yaml")
    return repository


@pytest.fixture
def files(tmp_path):
    return study_of_files(tmp_path / "files", ["none", "ts"])


def test_another_content_of_a_file_or_a_published_number_reaches_the_study(files):
    numbers = files.root / "mine.csv"
    numbers.write_text(f"{NAMES}\nmine,1,d,b,m,none,ece,,0,4.34,,percent,\n")
    with (files.root / "files.yaml").open("a") as file:
        file.write("published: [mine.csv]\n")

    def published():
        table = pd.read_parquet(files.root / "results/files/summary.parquet")
        return set(table["published"].dropna().round(6))

    files.run("files.yaml", "aggregate")
    first = accuracy(files)
    assert published() == {0.0434}
    numbers.write_text(numbers.read_text().replace("4.34", "9.99"))
    assert files.plan("files.yaml") == AGGREGATION
    # other rows of the same size and time
    path = files.root / "data/r.npz"
    size, status = path.stat().st_size, path.stat()
    logits(path, changed=100)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == size
    assert files.plan("files.yaml") == IMPORTED | AGGREGATION
    files.run("files.yaml", "aggregate")
    assert accuracy(files) < first - 0.1
    assert published() == {0.0999}
    logits(path)  # as it was: its result is there
    assert files.plan("files.yaml") == AGGREGATION


def test_a_file_that_changes_between_planning_and_its_job_is_refused(files):
    started = files.start("files.yaml")
    while not list(files.root.glob("results/files/.calgrid/plan-*.json")):
        time.sleep(0.01)
    logits(files.root / "data/r.npz", changed=100)
    said, _ = started.communicate(timeout=300)
    assert started.returncode == 1, said
    assert "r.npz was changed after the study was planned; run again" in said
    assert not list(files.root.glob("results/runs/**/predict.json"))


def test_code_that_changes_between_planning_and_its_job_is_refused(files):
    with edits(files.root) as edit:
        started = files.start("files.yaml")
        while not list(files.root.glob("results/files/.calgrid/plan-*.json")):
            time.sleep(0.01)
        edit("src/calgrid/calibrators/ts.py", "\nfrom ", "\nCHANGED = True\nfrom ")
        said, _ = started.communicate(timeout=300)
    assert started.returncode == 1, said
    assert "ts.py was edited after the study was planned; run again" in said, said
    assert not list(files.root.glob("results/runs/**/calibrate.json"))
    assert files.plan("files.yaml") == {"calibrate m/seed0"} | AGGREGATION


def test_a_run_on_another_type_of_processor_has_other_bits_and_all_that_shows_it_is_made_again(
    twin, monkeypatch, capsys
):
    model = twin.result("mbls", "train") / "model.safetensors"
    record = twin.result("mbls", "predict") / "predict.json"
    shown = twin.root / "results/tiny/tables/methods.csv"
    before = shown.read_text()
    flip(model)
    monkeypatch.chdir(twin.root)
    assert main(["verify", "results/tiny", "--delete"]) == 0
    twin.environment = {**twin.environment, **OTHER_PROCESSOR}
    twin.run("tiny.yaml", str(record.relative_to(twin.root)))
    trained = json.loads((twin.result("mbls", "train") / "train.json").read_text())
    read = json.loads(record.read_text())
    (of_model,) = [of for of in read["inputs"]["results"].values() if model.name in of]
    assert of_model == {model.name: trained["files"][model.name]["sha256"]}
    capsys.readouterr()
    # what was made from the network before
    assert main(["verify", "results/tiny"]) == 2
    assert "had another content when it was made" in capsys.readouterr().out
    later = branch("mbls", stages=("calibrate",)) | branch("tst+mbls") | AGGREGATION
    assert twin.plan() == later

    twin.run("tiny.yaml", "tables")
    assert twin.plan("tiny.yaml", "tables") == set()
    metrics = pd.read_parquet(twin.root / METRICS)
    chosen = metrics[(metrics["metric"] == "nll") & (metrics["split"] == "test")]
    of_run = chosen[(chosen["method"] == "mbls") & (chosen["calibrator"] == "none")]
    table = pd.read_csv(shown)
    cell = table[(table["method"] == "mbls") & (table["calibrator"] == "none")]
    assert cell["nll_mean"].item() == pytest.approx(of_run["value"].item())
    assert shown.read_text() != before
    moved = {said.split(" (")[0] for said in changes(shown.parents[1])}
    assert moved >= {f"NLL of mbls with {calibrator}" for calibrator in ("none", "ts")}
