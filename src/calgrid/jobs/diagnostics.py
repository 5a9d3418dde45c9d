"""Data of figures beside metrics: confidence bins, losses of fits, and margins between logits.

The stage ``calibrate`` writes them; ``storage.schema`` lists the columns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calgrid import specs
from calgrid.calibrators import Calibrator, build_calibrator
from calgrid.metrics import Predictions, check_probabilities, ece, nll
from calgrid.metrics.binning import bin_sums
from calgrid.statistics.margins import indicators, margins
from calgrid.storage import schema
from calgrid.storage.logits import Logits
from calgrid.storage.schema import BINS, COMPARED, FITS, MARGINS
from calgrid.storage.tables import write_frame

#: fits and margins are written only for runs with this calibrator
MAIN = "smart"
#: bins of the ECE in histories of fits, as in the traces of the calibrators
FIT_BINS = 15
#: number of evenly spaced test images whose optimal temperature is computed
SOLVED = 1000


def shown_calibrators(entries: Sequence[specs.Calibrator]) -> list[str]:
    """Of a run's calibrators, those in figures: ``COMPARED``, and ``MAIN`` with other objectives;
    none without it.
    """
    options = {entry["name"]: entry["options"] for entry in entries if entry["id"] == MAIN}
    if MAIN not in options:
        return []
    rest = {**options[MAIN], "objective": None}
    alike = [name for name, each in options.items() if {**each, "objective": None} == rest]
    return [entry["name"] for entry in entries if entry["name"] in (*COMPARED, *alike)]


@dataclass
class Diagnostics:
    """Diagnostics of all checkpoints of a run."""

    n_bins: int
    _tables: dict[str, list[pd.DataFrame]] = field(default_factory=dict)

    def add(
        self, checkpoint: str, fit: Logits, test: Logits, calibrators: Mapping[str, Calibrator]
    ) -> None:
        """Add a checkpoint: rows of the fits, clean test split, and calibrators of figures by name."""
        bare = build_calibrator("none").fit(fit.logits, fit.label)
        everything = {"none": bare, **calibrators}
        found = {BINS: confidence_bins(_predictions(bare, test), self.n_bins)}
        if MAIN in calibrators:
            found[FITS] = pd.concat([_course(name, each, fit) for name, each in everything.items()])
            compared = {name: everything[name] for name in COMPARED if name in everything}
            found[MARGINS] = pd.concat([_margins(fit, "val"), _margins_of_test(test, compared)])
        for name, table in found.items():
            self._tables.setdefault(name, []).append(table.assign(checkpoint=checkpoint))

    def write(self, folder: Path, fingerprint: str) -> None:
        """Write the tables, each with the fingerprint of the stage in its footer."""
        for name, tables in self._tables.items():
            wanted = schema.PART_EXTRAS[name]
            table = (
                pd.concat(tables, ignore_index=True)
                .reindex(columns=list(wanted))
                .astype(dict(wanted))
            )
            write_frame(folder / name, table, {"fingerprint": fingerprint})


def confidence_bins(predictions: Predictions, n_bins: int) -> pd.DataFrame:
    """Sums over the images in each confidence bin, for calibration errors and a histogram."""
    parts = []
    for count in dict.fromkeys((n_bins, schema.HISTOGRAM_BINS)):
        sums = bin_sums(predictions, count)
        parts.append(pd.DataFrame({"n_bins": count, "bin": range(count), **vars(sums)}))
    return pd.concat(parts, ignore_index=True)


def _predictions(calibrator: Calibrator, data: Logits) -> Predictions:
    return check_probabilities(calibrator.predict_proba(data.logits), data.label)


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


def _margins(data: Logits, split: str) -> pd.DataFrame:
    logits = data.logits.astype(np.float64)
    return pd.DataFrame({"margin": margins(logits)}).assign(split=split, n_classes=logits.shape[1])


def _margins_of_test(test: Logits, calibrators: Mapping[str, Calibrator]) -> pd.DataFrame:
    table = _margins(test, "test")
    chosen = np.linspace(0, len(test) - 1, min(SOLVED, len(test))).round().astype(int)
    known = np.isfinite(table["margin"])
    smart: Any = calibrators[MAIN]
    temperature = smart.temperature(table["margin"][known].to_numpy())
    # holds the probabilities of one calibrator at a time
    confidence = {name: _predictions(each, test).confidence for name, each in calibrators.items()}
    return table.assign(
        **indicators(test.logits[chosen].astype(np.float64))
        .drop(columns="margin")
        .set_index(table.index[chosen]),
        temperature=pd.Series(temperature, index=table.index[known]),
        correct=_predictions(calibrators["none"], test).correct,
        **{f"confidence_{name}": values for name, values in confidence.items()},
    )
