"""Agreement with scikit-learn; where torchmetrics 1.9.0 and relplot 1.0.3 differ from ours, the
reason is named and the right value follows from a bound or by hand.
"""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, top_k_accuracy_score
from tests.metrics.cases import calibrated, with_confidence

from calgrid import metrics


@pytest.mark.parametrize("n_classes", [2, 5, 12])
def test_scikit_learn_scores(n_classes):
    probs, labels = calibrated(500, k=n_classes, seed=4)
    known = np.arange(n_classes)
    assert metrics.accuracy(probs, labels) == pytest.approx(
        accuracy_score(labels, probs.argmax(axis=1)), abs=1e-12
    )
    assert metrics.nll(probs, labels) == pytest.approx(
        log_loss(labels, probs, labels=known), abs=1e-12
    )
    if n_classes > 5:
        expected = top_k_accuracy_score(labels, probs, k=5, labels=known)
        assert metrics.top5(probs, labels) == pytest.approx(expected, abs=1e-12)
    correct, confidence = probs.argmax(axis=1) == labels, probs.max(axis=1)
    assert metrics.brier_top_label(probs, labels) == pytest.approx(
        brier_score_loss(correct, confidence), abs=1e-12
    )
    by_class = sum(brier_score_loss(labels == k, probs[:, k]) for k in known)
    assert metrics.brier(probs, labels) == pytest.approx(by_class, abs=1e-12)


def test_where_other_packages_are_wrong():
    """Confidences of exactly 1: torchmetrics opens a sixteenth bin, relplot loses samples at the
    end of its mesh, and so divides the others by too little.
    """
    case = with_confidence([1, 1, 0.95, 0.95], [1, 0, 1, 1])
    torchmetrics, relplot = 0.275, 0.1334699513
    assert metrics.ece(*case) == pytest.approx(0.225)  # one last bin: |3.9 - 3| / 4
    assert torchmetrics > metrics.ece(*case)
    mean_residual = abs(np.mean([0, 1, -0.05, -0.05]))
    assert relplot < mean_residual  # no smoothing can remove the mean
    assert metrics.smece(*case) == pytest.approx(mean_residual)
    # 500 samples at 1, of which three quarters are right, 500 at 0.6, of which a fifth is
    case = with_confidence([1] * 500 + [0.6] * 500, [1, 1, 1, 0] * 125 + [1, 0, 0, 0, 0] * 100)
    too_large = 0.3499328066643167
    assert metrics.smece(*case) == pytest.approx((0.25 + 0.4) / 2) != too_large
