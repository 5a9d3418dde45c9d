"""What the docstring of a package shows works as it stands."""

import numpy as np

from calgrid import metrics


def test_the_example_of_the_metrics_works():
    probabilities, labels = np.array([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4]]), np.array([0, 1, 1])
    assert metrics.evaluate(probabilities, labels)["ece"] == metrics.ece(probabilities, labels, n_bins=15)
