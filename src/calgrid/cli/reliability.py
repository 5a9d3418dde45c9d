"""``calgrid reliability``: reliability diagrams of logits files, as text or figure."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np

from calgrid.cli.files import estimates, read, rows_of, says_and_right
from calgrid.cli.terminal import Arguments, write
from calgrid.errors import ConfigError
from calgrid.logits.reading import predicted
from calgrid.logits.symptoms import symptoms
from calgrid.metrics import Output
from calgrid.metrics.intervals import Estimate
from calgrid.progress import log, warn
from calgrid.storage.atomic import replacing
from calgrid.storage.logits import Logits

#: probabilities, labels and lines under the name of a diagram
Part: TypeAlias = tuple[np.ndarray, np.ndarray, str]
#: formats of a figure
FIGURES = (".pdf", ".png", ".svg")
#: classes of a file with diagrams of their own
MOST_CLASSES = 12


def reliability(options: Arguments) -> None:
    """Print the bins of each file, or of the predictions of each class, or draw the diagrams side
    by side.
    """
    check_figure(options.plot)
    names = [path.stem for path in options.files]
    if len(set(names)) < len(names):
        raise ConfigError("Give files with different names, which title their diagrams.")
    parts: dict[str, Part] = {}
    for name, path in zip(names, options.files, strict=True):
        data = read(path, options.labels, options)
        output = predicted(data)
        warn(*symptoms(data, output, path))
        if options.per_class:
            lead = f"{name}: " if len(names) > 1 else ""
            for each, part in _of_classes(data, output).items():
                parts[lead + each] = part
            continue
        scores = estimates(output, data.label, options)
        parts[name] = (output.probs, data.label, lines_of(output, data.label, scores))
    if options.plot:
        write_figure(options.plot, parts, options.bins)
        return
    from calgrid.report.run import reliability as bins_of

    for name, (probabilities, labels, lines) in parts.items():
        table = bins_of(probabilities, labels, options.bins)
        facts = lines.replace("\n", ", ")
        table = table[table["count"] > 0].to_string(
            index=False, float_format=lambda value: f"{value:.4f}"
        )
        write(f"{name}: {rows_of(labels)}, {facts}\n{table}\n\n")


def _of_classes(data: Logits, output: Output) -> dict[str, Part]:
    """Class name -> rows predicted as this class."""
    chosen = output.probs.argmax(axis=1)
    predicted_as = np.bincount(chosen)
    most = np.sort(np.argsort(-predicted_as, kind="stable")[:MOST_CLASSES])
    names = data.metadata.get("classes") or range(output.shape[1])
    parts = {}
    for number in most[predicted_as[most] > 0]:
        rows = np.flatnonzero(chosen == number)
        of_class, labels = output[rows], data.label[rows]
        said = says_and_right(of_class, labels).replace(", ", "\n")
        lines = f"{len(rows):,} predicted\n{said}"
        parts[str(names[number])] = (of_class.probs, labels, lines)
    return parts


def lines_of(output: Output, labels: np.ndarray, scores: Mapping[str, Estimate]) -> str:
    """Mean confidence, accuracy, debiased ECE with its interval, and NLL, a line each."""
    value, low, high = (100 * part for part in scores["ece_debiased"])
    interval = "" if np.isnan(low) else f" [{low:.2f}, {high:.2f}]"
    said = says_and_right(output, labels).replace(", ", "\n")
    return f"{said}\ndebiased ECE {value:.2f} %{interval}\nNLL {scores['nll'].value:.4f}"


def check_figure(path: Path | None) -> None:
    """Raise ConfigError unless a figure can have this name."""
    if path is not None and path.suffix.lower() not in FIGURES:
        raise ConfigError(f"--plot {path}: give a name that ends in {', '.join(FIGURES)}.")


def write_figure(path: Path, parts: Mapping[str, Part], n_bins: int) -> None:
    """Draw diagrams side by side."""
    from calgrid.report.figures.reliability import draw_reliability

    figure = draw_reliability(parts, n_bins)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:].lower(), dpi=200)
    log(f"wrote {path}")
