"""Logits so far apart that probabilities round to 0 or 1: what a temperature does not change."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.metrics import average_precision_score, roc_auc_score

from calgrid import metrics
from calgrid.calibrators import build_calibrator
from calgrid.errors import DataError
from calgrid.metrics.intervals import resampled
from calgrid.metrics.recalibration import nll_parts

SCALES = [1 / 2.6, 1, 4, 10, 1000]


def network(n_classes, n=3000):
    """Calibrated logits and labels."""
    rng = np.random.default_rng(n_classes)
    logits = 3 * rng.normal(size=(n, n_classes))
    noise = rng.gumbel(size=logits.shape)
    return logits, (logits + noise).argmax(axis=1)


LOGITS, LABELS = network(10)


def mean_nll(logits, labels):
    return -log_softmax(logits, axis=1)[np.arange(len(labels)), labels].mean()


@pytest.mark.parametrize("scale", SCALES)
def test_scores_are_those_of_the_logits_at_any_scale(scale):
    output = metrics.from_logits(scale * LOGITS)
    assert metrics.nll(output, LABELS) == pytest.approx(mean_nll(scale * LOGITS, LABELS), rel=1e-13)
    for name in ("accuracy", "top5"):
        score = getattr(metrics, name)
        assert score(output, LABELS) == score(metrics.from_logits(LOGITS), LABELS)
    best = minimize_scalar(
        lambda beta: mean_nll(beta * LOGITS, LABELS), bounds=(0.1, 5), options={"xatol": 1e-9}
    )
    parts = nll_parts(metrics.check_probabilities(output, LABELS))
    assert parts.loss.mean() == pytest.approx(best.fun, abs=1e-12)
    assert parts.beta * scale == pytest.approx(best.x, rel=1e-5)


def test_confidences_that_round_to_one_keep_their_order():
    """With two classes no temperature changes the order, which is that of the margins."""
    logits, labels = network(2)
    margin = np.abs(logits[:, 0] - logits[:, 1])
    right = logits.argmax(axis=1) == labels
    expected = {
        "auroc_failure": roc_auc_score(right, margin),
        "aupr_failure": average_precision_score(~right, -margin),
    }
    for scale in SCALES:
        output = metrics.from_logits(scale * logits)
        for name, value in expected.items():
            assert getattr(metrics, name)(output, labels) == pytest.approx(value, abs=1e-12)
        for name in ("aurc", "e_aurc", "augrc", "fpr95_failure"):
            plain = getattr(metrics, name)(metrics.from_logits(logits), labels)
            assert getattr(metrics, name)(output, labels) == pytest.approx(plain, abs=1e-12)
    assert (output.probs.max(axis=1) == 1).mean() > 0.9
    drawn = resampled(output, labels, n_resamples=2)
    assert drawn.values["aurc"] == pytest.approx(metrics.aurc(output, labels), abs=1e-12)


@pytest.mark.parametrize("scale", SCALES)
def test_temperature_scaling_keeps_the_logarithms(scale):
    logits = scale * LOGITS
    bare = build_calibrator("none").fit(logits, LABELS).predict_output(logits)
    assert metrics.nll(bare, LABELS) == pytest.approx(mean_nll(logits, LABELS), rel=1e-13)
    scaled = build_calibrator("ts").fit(logits, LABELS)
    found = metrics.nll(scaled.predict_output(logits), LABELS)
    assert found == pytest.approx(mean_nll(scaled.fit_history["beta"] * logits, LABELS), rel=1e-12)


def test_a_probability_of_zero_keeps_its_loss_at_every_temperature():
    """The others have the share of errors 1/4 as their best probability."""
    probs = [[0.9, 0.1]] * 4 + [[1.0, 0.0]]
    labels = [0, 0, 0, 1, 1]
    case = metrics.check_probabilities(probs, labels)
    assert case.n_impossible == 1
    best = -(3 * np.log(0.75) + np.log(0.25))
    parts = nll_parts(case)
    assert parts.loss.sum() == pytest.approx(best - np.log(5e-324), rel=1e-9)
    # half a parameter of four of the five samples
    assert parts.optimism == pytest.approx(1 / (2 * 5), rel=1e-6)
    assert np.isfinite(metrics.l1_ts(probs, labels))
    impossible = metrics.check_probabilities([[1.0, 0.0]] * 3, [1, 1, 1])
    assert nll_parts(impossible).loss == pytest.approx([-np.log(5e-324)] * 3)
    assert metrics.nll_calibration(impossible, impossible.labels) == 0


def test_the_divergence_from_people_is_that_of_the_logits():
    """Two thirds of the people say class 0, one third class 1, whose probability is exp(-1000)."""
    expected = np.log(2 / 3) * 2 / 3 + np.log(1 / 3) / 3 + 1000 / 3
    output = metrics.from_logits([[0.0, -1000.0]])
    assert metrics.kl_human(output, [[2, 1]]) == pytest.approx(expected, rel=1e-12)
    drawn = metrics.bootstrap_soft(output[[0, 0]], [[2, 1]] * 2, n_resamples=10)
    assert drawn["soft_kl"] == pytest.approx((expected, expected), rel=1e-12)


def test_masked_logits_have_the_probability_zero():
    output = metrics.from_logits([[0.0, -np.inf, np.log(3)]])
    np.testing.assert_allclose(output.probs, [[0.25, 0, 0.75]])
    np.testing.assert_allclose(output.logs, [[np.log(0.25), -np.inf, np.log(0.75)]])
    assert np.asarray(output).shape == output.shape == (1, 3)


@pytest.mark.parametrize(
    ("logits", "said"),
    [
        ([0.0, 1.0], r"shape \(N, K\)"),
        ([[0.0, np.nan]], "finite or -inf"),
        ([[0.0, np.inf]], "finite or -inf"),
        ([[0.0, 1.0], [-np.inf, -np.inf]], "row 1"),
    ],
)
def test_other_logits_are_refused(logits, said):
    with pytest.raises(DataError, match=said):
        metrics.from_logits(logits)
