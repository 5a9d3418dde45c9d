"""Symptoms of a wrongly read file: its kind, its labels, the order of its classes.

Nothing here is an error: each sign has rare good reasons. All commands, and studies with logits
from elsewhere, warn of them.
"""

from pathlib import Path

import numpy as np
from scipy.special import bdtr

from calgrid.calibrators._probabilities import resemble_probabilities
from calgrid.calibrators._validation import sigmoid_warnings
from calgrid.class_names import shown_names
from calgrid.metrics import Output, check_probabilities
from calgrid.metrics.intervals import FEW_ROWS
from calgrid.storage.logits import Logits

#: an accuracy is below chance if guessing at random would be as bad less often
SIGNIFICANT = 1e-3
#: rows for each class, in the mean, from which on a class without one is a symptom
MANY_ROWS = 10


def symptoms(data: Logits, output: Output, name: str | Path) -> list[str]:
    """Return a sentence for each symptom of a labelled file.

    Parameters
    ----------
    output : probabilities of its rows, (N, K). name : of the file, in the sentences.
    """
    return [*of_labels(data, name), *of_scores(data, output, name)]


def of_labels(data: Logits, name: str | Path, fewest: int = MANY_ROWS) -> list[str]:
    """Return the symptoms of the labels alone; ``fewest`` rows for each class, in the mean, let a
    class without a row be one.
    """
    found = []
    rows, n_classes = data.logits.shape
    if rows < FEW_ROWS:
        found.append(
            f"{name} has {rows} row{'s' * (rows != 1)}, too few to say how well a model is "
            "calibrated: by chance a perfectly calibrated one has a large ECE, too (ece_null)."
        )
    absent = np.flatnonzero(np.bincount(data.label, minlength=n_classes) == 0)
    if len(absent) and rows >= fewest * n_classes:
        names = data.metadata.get("classes") or list(map(str, range(n_classes)))
        found.append(
            f"{name} has no row of {len(absent)} of {n_classes} classes "
            f"({shown_names([names[number] for number in absent])}): a column may be no class, and "
            "calibrated probabilities of these classes rest on rows of others."
        )
    return found


def of_scores(data: Logits, output: Output, name: str | Path) -> list[str]:
    """Return the symptoms of logits or probabilities and of their order; see :func:`symptoms`."""
    found = impossible(output, data.label, name)
    rows, n_classes = output.shape
    right = int((output.probs.argmax(axis=1) == data.label).sum())
    if bdtr(right, rows, 1 / n_classes) < SIGNIFICANT:
        found.append(
            f"{name}: {right} of {rows} rows are right, fewer than by chance (1 of {n_classes}); "
            "labels and columns may be in another order, or the numbers have the wrong sign."
        )
    if rows > 1 and (output.probs == output.probs[0]).all():
        found.append(
            f"{name}: all rows have the same probabilities, from which no calibrator can learn; "
            "give the outputs of the network for each image."
        )
    if data.probabilities is not None:
        return found
    found += [f"{name}: {warning}" for warning in sigmoid_warnings(data.logits)]
    if data.logits.min() >= 0 and resemble_probabilities(np.exp(-data.logits)):
        found.append(
            f"{name}: the logits are -ln p of probabilities p; give their negatives, ln p."
        )
    return found


def impossible(output: Output, labels: np.ndarray, name: str | Path) -> list[str]:
    """Return a sentence if labels have the probability 0, for which the NLL would be infinite."""
    predictions = check_probabilities(output, labels)
    if not predictions.n_impossible:
        return []
    return [
        f"{name}: {predictions.n_impossible} of {len(labels)} rows give their label the "
        f"probability 0; the NLL counts it as {predictions.least:.2g}."
    ]
