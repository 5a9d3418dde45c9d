"""One study with all that a user brings: images, logits, probes, an ensemble, and names that a
shell would take for code.

It is run once: the first call meets logits that are no numbers, the second follows the advice of
the first.
"""

import copy
import json
import shlex

import numpy as np
import pandas as pd
import pytest
from tests.datasets.pictures import encoded, write_parquet
from tests.workflow.dag import AGGREGATION, CONFIG, Repository, branch, jobs

from calgrid.storage.logits import read_logits

pytestmark = pytest.mark.workflow
RESULTS = "results '; touch hacked; $(touch hacked)"
VAL, TEST = "val $(touch hacked).parquet", "test `touch hacked`'.parquet"
NO_HEAD = "calgrid import: {} must contain 'weight' (K, d) and 'bias' (K,) of the last layer"
MINE = {
    "base": "image_parquet",
    "train": "mine/train.parquet",
    "test": "mine/test.parquet",
    "val_size": 30,
}
#: the test rows alone, of which the other half fits the calibrators
HALF = {"test": TEST, "split_seed": 3, "dataset": "half"}
#: of one member, so that nothing more is trained
ENSEMBLE = "ens1(ce,logit)"
ATTACK = {"base": "margin_attack", "samples": 30, "steps": 8, "bisections": 4}


def write_pictures(folder, seed=0):
    """Bright and dark pictures, which a network tells apart at once."""
    rng = np.random.default_rng(seed)
    for role, count in (("train", 100), ("test", 60)):
        labels = np.arange(count) % 2
        brightness = 150 * labels[:, None, None, None].astype(np.uint8)
        pixels = rng.integers(0, 100, (count, 8, 8, 3), dtype=np.uint8) + brightness
        write_parquet(folder / "mine" / f"{role}.parquet", map(encoded, pixels), labels)


class Study:
    """The repository, its data, what the first call said and what the second ran."""

    def __init__(self, root, finished):
        self.repository = Repository(root / "repository")
        self.data = root / "data; touch hacked #$(touch hacked)"
        self.results = self.repository.root / RESULTS
        write_pictures(self.data)
        for name, target in (("val", VAL), ("test", TEST)):
            logits = finished.result("ce", "predict") / f"logits/last/{name}.parquet"
            (self.data / target).write_bytes(logits.read_bytes())
        np.savez(self.data / "bad.npz", weight=np.zeros((10, 3)))
        self.configure(bad={**HALF, "method": "bad", "head": "bad.npz"})
        self.failed = self.repository.snakemake(
            "--configfile", "own.yaml", "--cores", "2", "--keep-going"
        )
        self.configure()
        ended = self.repository.run("own.yaml")
        self.second = jobs(ended.stdout + ended.stderr)

    def configure(self, name="own.yaml", external=True, mine=None, **changes):
        """Write the configuration; keywords are external runs, or ``probes`` and ``study``."""
        config = copy.deepcopy(CONFIG)
        config |= {
            "study": changes.pop("study", "own"),
            "results": RESULTS,
            "data_root": str(self.data),
        }
        config |= {
            "datasets": {"mine": {**MINE, **(mine or {})}},
            "probes": {"few": changes.pop("few", ATTACK)},
        }
        probes = changes.pop("probes", ["few", "prototypes"])
        config["grids"][0] |= {
            "datasets": ["mine"],
            "methods": ["ce", ENSEMBLE],
            "shifts": [],
            "probes": probes,
        }
        runs = {
            "with_val": {"val": VAL, "test": TEST},
            "split": {**HALF, "method": "split"},
        }
        common = {"kind": "logits", "calibrators": ["none", "ts"], "dataset": "digits"}
        if external:
            config["external"] = {
                key: {**common, **files} for key, files in {**runs, **changes}.items()
            }
        self.repository.configure(config, name)

    def plan(self, name="own.yaml", *arguments):
        return self.repository.plan(name, *arguments)


@pytest.fixture(scope="module")
def study(tmp_path_factory, finished):
    return Study(tmp_path_factory.mktemp("own"), finished)


def test_a_job_that_fails_is_named_with_its_reason_and_what_to_do(study):
    assert study.failed.returncode == 1
    begin, _, ending = study.failed.stderr.partition("\n1 job failed:\n")
    reason = NO_HEAD.format(study.data / "bad.npz")
    assert f"The reason: {reason}" in begin
    log, _, ending = ending.partition("\n")
    log = log.strip()
    assert log.startswith(f"{RESULTS}/logs/import/external/half/unknown/bad/seed0-")
    assert ending.startswith(f"    {reason}")
    id = log.rpartition("-")[2].removesuffix(".log")
    again = f"{RESULTS}/runs/external/half/unknown/bad/seed0/predict-{id}/predict.json"
    assert f"    Try it alone: snakemake {shlex.quote(again)} " in ending
    behind = ", ".join(sorted({"calibrate", *AGGREGATION}))
    assert f"Not made because of these failures: {behind}.\n" in ending
    assert "remove them from the configuration: no other run is repeated" in ending


def test_the_advice_makes_the_report_of_the_others_and_nothing_again(study):
    assert study.second == AGGREGATION
    assert (study.results / "own/report.html").is_file()
    assert study.plan() == set()


def test_names_that_a_shell_would_run_are_only_names(study):
    assert not list(study.data.parent.rglob("hacked"))


def test_external_logits_get_the_numbers_of_the_run_that_wrote_them(study, finished):
    metrics = pd.read_parquet(study.results / "own/metrics.parquet").query(
        "split == 'test' and dataset in ('digits', 'half')"
    )
    ours = pd.read_parquet(finished.root / "results/tiny/metrics.parquet").query(
        "split == 'test' and method == 'ce'"
    )

    def value(frame, calibrator):
        rows = frame.query("method == 'ce' and calibrator == @calibrator and metric == 'nll'")
        return rows["value"].item()

    for calibrator in ("none", "ts"):
        assert value(metrics, calibrator) == pytest.approx(value(ours, calibrator), rel=1e-12)
    sizes = metrics.groupby("method", observed=True)["n_samples"].first().to_dict()
    assert sizes == {"ce": 1200, "split": 600}


def test_a_network_learns_pictures_of_ones_own(study):
    test = pd.read_parquet(study.results / "own/metrics.parquet").query(
        "split == 'test' and dataset == 'mine' and method == 'ce'"
    )
    accuracy = test.query("calibrator == 'none' and metric == 'accuracy'")["value"].item()
    assert accuracy > 0.9
    (folder,) = study.results.glob("data/mine-*/")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["id"], manifest["n_classes"], manifest["splits"]["val"]["size"]) == (
        "mine",
        2,
        30,
    )
    assert "image_parquet" in (study.results / "own/report.html").read_text()


def test_an_ensemble_of_one_network_has_its_logits_up_to_a_number_a_row(study):
    run = study.results / "runs/quick/mine/resnet8"
    gaps = []
    for method in ("ce", ENSEMBLE):
        (file,) = (run / method / "seed1").glob("predict-*/logits/last/test.parquet")
        gaps.append(np.diff(read_logits(file).logits, axis=1))
    np.testing.assert_allclose(*gaps, rtol=1e-4)


def test_probes_are_measured_drawn_and_priced(study):
    run = study.results / "runs/quick/mine/resnet8/ce/seed1"
    for name in ("few", "prototypes"):
        (folder,) = run.glob(f"probe_{name}-*/")
        assert {path.name for path in folder.iterdir()} == {"probe.json", "table.parquet"}
    figures = {path.name for path in (study.results / "own/figures").glob("*.png")}
    assert {"fgsm_margin_mine_resnet8.png", "prototype_angles_mine_resnet8.png"} <= figures
    assert "Attack distance by margin" in (study.results / "own/report.html").read_text()
    costs = pd.read_parquet(study.results / "own/costs.parquet")
    assert set(costs.loc[costs["stage"] == "probe", "item"]) == {"few", "prototypes"}


def test_a_probe_or_its_option_plans_that_probe_only(study):
    study.configure("probes.yaml", few={**ATTACK, "samples": 31})
    assert study.plan("probes.yaml") == {"probe ce/seed1"} | AGGREGATION
    study.configure("other.yaml", study="other", external=False, probes=["prototypes", "profiles"])
    assert study.plan("other.yaml") == {"probe ce/seed1"} | AGGREGATION


def test_an_option_or_another_content_of_pictures_runs_what_depends_on_them(study):
    pooled = branch(ENSEMBLE, stages=("ensemble", "calibrate"))
    everything = branch("ce") | pooled | AGGREGATION | {"prepare_data mine", "probe ce/seed1"}
    study.configure("subset.yaml", mine={"subset": 50})
    assert study.plan("subset.yaml") == everything
    path = study.data / "mine/train.parquet"
    path.write_bytes(path.read_bytes())  # a copy of the same
    assert study.plan() == set()
    write_pictures(study.data, seed=1)
    assert study.plan() == everything
