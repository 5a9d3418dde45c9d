"""Data beside metrics: confidence bins, classes, and what modules of papers measure on fits.

A specification names these modules (:data:`calgrid.study.papers.DIAGNOSTICS`). They are
imported by name, measure calibrators that were fitted on val, and declare the columns of the files
that they make.
"""

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Protocol, cast

import numpy as np
import pandas as pd

from calgrid.calibrators import Calibrator, build_calibrator
from calgrid.metrics import Predictions, check_probabilities
from calgrid.metrics.binning import bin_sums
from calgrid.metrics.classes import class_auroc
from calgrid.storage import schema, specs
from calgrid.storage.logits import Logits
from calgrid.storage.schema import Columns


class Diagnostic(Protocol):
    """A module that measures fitted calibrators.

    Attributes
    ----------
    FILES : name of a file -> its columns, in addition to the key of the run.
    """

    FILES: Mapping[str, Columns]

    def calibrators(self, entries: Sequence[specs.Calibrator]) -> list[str]:
        """Of a run's calibrators, those that it needs; none if the run is not measured.

        The fit of a calibrator with the option ``trace`` is traced for it.
        """

    def measure(
        self, fit: Logits, test: Logits, fitted: Mapping[str, Calibrator]
    ) -> dict[str, pd.DataFrame]:
        """Content of the files for one checkpoint.

        Parameters
        ----------
        fit, test : rows of the fits, and the clean test split.
        fitted : ``none`` and the needed calibrators by name, each with the smallest of its seeds.
        """


def diagnostic(module: str) -> Diagnostic:
    """The module with this name."""
    return cast(Diagnostic, importlib.import_module(module))


def diagnosed_calibrators(modules: Iterable[str], entries: Sequence[specs.Calibrator]) -> list[str]:
    """Of a run's calibrators, those that a module needs, in their order."""
    needed: set[str] = set()
    for module in modules:
        needed.update(diagnostic(module).calibrators(entries))
    return [entry["name"] for entry in entries if entry["name"] in needed]


def diagnostic_files(modules: Iterable[str]) -> dict[str, Columns]:
    """Files that the modules make, and their columns."""
    files: dict[str, Columns] = {}
    for module in modules:
        files.update(diagnostic(module).FILES)
    return files


def measured(
    modules: Iterable[str],
    entries: Sequence[specs.Calibrator],
    n_bins: int,
    fit: Logits,
    test: Logits,
    fitted: Mapping[str, Calibrator],
) -> dict[str, pd.DataFrame]:
    """Files of one checkpoint: bins of the uncalibrated network, and what the modules measure.

    Parameters
    ----------
    entries : calibrators of the run.
    n_bins : of the calibration errors.
    fit, test : rows of the fits, and the clean test split.
    fitted : :func:`diagnosed_calibrators` by name.
    """
    bare = build_calibrator("none").fit(fit.logits, fit.label)
    predictions = check_probabilities(bare.predict_proba(test.logits), test.label)
    counts = dict.fromkeys((n_bins, schema.HISTOGRAM_BINS))
    bins = pd.concat([confidence_bins(predictions, count) for count in counts])
    tables = {schema.BINS: bins.assign(calibrator="none")}
    for module in modules:
        names = diagnostic(module).calibrators(entries)
        if names:
            needed = {"none": bare, **{name: fitted[name] for name in names}}
            tables.update(diagnostic(module).measure(fit, test, needed))
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
