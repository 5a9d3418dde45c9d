"""A study whose loss, backbone, calibrator and metric lie in a folder of the user's, as ``calgrid
new`` writes them.
"""

import hashlib
import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from tests.workflow.dag import AGGREGATION, HOME, Repository, branch, changed, edits

from calgrid.cli import main

pytestmark = pytest.mark.workflow
LOSS, CALIBRATOR = "mine/losses/my_loss.py", "mine/calibrators/my_calibrator.py"
METRIC = "mine/metrics/my_metric.py"
GRID = {
    "backbones": ["my_backbone"],
    "methods": ["ce", "strong"],
    "calibrators": ["none", "mild"],
    "shifts": [],
}
VARIANTS = {
    "methods": {"strong": {"base": "my_loss", "weight": 0.5}},
    "calibrators": {"mild": {"base": "my_calibrator", "weight": 0.5}},
}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    repository = Repository(tmp_path_factory.mktemp("plugins") / "repository")
    for kind in ("loss", "backbone", "calibrator", "metric"):
        assert main(["new", kind, f"my_{kind}", "--into", str(repository.root / "mine")]) == 0
    statistics = {"bootstrap": 20, "metrics": ["my_metric"]}
    config = {**changed(**GRID), "plugins": ["mine"], "statistics": statistics, **VARIANTS}
    repository.configure(config)
    repository.run()
    return repository


@pytest.fixture
def edit(study):
    with edits(study.root) as replace:
        yield replace


def test_all_of_it_is_scored(study):
    metrics = pd.read_parquet(study.root / "results/tiny/metrics.parquet")
    assert set(metrics["backbone"]) == {"my_backbone"}
    assert set(metrics["method"]) == {"ce", "strong"}
    assert {"none", "mild"} <= set(metrics["calibrator"])


def test_its_metric_stands_beside_those_of_calgrid(study):
    results = study.root / "results/tiny"
    metrics, summary = (
        pd.read_parquet(results / f"{name}.parquet") for name in ("metrics", "summary")
    )
    own = metrics[(metrics["metric"] == "my_metric") & (metrics["split"] == "test")]
    others = metrics[(metrics["metric"] == "nll") & (metrics["split"] == "test")]
    assert len(own) == len(others) == 4
    assert own["value"].between(own["ci_low"], own["ci_high"]).all()
    (logits,) = (study.root / "results/runs").glob("*/*/*/ce/*/predict-*/logits/last/test.parquet")
    data = pd.read_parquet(logits)
    probs = softmax(np.stack(data["logits"].to_numpy()).astype(float), axis=1)
    wrong = (probs.argmax(axis=1) != data["label"]) & (probs.max(axis=1) >= 0.9)
    plain = own[(own["method"] == "ce") & (own["calibrator"] == "none")]
    assert plain["value"].tolist() == [wrong.mean()]
    ranks = summary[(summary["metric"] == "my_metric") & (summary["split"] == "test")]["rank"]
    assert ranks.sum() == 1 + 2 + 3 + 4
    assert "my_metric (%) ↓" in (results / "tables/calibrators.md").read_text()
    assert "my_metric (%) ↓" in (results / "report.html").read_text()


def test_an_edit_reruns_what_used_the_file(study, edit):
    edit(LOSS, "logits.square()", "logits.abs()")
    edit(CALIBRATOR, "minlength=", "weights=None, minlength=")
    scored = branch("ce", "strong", stages=("calibrate",)) | AGGREGATION
    assert study.plan() == branch("strong") | scored
    edit(LOSS, "logits.abs()", "logits.square()")
    edit(CALIBRATOR, "weights=None, minlength=", "minlength=")
    edit(METRIC, "CONFIDENT = 0.9", "CONFIDENT = 0.8")
    assert study.plan() == scored


def test_a_third_person_runs_the_archive_and_trains_nothing(study, edit, tmp_path, run_python):
    """The commands of docs/sharing.md, in a folder without the plugin."""
    pack = "calgrid pack results/tiny study.zip --creator A --licence CC0-1.0"
    study.shell(pack)
    third = Repository(tmp_path / "third")
    shutil.copy(study.root / "study.zip", third.root)
    page = (HOME / "docs/sharing.md").read_text()
    found = re.search(
        r"```bash\n(python -m zipfile .*\n.*)\ncalgrid run results/study.yaml\n", page
    )
    third.shell(found[1].replace("my_study", "tiny").replace("tiny.zip", "study.zip"))
    assert "train 2," in third.shell("calgrid check results/study.yaml")
    assert third.plan("results/study.yaml") == AGGREGATION
    third.run("results/study.yaml")
    ours, theirs = (
        pd.read_parquet(root / "results/tiny/summary.parquet") for root in (study.root, third.root)
    )
    pd.testing.assert_frame_equal(ours, theirs)
    assert "all intact: " in third.shell("calgrid verify results/tiny")

    listed = json.loads((third.root / "results/bank.json").read_text())["files"]
    for path in (LOSS, CALIBRATOR, METRIC):
        source = (study.root / path).read_bytes()
        assert (third.root / "results/plugins" / path).read_bytes() == source
        assert listed[f"plugins/{path}"]["sha256"] == hashlib.sha256(source).hexdigest()
    assert {"tiny/report.html", "tiny/tables/tests.csv", "tiny/summary.parquet"} <= {*listed}

    script = (
        "import calgrid, sys; opened = calgrid.load_study(sys.argv[1]); "
        "print(opened.table('calibrators').to_csv(index=False))"
    )
    mine = {"CALGRID_PLUGINS": str(study.root / "mine")}
    places = (study.root / "results/tiny", study.root / "study.zip", third.root / "results")
    here, packed, unpacked = (run_python(script, place, **mine) for place in places)
    assert here == packed == unpacked

    edit(LOSS, "logits.square()", "logits.abs()")  # what is packed is what ran
    study.shell(f"rm study.zip; {pack}; cmp study.zip {third.root}/study.zip")


def test_other_words_plan_nothing_and_a_broken_file_stops_only_who_uses_it(study, edit):
    edit(LOSS, "the mean loss", "the loss")  # in a docstring
    edit("mine/losses/other.py", "", "class (")
    edit("mine/metrics/other.py", "", "class (")
    assert study.plan() == set()
    edit(METRIC, "is_wrong &", "wrong &")
    done = study.snakemake("--configfile", "tiny.yaml", "-n", "--cores", "2")
    assert done.returncode != 0
    said = (
        "mine/metrics/my_metric.py, line 27, fails on probabilities of shape (200, 10) (NameError: "
    )
    assert said in done.stdout + done.stderr
