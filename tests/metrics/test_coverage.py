"""How often the intervals hold the truth, by simulation."""

import functools

import numpy as np
import pytest
from tests.metrics.cases import calibrated, softmax

from calgrid import metrics

SIMULATIONS, SAMPLES, RESAMPLES = 40, 200, 60
LABELLED = {name: metric for name, metric in metrics.METRICS.items() if metric.kind == "labelled"}
WITH_INTERVAL = [
    name
    for name, metric in LABELLED.items()
    # L_p errors are bounds, which depend on the number of samples
    if metric.interval != "none" and name != "top5" and name[:2] not in ("l1", "l2")
]
ERRORS = [name for name in WITH_INTERVAL if LABELLED[name].interval == "guarded"]
#: the population value of a debiased error is that of the plain one
PLAIN = {"ece_debiased": "ece", "rmsce_debiased": "rmsce"}


def model(n, seed, sharpening):
    probs, labels = calibrated(n, seed=seed)
    return softmax(sharpening * np.log(probs)), labels


@functools.cache
def study(sharpening):
    """Population values, and intervals of each simulated test set."""
    truth = metrics.evaluate(*model(100_000, 10**6, sharpening))
    truth |= {name: truth[plain] for name, plain in PLAIN.items()}
    if sharpening == 1:
        truth |= dict.fromkeys(ERRORS, 0.0) | {
            "brier_calibration": 0.0,
            "squared_ce": 0.0,
            "brier_refinement": truth["brier"],
            "nll_calibration": 0.0,
            "nll_refinement": truth["nll"],
        }
    found = [
        metrics.bootstrap(*model(SAMPLES, seed, sharpening), n_resamples=RESAMPLES, seed=seed)
        for seed in range(SIMULATIONS)
    ]
    return truth, found


def held(name, sharpening):
    """Share of the intervals, of sets that have one, which is most of them."""
    truth, found = study(sharpening)
    known = [each[name] for each in found if not np.isnan(each[name][0])]
    assert len(known) > SIMULATIONS / 2
    return sum(low <= truth[name] <= high for low, high in known) / len(known)


@pytest.mark.parametrize("sharpening", [1, 1.5], ids=["calibrated", "overconfident"])
@pytest.mark.parametrize("name", WITH_INTERVAL)
def test_intervals_hold_the_truth(name, sharpening):
    """95 % intervals: at least 82 % in this small study; the module states those of a large one."""
    assert held(name, sharpening) >= 0.82
