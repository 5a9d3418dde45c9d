"""Calibrators that figures look into: fitted once a group on the first seed, with a trace of the fit."""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from calgrid.calibrators import Calibrator, build_calibrator
from calgrid.calibrators._indicators import margin
from calgrid.reporting.settings import on_most_rows
from calgrid.reporting.study import Group, StudyData, run_logits
from calgrid.storage.logits import Logits

#: the calibrator that the figures are about; without it there are none
MAIN = "smart"
#: what is fitted beside it where the study has it -> options that differ from those of the study
FITTED = {"ts": {}, "pts": {"trace": True}, MAIN: {"trace": True}}


@dataclass(frozen=True)
class Fits:
    """Calibrators of one run.

    Attributes
    ----------
    method, seed : of the run. fit_seed : of the calibrators that draw random numbers.
    run, checkpoint : folder of the run, and which of its networks.
    calibrators : by name, fitted on val, in the order of ``FITTED``.
    """

    method: str
    seed: int
    fit_seed: int
    run: str
    checkpoint: str
    calibrators: dict[str, Calibrator]

    def logits(self, split: str) -> Logits:
        """Logits of ``val`` or ``test``."""
        return run_logits(self.run, self.checkpoint, split)


_KNOWN: WeakKeyDictionary[StudyData, dict[Group, Fits | None]] = WeakKeyDictionary()


def fits(data: StudyData, group: Group) -> Fits | None:
    """Calibrators of a group's baseline (or first method) on its first seed; None where the group has no ``MAIN``.

    They are fitted again, which takes seconds, because the files of fitted calibrators hold no trace. Groups that are
    the same but for the number of validation rows have them once.
    """
    known = _KNOWN.setdefault(data, {})
    if group not in known:
        known[group] = _fit(data, group)
    return known[group]


def _fit(data: StudyData, group: Group) -> Fits | None:
    if MAIN not in data.calibrators or not on_most_rows(data, group):
        return None
    method = data.reference(group)
    rows = data.select(data.metrics, group)
    rows = rows[(rows["method"] == method) & (rows["fit_on"] == "val")]
    if not (rows["calibrator"] == MAIN).any():
        return None
    runs = [run for run in data.runs(group) if run["key"]["method"] == method]
    run = min(runs, key=lambda each: each["key"]["seed"])
    fit_seed = int(rows.loc[rows["calibrator"] == MAIN, "fit_seed"].min())
    found = Fits(method, run["key"]["seed"], fit_seed, run["run"], group.checkpoint, {})
    val = found.logits("val")
    for name, options in FITTED.items():
        if (rows["calibrator"] == name).any():
            seeded = {**options, "seed": fit_seed} if options else {}
            found.calibrators[name] = build_calibrator(name, **seeded).fit(val.logits, val.label)
    return found


def whose(data: StudyData, group: Group) -> str:
    """Say for a caption which run the figure is about: ``ce on digits, resnet8 (seed 1)``."""
    found = fits(data, group)
    return f"{found.method} on {data.label(group)} (seed {found.seed} alone)"


def margins(data: Logits) -> np.ndarray:
    """Largest minus second largest logit (N,); inf where one class only is possible."""
    logits = data.logits.astype(np.float64)
    return margin(logits - logits.max(axis=1, keepdims=True))[0]
