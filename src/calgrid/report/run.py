"""One run as text or figure: its configuration, training history and reliability."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import yaml
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from calgrid.calibrators import build_calibrator
from calgrid.errors import DataError, check_ids, unknown_id
from calgrid.metrics import Output, check_probabilities, evaluate
from calgrid.metrics.binning import BinSums, bin_sums, inner_edges
from calgrid.report import text
from calgrid.report.figures.reliability import curve_and_histogram, handles
from calgrid.report.plotting import style
from calgrid.storage.logits import Logits, read_logits
from calgrid.storage.records import (
    HISTORY,
    ID_LENGTH,
    PREDICT,
    TRAIN,
    Record,
    RunKey,
    logits_file,
    verified,
)
from calgrid.storage.tables import read_frame

#: columns that every history has
CURVES = ("learning_rate", "train_loss", "train_accuracy", "val_nll", "val_accuracy")
#: label of a panel -> factor, and columns of the history
PANELS = {
    "Accuracy (%)": (100, "train_accuracy", "val_accuracy"),
    "Loss": (1, "train_loss", "val_nll"),
}
#: largest number of epochs printed
SHOWN_EPOCHS = 12
#: metrics printed for the test split
SAID = ("accuracy", "nll", "ece_debiased", "ece", "ece_null")
#: characters of a bar of accuracy 1
BAR = 50
#: printed entries of the specification of a run
MADE_BY = ("procedure", "loss", "checkpoint", "protocol", "external")


def reliability(probabilities: ArrayLike, labels: ArrayLike, n_bins: int = 15) -> pd.DataFrame:
    """Return a reliability diagram as a frame.

    Returns one row per bin: low, high (bounds of the confidence; the upper belongs to the bin),
    count (samples), confidence and accuracy (means over the samples; NaN in an empty bin).

    Parameters
    ----------
    probabilities : (N, K). labels : integers (N,). n_bins : equal-width bins of the largest
        probability.

    Raises
    ------
    DataError, ConfigError : as in :func:`calgrid.metrics.ece`.
    """
    return bin_frame(bin_sums(check_probabilities(probabilities, labels), n_bins))


def bin_frame(sums: BinSums) -> pd.DataFrame:
    """Return sums of bins, (M,) each, as :func:`reliability` does."""
    edges = np.concatenate([[0], inner_edges(len(sums.count)), [1]])
    with np.errstate(invalid="ignore"):
        confidence, accuracy = sums.confidence / sums.count, sums.correct / sums.count
    columns = {"low": edges[:-1], "high": edges[1:], "count": sums.count.astype(int)}
    return pd.DataFrame({**columns, "confidence": confidence, "accuracy": accuracy})


@dataclass(frozen=True)
class Run:
    """The results of a run.

    Attributes
    ----------
    trained : folder with ``train.json``; None for an external run.
    predicted : folder with ``predict.json``; None if the logits are not predicted yet.

    Raises
    ------
    DataError : at the first use of a file that is missing or damaged.
    """

    trained: Path | None
    predicted: Path | None

    @classmethod
    def newest(cls, folder: Path) -> "Run":
        """Newest results below the folder of a run.

        Raises
        ------
        DataError : it holds no results.
        """
        predicted = _newest(folder, f"predict-*/{PREDICT}")
        if predicted is None:
            trained = _newest(folder, f"train-*/{TRAIN}")
            if trained is None:
                raise DataError(
                    f"{folder} holds no results of a run; give the folder of another run."
                )
            return cls(trained, None)
        spec = Record.read(predicted, PREDICT).content["spec"]
        trained = folder / f"train-{spec.get('run_fingerprint', '')[:ID_LENGTH]}"
        return cls(trained if (trained / TRAIN).is_file() else None, predicted)

    @property
    def record(self) -> Mapping[str, Any]:
        """Content of the record of its training, or of its logits if the run is external."""
        if self.trained is not None:
            return Record.read(self.trained, TRAIN).content
        return Record.read(self.predicted or Path(), PREDICT).content

    @property
    def checkpoints(self) -> list[str]:
        """Checkpoints with logits, in alphabetical order."""
        if self.predicted is None:
            return []
        return sorted(path.name for path in self.predicted.glob("logits/*") if path.is_dir())

    def logits(self, name: str = "test", checkpoint: str | None = None) -> Logits:
        """Logits of a split or shift family such as ``ood/svhn``; of the first checkpoint by
        default.
        """
        known = self.checkpoints
        if self.predicted is None or not known:
            raise DataError(f"The logits of {self.trained} are not predicted yet; run again.")
        chosen = checkpoint or known[0]
        check_ids("checkpoint", [chosen], known)
        folder = self.predicted / "logits" / chosen
        files = [path.relative_to(folder).with_suffix("") for path in folder.rglob("*.parquet")]
        names = list(map(Path.as_posix, files))
        file, record = logits_file(chosen, name), self.predicted / PREDICT
        listed = record.exists() and file in Record.read(self.predicted, PREDICT).files
        if name not in names and not listed:
            raise unknown_id("split or shift", name, names, str(folder))
        path = verified(self.predicted, PREDICT, file, "logits file")
        return read_logits(path)

    @property
    def history(self) -> pd.DataFrame | None:
        """One row per epoch, counted from 1; None for an external run."""
        if self.trained is None:
            return None
        found = read_frame(verified(self.trained, TRAIN, HISTORY, "history"), "history")
        return found.assign(epoch=found["epoch"] + 1)


def _newest(folder: Path, pattern: str) -> Path | None:
    """Folder of the newest file of a pattern; None without any."""
    found = max(folder.glob(pattern), key=lambda path: path.stat().st_mtime, default=None)
    return None if found is None else found.parent


def describe(run: Run, checkpoint: str | None = None, n_bins: int = 15) -> str:
    """Return configuration, training history and reliability on the test split as text."""
    record = run.record
    spec = record["spec"]
    made = {name: spec[name] for name in MADE_BY if name in spec}
    device = record["environment"].get("device_name") or record["environment"].get("cpu", "")
    words = yaml.safe_dump(made, sort_keys=False, allow_unicode=True, default_flow_style=None)
    parts = [f"{RunKey(**spec['key']).path}: {text.seconds(record['seconds'])} s on {device}"]
    parts.append(words.rstrip())
    if (history := run.history) is not None:
        steps = np.linspace(0, len(history) - 1, SHOWN_EPOCHS).round().astype(int)
        rows = history.iloc[np.unique(steps)]
        columns = ["epoch", *(name for name in CURVES if name in rows)]
        parts.append(rows[columns].to_string(index=False, float_format="{:.4g}".format))
    if not run.checkpoints and checkpoint is None:
        parts.append("Its logits are not predicted yet.")
    else:
        data, probs, sums = _test(run, checkpoint, n_bins)
        parts.append(_diagram(data, probs, sums, checkpoint or run.checkpoints[0]))
    return "\n\n".join(parts) + "\n"


def _test(run: Run, checkpoint: str | None, n_bins: int) -> tuple[Logits, Output, BinSums]:
    data = run.logits("test", checkpoint)
    probs = build_calibrator("none").fit(data.logits, data.label).predict_output(data.logits)
    return data, probs, bin_sums(check_probabilities(probs, data.label), n_bins)


def _diagram(data: Logits, probs: Output, sums: BinSums, checkpoint: str) -> str:
    scores = evaluate(probs, data.label, n_bins=len(sums.count), costly=False)
    said = ", ".join(
        f"{text.name(name)} {text.format_with_unit(name, scores[name])}" for name in SAID
    )
    images = text.count(len(data), "image")
    lines = [
        f"{checkpoint} checkpoint, uncalibrated, test split of {images}: {said}",
        f"{'confidence %':>14s}{'images':>8s}{'accuracy %':>12s}  # accuracy, | mean confidence",
    ]
    for row in bin_frame(sums).itertuples():
        bounds = f"{100 * row.low:.0f}-{100 * row.high:.0f}"
        if not row.count:
            lines.append(f"{bounds:>14s}{0:>8d}")
            continue
        bar = list("#" * round(BAR * row.accuracy) + " " * BAR)[: BAR + 1]
        bar[round(BAR * row.confidence)] = "|"
        lines.append(
            f"{bounds:>14s}{row.count:>8,}{100 * row.accuracy:>12.1f}  {''.join(bar).rstrip()}"
        )
    return "\n".join(lines)


@mpl.rc_context(style.RC)
def draw(run: Run, checkpoint: str | None = None, n_bins: int = 15) -> Figure:
    """Draw the training history, if there is one, and the reliability diagram of the test split."""
    history = run.history
    data, _, sums = _test(run, checkpoint, n_bins)
    figure = style.new_figure(style.WIDTH if history is not None else style.WIDTH / 2, 4.2)
    sides = figure.add_gridspec(1, 2 if history is not None else 1)
    if history is not None:
        left = sides[0, 0].subgridspec(len(PANELS), 1)
        for place, (label, (factor, *names)) in enumerate(PANELS.items()):
            ax = figure.add_subplot(left[place])
            for name in names:
                ax.plot(history["epoch"], factor * history[name], label=name.replace("_", " "))
            ax.set_ylabel(label)
            ax.legend()
        ax.set_xlabel("Epoch")
    right = sides[0, -1].subgridspec(2, 1, height_ratios=[3.2, 1])
    lower = figure.add_subplot(right[1])
    upper = figure.add_subplot(right[0], sharex=lower)
    curve_and_histogram(upper, lower, sums)
    upper.set_title(f"test split, {text.count(len(data), 'image')}")
    upper.legend(handles=handles(several=False), loc="upper left", fontsize=8)
    lower.set_xlabel("Confidence (%)")
    return figure
