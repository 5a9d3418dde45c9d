"""No calibrator that can keep the logits is worse than that, by its objective on its rows."""

import numpy as np
import pytest
import torch
from tests.calibrators.cases import top_versus_all, torch_confidence_loss

from calgrid.calibrators import build_calibrator
from calgrid.calibrators._probabilities import log_probabilities, softmax
from calgrid.calibrators.smoothing_spline_ova import calibrated
from calgrid.components.registry import descriptions, load
from calgrid.metrics import brier, ece

#: of objectives that a fit interpolates
TOLERANCE = 1e-6
KINDS = ["random", "tied", "separable", "imbalanced", "tiny", "masked"]


def nll(probabilities, labels):
    return -np.log(np.maximum(probabilities[np.arange(len(labels)), labels], 1e-300)).mean()


def of_confidence(name):
    def objective(probabilities, labels):
        confidence = torch.tensor(probabilities.max(axis=1))
        correct = torch.tensor((probabilities.argmax(axis=1) == labels) * 1.0)
        return float(torch_confidence_loss(name, confidence, correct))

    return objective


def smoothed(probabilities, labels):
    possible = probabilities > 0.0
    target = 0.95 * np.eye(probabilities.shape[1])[labels]
    target += 0.05 * possible / possible.sum(axis=1, keepdims=True)
    return -(target * np.log(np.where(possible, probabilities, 1.0))).sum(axis=1).mean()


#: id, options, objective of probabilities and labels
CONTAINING = [
    ("none", {}, nll),
    ("ts", {}, nll),
    ("ts_objective", {"objective": "ls"}, smoothed),
    ("ts_objective", {"objective": "brier"}, brier),
    ("ts_objective", {"objective": "softece"}, of_confidence("softece")),
    ("ts_objective", {"objective": "pointwise"}, of_confidence("pointwise")),
    ("tva_ts", {}, top_versus_all),
    ("ts_ece_grid", {}, ece),
    ("ets", {"objective": "mse"}, brier),
    ("ets", {"objective": "nll"}, nll),
    ("hts", {}, nll),
    ("cts", {}, ece),
    ("pts", {"max_epochs": 60}, brier),
    ("pts_paper", {"steps": 20}, brier),
    ("smart", {"max_epochs": 60}, of_confidence("charbonnier")),
    ("smart", {"max_epochs": 60, "objective": "nll"}, nll),
    ("gc_ts", {"n_partitions": 3, "min_group": 2}, nll),
    ("gc_ets", {"n_partitions": 3, "min_group": 2}, brier),
    ("vs", {}, nll),
    ("ms", {}, nll),
    ("fc", {}, ece),
    ("logit_clipping", {}, ece),
    ("logit_clipping", {"criterion": "nll"}, nll),
    ("dac", {}, brier),
]
#: tested by the loss that their fits report with its penalty, or of the maps of single classes
BY_PARTS = {"ms_odir", "dirichlet", "beta", "beta_ova", "smoothing_spline_ova"}
#: these smooth, bound probabilities by the number of samples, or replace the map of the network
WITHOUT = {
    "bbq", "bbq_ova", "cir", "cir_ova", "consistency", "hb", "hb_ova", "imax", "irm", "iso",
    "iso_ova", "ivap_ova", "kernel", "procal_bms", "procal_dr", "scaling_binning", "sms", "spline",
    "svs", "ts_mix",
}  # fmt: skip
#: no head gives masks, and pts_paper clips logits to 100
OTHERWISE = {("fc", "masked"), ("fc", "-1e9"), ("pts_paper", "-1e9")}


def test_every_calibrator_is_one_or_the_other():
    named = {id for id, *_ in CONTAINING}
    shipped = {
        id
        for id in descriptions("calibrator")
        if load("calibrator", id).__module__.startswith("calgrid.")
    }
    assert sorted([*named, *BY_PARTS, *WITHOUT]) == sorted(shipped)


def rows_of(kind, seed):
    generator = np.random.default_rng(seed)
    n_classes = int(generator.integers(2, 6))
    n_samples = int(generator.integers(2, 21)) if kind == "tiny" else 80
    logits = generator.normal(scale=generator.choice([0.3, 3.0, 12.0]), size=(n_samples, n_classes))
    if kind == "tied":
        logits = np.column_stack([logits[:, 0] / 100, np.zeros(n_samples), logits[:, 0] - 8.0])
    if kind == "imbalanced":
        logits[:, 0] += 2.0 * np.abs(logits).max()
    true = softmax((logits - logits.max(axis=1, keepdims=True)) / generator.choice([0.7, 1.0, 2.0]))
    labels = (true.cumsum(axis=1) < generator.uniform(size=(n_samples, 1))).sum(axis=1)
    labels = np.minimum(labels, logits.shape[1] - 1)
    if kind == "separable":
        labels = logits.argmax(axis=1)
    features = logits.copy()
    if kind in ("masked", "-1e9"):
        hidden = generator.uniform(size=logits.shape) < 0.3
        hidden[np.arange(n_samples), labels] = False
        logits[hidden] = -np.inf if kind == "masked" else -1e9
    return logits, labels, features


@pytest.mark.parametrize("kind", [*KINDS, "-1e9"])
@pytest.mark.parametrize(("id", "options", "objective"), CONTAINING)
def test_no_fit_is_worse_than_the_logits_as_they_are(id, options, objective, kind):
    # a smoothed label on a finite mask is a loss of its size
    if (id, kind) in OTHERWISE or (objective is smoothed and kind == "-1e9"):
        pytest.skip("the logits as they are cannot be its map")
    for seed in range(2):
        logits, labels, features = rows_of(kind, seed)
        head = np.eye(logits.shape[1]), np.zeros(logits.shape[1])
        calibrator = build_calibrator(id, **options).fit(logits, labels, features, head)
        before = softmax(logits - logits.max(axis=1, keepdims=True))
        after = calibrator.predict_proba(logits, features)
        assert objective(after, labels) <= objective(before, labels) + TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("id", ["ms_odir", "dirichlet"])
def test_no_penalised_loss_is_above_that_of_the_logits_as_they_are(id, kind):
    """Their penalty is 0 there."""
    for seed in range(3):
        logits, labels, _ = rows_of(kind, seed)
        history = build_calibrator(id, strength=1e-3).fit(logits, labels).fit_history
        before = softmax(logits - logits.max(axis=1, keepdims=True))
        assert history["loss"] <= nll(before, labels) + TOLERANCE


def binary(scores, hits):
    return (np.logaddexp(0.0, scores) - hits * scores).mean()


@pytest.mark.parametrize("kind", KINDS)
def test_no_map_of_a_class_is_worse_than_the_identity(kind):
    for seed in range(3):
        logits, labels, _ = rows_of(kind, seed)
        log_p, log_rest = log_probabilities(logits - logits.max(axis=1, keepdims=True))
        odds = log_p - log_rest
        beta, spline, top = (
            build_calibrator(id).fit(logits, labels)
            for id in ("beta_ova", "smoothing_spline_ova", "beta")
        )
        for place, k in enumerate(beta.classes):
            hits = (labels == k) * 1.0
            identity = binary(odds[:, k], hits)
            a, b, c = beta.coefficients[place]
            assert binary(a * log_p[:, k] - b * log_rest[:, k] + c, hits) <= identity + TOLERANCE
            tables = spline.knots, spline.starts, spline.powers, spline.outer
            mapped = calibrated(odds[:, k], *(table[place] for table in tables))
            assert -np.log(np.where(hits, mapped, 1.0 - mapped)).mean() <= identity + TOLERANCE
        rows, predicted = np.arange(len(labels)), logits.argmax(axis=1)
        s, rest = log_p[rows, predicted], log_rest[rows, predicted]
        a, b, c = top.coefficients
        correct = (predicted == labels) * 1.0
        assert binary(a * s - b * rest + c, correct) <= binary(s - rest, correct) + TOLERANCE
