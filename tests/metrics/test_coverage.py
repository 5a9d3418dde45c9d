"""How often the intervals hold the truth, by simulation."""

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


@pytest.mark.parametrize("sharpening", [1, 1.5], ids=["calibrated", "overconfident"])
def test_intervals_hold_the_truth(sharpening):
    """95 % intervals: at least 82 % in this small study; the module states those of a large one."""
    population = model(40_000, 10**6, sharpening)
    truth = metrics.evaluate(*population, costly=False)
    truth["macro_auroc"] = metrics.macro_auroc(*population)
    truth |= {name: truth[plain] for name, plain in PLAIN.items()}
    if sharpening == 1:
        truth |= dict.fromkeys([*ERRORS, "brier_calibration", "squared_ce", "nll_calibration"], 0.0)
        truth |= {"nll_refinement": truth["nll"]}
    found = [
        metrics.bootstrap(*model(SAMPLES, seed, sharpening), n_resamples=RESAMPLES, seed=seed)
        for seed in range(SIMULATIONS)
    ]
    for name in WITH_INTERVAL:
        # of sets that have one, which is most of them
        known = [each[name] for each in found if not np.isnan(each[name][0])]
        assert len(known) > SIMULATIONS / 2, name
        held = sum(low <= truth[name] <= high for low, high in known) / len(known)
        assert held >= 0.82, name
