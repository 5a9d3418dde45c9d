"""Courses of fits, and margins between logits, of runs with the calibrator ``smart``.

The job ``calibrate`` measures them for the figures of the paper.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calgrid.calibrators import Calibrator
from calgrid.calibrators.indicators import INDICATORS
from calgrid.metrics import Predictions, check_probabilities, ece, nll
from calgrid.storage import specs
from calgrid.storage.logits import Logits
from calgrid.storage.schema import FITS, MARGINS, Columns

Floats = NDArray[np.float64]
#: runs without this calibrator have no rows
MAIN = "smart"
#: calibrators whose confidence in each test image is stored
COMPARED = ("none", "ts", "pts", "smart")
#: bins of the ECE in histories of fits, as in the traces of the calibrators
FIT_BINS = 15
#: number of evenly spaced test images whose optimal temperature is computed
SOLVED = 1000
#: the confidence at this temperature
CONFIDENCE = 0.8
#: search interval of temperatures, as powers of ten, and number of bisections
POWERS, HALVINGS = (-6.0, 6.0), 60
#: course of the fit of a calibrator on its ``n_samples`` rows, one row an epoch, and (``kept``) its
#: result. Loss of every epoch; gradient, ECE and NLL of every 20th
FIT_COLUMNS: Columns = {
    **dict.fromkeys(("checkpoint", "calibrator", "id"), "str"),
    **dict.fromkeys(("n_samples", "epoch"), "int32"),
    "kept": "bool",
    **dict.fromkeys(("temperature", "loss", "gradient", "ece", "nll"), "float64"),
}
#: inputs and outputs of ``smart`` for each image; on ``val`` the margin alone.
#: ``solved_temperature`` gives an image a fixed confidence, for some images of the test split only
MARGIN_COLUMNS: Columns = {
    "checkpoint": "str",
    "split": "str",
    "n_classes": "int32",
    **dict.fromkeys(("margin", "largest_logit", "logit_excess", "solved_temperature"), "float64"),
    **dict.fromkeys(
        ("temperature", "correct", *(f"confidence_{name}" for name in COMPARED)), "float64"
    ),
}
FILES = {FITS: FIT_COLUMNS, MARGINS: MARGIN_COLUMNS}


def calibrators(entries: Sequence[specs.Calibrator]) -> list[str]:
    """Of a run's calibrators, ``COMPARED``, and ``MAIN`` with other objectives; none without it."""
    options = {entry["name"]: entry["options"] for entry in entries if entry["id"] == MAIN}
    if MAIN not in options:
        return []
    rest = {**options[MAIN], "objective": None}
    alike = [name for name, each in options.items() if {**each, "objective": None} == rest]
    return [entry["name"] for entry in entries if entry["name"] in (*COMPARED, *alike)]


def measure(fit: Logits, test: Logits, fitted: Mapping[str, Calibrator]) -> dict[str, pd.DataFrame]:
    """Courses of all fits, and margins of the images with the confidences of ``COMPARED``."""
    courses = [_course(name, calibrator, fit) for name, calibrator in fitted.items()]
    compared = {name: fitted[name] for name in COMPARED if name in fitted}
    table = _margins(test, "test")
    chosen = np.linspace(0, len(test) - 1, min(SOLVED, len(test))).round().astype(int)
    known = np.isfinite(table["margin"])
    smart: Any = compared[MAIN]
    temperature = smart.temperature(table["margin"][known].to_numpy())
    # holds the probabilities of one calibrator at a time
    confidence = {}
    for name, calibrator in compared.items():
        confidence[f"confidence_{name}"] = _predictions(calibrator, test).confidence
    of_test = table.assign(
        **indicators(test.logits[chosen].astype(np.float64))
        .drop(columns="margin")
        .set_index(table.index[chosen]),
        temperature=pd.Series(temperature, index=table.index[known]),
        correct=_predictions(compared["none"], test).correct,
        **confidence,
    )
    images = [_margins(fit, "val"), of_test]
    return {FITS: pd.concat(courses), MARGINS: pd.concat(images)}


def _predictions(calibrator: Calibrator, data: Logits) -> Predictions:
    return check_probabilities(calibrator.predict_output(data.logits), data.label)


def _course(name: str, calibrator: Calibrator, fit: Logits) -> pd.DataFrame:
    """Rows of the epochs of a fit, if any, and a last row for the fitted calibrator."""
    history = calibrator.fit_history
    epochs = np.arange(len(history.get("loss", ())) if "trace_epoch" in history else 0)
    course = pd.DataFrame({"epoch": epochs, "loss": history["loss"] if len(epochs) else []})
    if len(epochs):
        traced = {key: history[f"trace_{key}"] for key in ("epoch", "gradient", "ece", "nll")}
        course = course.merge(pd.DataFrame(traced), on="epoch", how="left")
    probabilities = calibrator.predict_proba(fit.logits)
    kept = {
        "epoch": history.get("best_epoch", 0),
        "temperature": history.get("temperature", np.nan),
        "ece": ece(probabilities, fit.label, n_bins=FIT_BINS),
        "nll": nll(probabilities, fit.label),
    }
    rows = pd.concat([course.assign(kept=False), pd.DataFrame([kept]).assign(kept=True)])
    return rows.assign(calibrator=name, id=calibrator.id, n_samples=len(fit))


def margins(logits: Floats) -> Floats:
    """Largest minus second largest logit (N,) of logits (N, K); inf with one possible class."""
    return INDICATORS["margin"](logits - logits.max(axis=1, keepdims=True))[0]


def indicators(logits: Floats) -> pd.DataFrame:
    """Margin, largest logit, largest minus mean logit, and solved temperature of logits (N, K), one
    row per sample.
    """
    largest = logits.max(axis=1)
    return pd.DataFrame(
        {
            "margin": margins(logits),
            "largest_logit": largest,
            "logit_excess": INDICATORS["max_minus_mean"](logits - largest[:, None])[0],
            "solved_temperature": solved_temperature(logits),
        }
    )


def solved_temperature(logits: Floats) -> Floats:
    """Temperature (N,) at which ``softmax(z / T)`` of logits (N, K) has its largest entry at
    ``CONFIDENCE``.

    The largest entry decreases from 1 to 1/K in T, so the solution is unique; bisection of log T
    finds it to a relative error of 1e-15. NaN without a solution: tied largest logits, or a
    confidence of at most 1/K.
    """
    below = logits - logits.max(axis=1, keepdims=True)
    low, high = np.full((len(logits), 2), POWERS).T
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        too_sure = np.exp(below / 10.0 ** middle[:, None]).sum(axis=1) < 1 / CONFIDENCE
        low, high = np.where(too_sure, middle, low), np.where(too_sure, high, middle)
    found = (low > POWERS[0]) & (high < POWERS[1])
    return np.where(found, 10.0 ** ((low + high) / 2), np.nan)


def _margins(data: Logits, split: str) -> pd.DataFrame:
    logits = data.logits.astype(np.float64)
    return pd.DataFrame({"margin": margins(logits)}).assign(split=split, n_classes=logits.shape[1])
