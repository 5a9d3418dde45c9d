"""Data beside metrics: confidence bins, classes, and inputs of the figures of SMART on fits."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np
import pandas as pd

from calgrid.calibrators import Calibrator, build_calibrator
from calgrid.metrics import Predictions, check_probabilities
from calgrid.metrics.binning import bin_sums
from calgrid.metrics.classes import class_auroc
from calgrid.papers.smart import diagnostics as smart
from calgrid.storage import schema
from calgrid.storage.logits import Logits


def measured(
    n_bins: int, fit: Logits, test: Logits, fitted: Mapping[str, Calibrator]
) -> dict[str, pd.DataFrame]:
    """Files of one checkpoint: bins of the uncalibrated network, and the diagnostics of ``fitted``.

    Parameters
    ----------
    n_bins : of the calibration errors.
    fit, test : rows of the fits, and the clean test split.
    fitted : calibrators that the figures of SMART show, by name; none without SMART.
    """
    bare = build_calibrator("none").fit(fit.logits, fit.label)
    predictions = check_probabilities(bare.predict_proba(test.logits), test.label)
    counts = dict.fromkeys((n_bins, schema.HISTOGRAM_BINS))
    bins = pd.concat([confidence_bins(predictions, count) for count in counts])
    tables = {schema.BINS: bins.assign(calibrator="none")}
    if fitted:
        tables |= smart.measure(fit, test, {"none": bare, **fitted})
    return tables


def confidence_bins(predictions: Predictions, n_bins: int) -> pd.DataFrame:
    """Sums over the images in each confidence bin."""
    sums = bin_sums(predictions, n_bins)
    return pd.DataFrame({"n_bins": n_bins, "bin": range(n_bins), **asdict(sums)})


def class_scores(predictions: Predictions, names: Sequence[str] | None = None) -> pd.DataFrame:
    """Scores of each class, (K,) rows: ``schema.CLASS_COLUMNS``.

    ``names`` of the classes are their numbers by default.
    """
    n, n_classes = predictions.probs.shape
    chosen = predictions.probs.argmax(axis=1)
    count = np.bincount(predictions.labels, minlength=n_classes)
    predicted = np.bincount(chosen, minlength=n_classes)
    right = np.bincount(chosen, predictions.correct, n_classes)
    others_right = (n - count) - (predicted - right)
    areas, _ = class_auroc(predictions)
    return pd.DataFrame(
        {
            "class": range(n_classes),
            "name": names or [str(number) for number in range(n_classes)],
            "count": count,
            "sensitivity": _shares(right, count),
            "specificity": _shares(others_right, n - count),
            "auroc": areas,
            "predicted": predicted,
            "precision": _shares(right, predicted),
            "confidence": _shares(
                np.bincount(chosen, predictions.confidence, n_classes), predicted
            ),
        }
    )


def _shares(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Quotients, NaN of nothing."""
    return np.where(whole > 0, part / np.maximum(whole, 1), np.nan)
