"""Out-of-distribution scores of logits and features, and means over groups of sets."""

import numpy as np
import pytest
from tests.jobs.small import CE, HOME, calibrate, predicted, small_study, trained, values

from calgrid import metrics
from calgrid.calibrators import load_calibrator
from calgrid.jobs.ood import group_metrics, mean_draws, network_scores
from calgrid.metrics.ood import energy, knn, max_logit, vim
from calgrid.plan.plan import Plan
from calgrid.storage.arrays import read_head
from calgrid.storage.logits import Logits, read_logits
from calgrid.storage.tables import read_frame
from calgrid.study.study import Study

GENERATOR = np.random.default_rng(0)
HEAD = GENERATOR.normal(size=(3, 6)), np.zeros(3)


def images(count, features=True):
    """Features and their logits."""
    found = GENERATOR.normal(size=(count, 6))
    logits = found @ HEAD[0].T
    index = np.arange(count)
    return Logits(index, index % 3, logits, features=found if features else None)


def test_scores_are_those_that_logits_and_features_allow(capsys):
    test, shifted, train = images(9), images(8), images(30)
    found = network_scores("ood/set", test, shifted, train, HEAD)
    assert list(found) == [max_logit, energy, knn, vim]
    assert [[len(scores) for scores in pair] for pair in found.values()] == 4 * [[9, 8]]
    # ten images a class
    assert np.array_equal(found[knn][1], knn(shifted.features, train.features, 10))
    assert list(network_scores("ood/set", test, shifted, None, HEAD)) == [max_logit, energy]
    assert capsys.readouterr().err == ""
    assert list(network_scores("ood/set", test, shifted, train, None)) == [max_logit, energy, knn]
    assert "No ViM on ood/set: the last layer is not linear." in capsys.readouterr().err
    test.logits = np.log([[0.5, 0.3, 0.2]] * 9).astype(np.float32)
    assert list(network_scores("ood/set", test, shifted, None, None)) == []
    assert "logits are logarithms of probabilities" in capsys.readouterr().err


def test_mean_over_the_sets_of_a_group_has_the_interval_of_the_mean_of_its_resamples():
    place = {"checkpoint": "last", "calibrator": "none", "fit_on": "val", "fit_seed": 0}
    place |= {"split": "ood", "severity": 0, "metric": "auroc"}
    rows, draws = [], []
    for number, name in enumerate(["ood/a", "ood/b", "ood/c"]):
        row = {"value": 0.5 + 0.1 * number, "n_samples": 30 - number, "ci_low": 0, "ci_high": 1}
        rows.append({**place, "shift": name, **row})
        drawn = GENERATOR.normal(scale=0.02, size=200)
        draws.append({**place, "shift": name, "draws": drawn.tolist(), "pairs": []})
    mean = mean_draws(draws[:2], "far", 0)
    groups = {"near": ["ood/c"], "far": ["ood/a", "ood/b"]}
    (found,) = group_metrics(rows, [*draws, mean], groups, (0.025, 0.975))
    assert (found["shift"], found["n_samples"]) == ("far", 29)
    assert found["value"] == pytest.approx(0.55)
    spread = np.mean([row["draws"] for row in draws[:2]], axis=0)
    expected = 0.55 + np.quantile(spread, [0.025, 0.975])
    assert [found["ci_low"], found["ci_high"]] == pytest.approx(expected, abs=2e-3)
    (bare,) = group_metrics(rows, [], groups, (0.025, 0.975))
    assert np.isnan(bare["ci_low"])


def test_a_run_with_training_features_has_all_scores_once(data, tmp_path):
    study = small_study()
    study["protocols"]["quick"].update(checkpoints=["last"], export_features="train")
    study["grids"][0] |= {
        "methods": ["ce"],
        "calibrators": ["none", "ts", "dac"],
        "shifts": ["ood/photos"],
    }
    plan = Plan(Study(study, HOME))
    spec = plan.calibrate(CE).spec
    assert spec["ood_groups"] == {"near": [], "far": ["ood/photos"]}
    trained(plan, data, tmp_path)
    predicted(plan, data, tmp_path, families=["ood/photos"])
    calibrate(spec, tmp_path / "predict", tmp_path / "part")
    rows = read_frame(tmp_path / "part/metrics.parquet").query("split == 'ood'")
    folder = tmp_path / "predict/logits/last"
    test, photos, train = (
        read_logits(folder / f"{name}.parquet") for name in ("test", "ood/photos", "train")
    )
    bare, scaled = (rows[rows["calibrator"] == name] for name in ("none", "ts"))
    assert set(bare["metric"]) - set(scaled["metric"]) == set(metrics.table.OOD_NETWORK)
    found = values(bare)
    assert found["auroc_energy"] == metrics.auroc(energy(test.logits), energy(photos.logits))
    fitted = metrics.fit_vim(
        train.features,
        train.logits,
        *read_head(folder / "head.safetensors", spec["run_fingerprint"]),
    )
    scores = [metrics.vim(images.features, images.logits, fitted) for images in (test, photos)]
    dac = load_calibrator(next(tmp_path.glob("fits/last/dac-*.safetensors")))
    distances = -knn(photos.features, train.features, 12)[:, None]
    of_dac = rows[rows["calibrator"] == "dac"]
    of_test = -knn(test.features, train.features, 12)[:, None]
    assert values(of_dac)["auroc"] == metrics.auroc(
        dac.predict_proba(test.logits, of_test).max(axis=1),
        dac.predict_proba(photos.logits, distances).max(axis=1),
    )
    assert found["fpr95_vim"] == metrics.fpr95(*scores)
    of_knn = bare[bare["metric"] == "aupr_knn"].iloc[0]
    assert of_knn["ci_low"] < of_knn["value"] < of_knn["ci_high"]
