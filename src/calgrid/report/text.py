"""Formats of numbers and names in the report; files keep fractions.

:func:`csv`, :func:`markdown` and :func:`latex` escape text of users, such as the questions of a
study, so that it is neither a formula in a spreadsheet nor markup.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from calgrid.components.metrics import find_metric
from calgrid.statistics.verdicts import TIE

NOTHING = "–"
#: unit of a metric -> as shown; squares of fractions are shown as their root
UNITS = {"fraction": "%", "square": "%", "nats": "nats"}
#: unit of a metric -> as shown in differences, which are no shares of a value
DIFFERENCES = {"fraction": "points"}
#: first characters of a formula in spreadsheets, also as full-width characters
FORMULA = tuple("=+-@＝＋－＠")
#: markup in Markdown: emphasis, border of a cell, tag, link, character entity
SPECIAL_MARKDOWN = re.compile(r"[\\`*|]|<(?=[A-Za-z/!?])|\](?=[(\[])|&(?=#?\w+;)")


#: Greek letters, and their names in LaTeX
GREEK = "αβγδεζηθκλμνξπρστφχψωΓΔΘΛΞΠΣΦΨΩ"
IN_LATEX = (
    "alpha beta gamma delta epsilon zeta eta theta kappa lambda mu nu xi pi rho sigma tau phi chi "
    "psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega"
)
SPECIAL_LATEX = str.maketrans(
    {
        **dict(zip(GREEK, map("$\\{}$".format, IN_LATEX.split()), strict=True)),
        **{mark: f"\\{mark}" for mark in "_%&#${}"},
        "\\": "\\textbackslash{}",
        "~": "\\textasciitilde{}",
        "^": "\\textasciicircum{}",
        # in text the default encoding has other characters at their places
        "<": "$<$",
        ">": "$>$",
        "|": "$\\vert$",
        "–": "--",
        "—": "---",
        "“": "``",
        "”": "''",
        "’": "'",
        "…": "\\dots{}",
        "\N{NO-BREAK SPACE}": "~",
        "↓": "$\\downarrow$",
        "↑": "$\\uparrow$",
        "→": "$\\rightarrow$",
        "†": "$\\dagger$",
        "‡": "$\\ddagger$",
        "±": "$\\pm$",
        "×": "$\\times$",
        "−": "$-$",
        "≤": "$\\leq$",
        "≥": "$\\geq$",
        "²": "$^2$",
        "³": "$^3$",
        "°": "$^\\circ$",
        "µ": "$\\mu$",
    }
)
#: hyphen of a negative number
MINUS = re.compile(r"(?<![\w.-])-(?=[\d.])")
#: what pdfLaTeX does not know: characters beyond ASCII and letters of western and central Europe
UNKNOWN = re.compile("[^\x00-\x7f\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u017e]")
NAMES = {
    "accuracy": "Accuracy",
    "top5": "Top-5 accuracy",
    "balanced_accuracy": "Balanced accuracy",
    "macro_auroc": "Macro AUROC",
    "nll": "NLL",
    "nll_calibration": "NLL calibration",
    "nll_refinement": "NLL refinement",
    "brier": "Brier",
    "brier_calibration": "Brier calibration",
    "brier_refinement": "Brier refinement",
    "ece": "ECE",
    "ece_debiased": "ECE debiased",
    "ece_null": "ECE null",
    "aece": "AECE (published form)",
    "aece_eq": "AECE",
    "ece_sweep": "ECE sweep",
    "cece": "CECE",
    "mce": "MCE",
    "rmsce": "RMSCE",
    "rmsce_debiased": "RMSCE debiased",
    "squared_ce": "Root of squared CE",
    "o_ece": "O-ECE",
    "u_ece": "U-ECE",
    "ks": "KS",
    "l1_ts": "L1 error (temperature)",
    "l1_iso": "L1 error (isotonic)",
    "l2_ts": "L2 error (temperature)",
    "l2_iso": "L2 error (isotonic)",
    "smce": "smCE",
    "smece": "smECE (kernel)",
    "aurc": "AURC",
    "auroc_failure": "AUROC (failure)",
    "aupr_failure": "AUPR (errors)",
    "fpr95_failure": "FPR95 (failure)",
    "soft_kl": "KL to truth",
    "soft_tv": "TV to truth",
    "soft_ece": "ECE to truth",
    "auroc": "AUROC",
    "fpr95": "FPR95",
    "auroc_entropy": "AUROC entropy",
    "fpr95_entropy": "FPR95 entropy",
    "fpr95_oodpos": "FPR95 (OOD positive)",
    "aupr": "AUPR",
    "aupr_oodpos": "AUPR (OOD positive)",
    "auroc_maxlogit": "AUROC MaxLogit",
    "fpr95_maxlogit": "FPR95 MaxLogit",
    "aupr_maxlogit": "AUPR MaxLogit",
    "auroc_energy": "AUROC energy",
    "fpr95_energy": "FPR95 energy",
    "aupr_energy": "AUPR energy",
    "auroc_knn": "AUROC kNN",
    "fpr95_knn": "FPR95 kNN",
    "aupr_knn": "AUPR kNN",
    "auroc_vim": "AUROC ViM",
    "fpr95_vim": "FPR95 ViM",
    "aupr_vim": "AUPR ViM",
}


def name(metric: str) -> str:
    """Name of a metric as shown."""
    return NAMES.get(metric, metric)


def is_square(metric: str) -> bool:
    """Whether the values of a metric are squares, shown as their root."""
    return find_metric(metric).unit == "square"


def shown(metric: str, values: ArrayLike) -> NDArray[np.float64]:
    """Values in their shown unit: fractions in percent, their squares as the root in percent with
    the sign of the value, as a difference of squares may be negative.
    """
    values = np.asarray(values, float)
    if is_square(metric):
        return 100 * np.sign(values) * np.sqrt(np.abs(values))
    return 100 * values if in_percent(metric) else values


def in_percent(metric: str) -> bool:
    """Whether a metric is shown in percent."""
    return UNITS.get(find_metric(metric).unit) == "%"


def decimals(metric: str) -> int:
    """Decimals of a metric in tables."""
    return 2 if in_percent(metric) else 4


def in_unit(metric: str) -> str:
    """Name of a metric with its unit: ``ECE (%)``, ``NLL (nats)``, ``Brier``."""
    unit = UNITS.get(find_metric(metric).unit)
    return f"{name(metric)} ({unit})" if unit else name(metric)


def heading(metric: str, shown: str = "") -> str:
    """Column heading: name, or the one to be ``shown``, unit, and an arrow in the direction of
    better values.
    """
    lower = find_metric(metric).lower_is_better
    arrow = {True: " ↓", False: " ↑", None: ""}[lower]
    return (shown or name(metric)) + in_unit(metric).removeprefix(name(metric)) + arrow


def format_metric(metric: str, value: float, signed: bool = False) -> str:
    """Write a value: in percent, see :func:`shown`, with two decimals, others with four; NaN is a
    dash.
    """
    return decimal(float(shown(metric, value)), decimals(metric), signed)


def decimal(value: float, decimals: int, signed: bool = False) -> str:
    """Write a number with fixed decimals; zero has no sign, NaN is a dash."""
    if math.isnan(value):
        return NOTHING
    text = f"{value:{'+' if signed else ''}.{decimals}f}"
    return text if text.strip("+-0.") else text.replace("-", "").replace("+", "")


def format_with_unit(metric: str, value: float) -> str:
    """Write a value with its unit, for sentences."""
    return f"{format_metric(metric, value)} {UNITS.get(find_metric(metric).unit, '')}".rstrip()


def difference(metric: str, value: float, low: float, high: float) -> str:
    """Write a difference and its interval for sentences, to two digits of the half-width: ``lower
    by 0.20 nats [0.07, 0.33]``.
    """
    direction = "lower" if value < 0 else "higher"
    if value < 0:
        value, low, high = -value, -high, -low
    numbers = shown(metric, [value, low, high])
    digits = _two_digits(metric, (numbers[2] - numbers[1]) / 2)
    said, *ends = [decimal(number, digits) for number in numbers]
    return f"{direction} by {said}{_unit_of_differences(metric)} [{', '.join(ends)}]"


def size(metric: str, value: float) -> str:
    """Write the size of a difference with two digits and its unit, for sentences."""
    number = float(shown(metric, value))
    return decimal(number, _two_digits(metric, number)) + _unit_of_differences(metric)


def _two_digits(metric: str, number: float) -> int:
    """Decimals to show two significant digits of a number, at most the decimals of tables."""
    if not (number > 0 and math.isfinite(number)):
        return decimals(metric)
    return min(max(1 - math.floor(math.log10(number)), 0), decimals(metric))


def _unit_of_differences(metric: str) -> str:
    unit = find_metric(metric).unit
    return f" {DIFFERENCES.get(unit, UNITS.get(unit, ''))}".rstrip()


def means(row: pd.Series, *metrics: str) -> list[str]:
    """Write the means of metrics in a wide row with their units."""
    return [format_with_unit(metric, row[f"{metric}_mean"]) for metric in metrics]


def spread(metric: str, n_seeds: int, std: float, low: float, high: float) -> str:
    """Write the standard deviation over seeds; the interval for one seed, and of squares: the root
    of a deviation is no deviation of the root.
    """
    if n_seeds > 1 and not math.isnan(std) and not is_square(metric):
        return f"± {format_metric(metric, std)}"
    return interval(metric, low, high)


def interval(metric: str, low: float, high: float, signed: bool = False) -> str:
    """Write an interval in brackets; empty if it is unknown."""
    if math.isnan(low):
        return ""
    return f"[{format_metric(metric, low, signed)}, {format_metric(metric, high, signed)}]"


def verdict(word: str, metric: str, detectable: float) -> str:
    """Write a verdict, a tie with the difference of ``metric`` that would have been found."""
    if word != TIE or math.isnan(detectable):
        return word
    return f"no difference found; detectable: {size(metric, detectable)}"


def untested(metric: str, std_test: float) -> str:
    """Missing requirement of a test of a metric; empty if its data suffice."""
    needs = find_metric(metric).needs
    lacks = any(needs) and math.isnan(std_test)
    return f"each test set needs at least {needs}" if lacks else ""


def p_value(value: float) -> str:
    """Write a p-value."""
    if math.isnan(value):
        return NOTHING
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def seconds(value: float, like: float | None = None) -> str:
    """Write a duration in seconds, with the decimals that give ``like`` (default: itself) three
    significant digits.
    """
    if math.isnan(value):
        return NOTHING
    size = abs(value if like is None else like)
    decimals = min(max(2 - math.floor(math.log10(size)), 0), 4) if size > 0 else 1
    return f"{value:,.{decimals}f}"


def count(value: int, noun: str, plural: str = "") -> str:
    """Write a number with its noun: ``1 seed``, ``1,200 images``."""
    return f"{value:,} {noun if value == 1 else plural or noun + 's'}"


def listed(names: list[str]) -> str:
    """Join names: ``a``, ``a and b``, ``a, b and c``."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def distinct(values: pd.Series) -> str:
    """Different known words, joined by a comma."""
    return ", ".join(sorted({*values.dropna().astype(str)} - {""}))


def csv(frame: pd.DataFrame) -> str:
    """Write a frame as CSV, with an apostrophe before text that spreadsheets would take for a
    formula.
    """
    words = {
        name: frame[name].map(_inert)
        for name in frame
        if not pd.api.types.is_numeric_dtype(frame[name])
    }
    return frame.assign(**words).to_csv(index=False, lineterminator="\n")


def _inert(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    value = "\n".join(value.splitlines())  # pandas quotes no other end of a line
    if not value.lstrip().startswith(FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def one_line(words: str) -> str:
    """Text with its lines joined by blanks."""
    return " ".join(words.splitlines())


def markdown(words: str) -> str:
    """Escape text for Markdown, in one line."""
    return SPECIAL_MARKDOWN.sub(r"\\\g<0>", one_line(words))


def latex(words: str) -> str:
    """Escape text for pdfLaTeX, in one line; unknown characters become numbers: ``U+4E2D``."""
    known = MINUS.sub("−", one_line(words)).translate(SPECIAL_LATEX)
    return UNKNOWN.sub(lambda letter: f"U+{ord(letter[0]):04X}", known)


@dataclass(frozen=True)
class Markup:
    """Markup of a format: escaped text, bold, underlined and small text, and the bar between two
    numbers.
    """

    escape: Callable[[str], str]
    bold: str
    underlined: str
    small: str
    bar: str


MARKDOWN = Markup(markdown, "**{}**", "<u>{}</u>", "{}", "\\|")
LATEX = Markup(latex, "\\textbf{{{}}}", "\\underline{{{}}}", "{{\\scriptsize {}}}", "$\\vert$")
