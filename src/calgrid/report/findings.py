"""Findings in sentences; the report sets `names` in backticks as code.

Differences and their verdicts are those of the table of tests.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from calgrid.calibrators.base import WORSE
from calgrid.metrics.intervals import FEW_ROWS
from calgrid.report import text
from calgrid.report.recipes import Recipes, best_of_all
from calgrid.report.study import SEES_VALIDATION, UNCALIBRATED, Group, StudyData, among
from calgrid.report.tables.tuned import read_tuned
from calgrid.report.text import format_with_unit
from calgrid.statistics import verdicts
from calgrid.storage.layout import OOD_GROUPS
from calgrid.storage.schema import CLASSES, METRICS

#: calibrator with which methods are compared again: what is left of their differences
ONE_TEMPERATURE = "ts"
#: verdict, and whether it is that on the refinement or else on the calibration -> what it means
PARTS = {
    (verdicts.BETTER, False): ("gain", "only what one temperature would give"),
    (verdicts.WORSE, False): ("lose", "only what one temperature would give back"),
    (verdicts.BETTER, True): ("gain", "what no temperature gives"),
    (verdicts.WORSE, True): ("lose", "what no temperature gives back"),
}
#: largest number of calibrators that are listed one by one
FEW = 6
NUMBER = re.compile(r"\d+(?:\.\d+)?")
NLL_PARTS = ("nll_calibration", "nll_refinement")
ECES = ("ece_debiased", "ece", "ece_null")
TOLD = {verdicts.TIE: "no difference found"}
WORDS = {"accuracy": "accuracy", "nll": "NLL", "brier": "Brier score"}


def findings(data: StudyData, group: Group) -> list[str]:
    """Sentences about one group, the most important first; those without data are left out."""
    makers: tuple[Callable[[StudyData, Group], str], ...] = (
        _dataset,
        _few,
        _one_class,
        _best,
        _tests,
        _parts,
        _calibrators,
        _tuned,
        _baseline,
        _miscalibrated,
        _far_worse,
        _doubtful_fits,
        _shift,
        _ood,
    )
    return [_marked(data, sentence) for make in makers if (sentence := make(data, group))]


def _marked(data: StudyData, sentence: str) -> str:
    """Put a dagger after the methods that see validation data during training."""
    for method in data.validation_methods:
        sentence = sentence.replace(_code(method), _code(method) + SEES_VALIDATION)
    return sentence


def _code(name: str) -> str:
    return f"`{name}`"


def _codes(names: list[str]) -> str:
    return text.listed(list(map(_code, names)))


def _listing(about: str, cases: list[str]) -> str:
    """Sentence that lists cases; empty without any."""
    return f"{about}: {'; '.join(cases)}." if cases else ""


def _said(row: pd.Series, *metrics: str) -> str:
    """Means of metrics in words: ``accuracy 97.00 %, Brier score 0.0417``."""
    return ", ".join(
        f"{WORDS[metric]} {format_with_unit(metric, row[f'{metric}_mean'])}" for metric in metrics
    )


def _ece(row: pd.Series) -> str:
    """Mean debiased ECE, plain ECE and null of the plain one, in words."""
    debiased, plain, null = text.means(row, *ECES)
    return f"debiased ECE {debiased} (plain {plain}, null {null})"


def _interval(data: StudyData, row: pd.Series, metric: str) -> str:
    low = text.format_metric(metric, row[f"{metric}_ci_low"])
    high = text.format_metric(metric, row[f"{metric}_ci_high"])
    return "" if low == text.NOTHING else f" ({100 * data.level:g} % interval {low} to {high})"


def _dataset(data: StudyData, group: Group) -> str:
    """Warning about the data set."""
    said = data.warning(group)
    return f"Warning: on {_code(group.dataset)}, {said}." if said else ""


def _few(data: StudyData, group: Group) -> str:
    """Warning about a test split of a few images."""
    images = data.test_samples(group)
    if images >= FEW_ROWS:
        return ""
    return (
        f"Warning: the clean test split has {text.count(images, 'image')}, too few to say how well "
        "a network is calibrated."
    )


def _one_class(data: StudyData, group: Group) -> str:
    """Warning about networks that predict one class correctly and no other."""
    rows = data.rows(CLASSES, group, calibrator=UNCALIBRATED)
    rows = rows[rows["count"] > 0]
    right = rows[rows["sensitivity"] > 0].groupby(["method", "seed"], sort=False)
    single = right.filter(lambda classes: len(classes) == 1)
    if single.empty:
        return ""
    cases = []
    for method, seeds in single.groupby("method", sort=False)["seed"]:
        cases.append(f"{_code(method)} (seed {text.listed([*map(str, seeds)])})")
    counts = rows.drop_duplicates("class")["count"]
    return (
        f"Warning: networks that predict only one of {len(counts)} classes correctly: "
        f"{text.listed(cases)}; their accuracy is at most the share of the largest class, "
        f"{format_with_unit('accuracy', counts.max() / counts.sum())}."
    )


def _tuned(data: StudyData, group: Group) -> str:
    """Best tuned method, and how many differences are significant when each method has the same
    tuning budget.
    """
    tuning = data.manifest["configuration"].get("tuning")
    found = read_tuned(data) if tuning and group.protocol == tuning["protocol"] else None
    if found is None:
        return ""
    rows = data.select(found.summary, group)
    rows = rows[(rows["metric"] == "nll") & (rows["calibrator"] == UNCALIBRATED)]
    rows = rows.set_index("method")
    if len(rows) < 2:
        return ""
    best, others = rows["mean"].idxmin(), rows.drop(index=found.baseline)
    survive = int(others["verdict"].isin(verdicts.FOUND).sum())
    nll = rows["mean"].map(lambda mean: format_with_unit("nll", mean))
    return (
        f"Tuned with {text.count(found.budget, 'candidate')} each, chosen by the "
        f"{text.name(found.metric)} of validation rows: of {len(rows)} methods {_code(best)} has "
        f"the lowest NLL, {nll[best]}; against {_code(found.baseline)}, {nll[found.baseline]}, "
        f"{survive} of {len(others)} differences are significant over seeds and test images."
    )


def _baseline(data: StudyData, group: Group) -> str:
    rows = data.test(group, [UNCALIBRATED])
    rows = rows if len(rows) == 1 else rows[rows["method"] == data.baseline]
    if rows.empty:
        return ""
    row = rows.iloc[0]
    debiased, plain, null = text.means(row, *ECES)
    return (
        f"{_code(row['method'])} has a debiased ECE of "
        f"{debiased}{_interval(data, row, 'ece_debiased')}, with {_said(row, *WORDS)}. Its plain "
        f"ECE is {plain}; the expected ECE of a perfectly calibrated network with its confidences "
        f"is {null} on {data.test_samples(group):,} images."
    )


def _miscalibrated(data: StudyData, group: Group) -> str:
    """Of one network, with which calibrators its ECE is larger than chance explains."""
    rows = data.rows(METRICS, group, split="test", metric="ece")
    lowest = rows.groupby(["calibrator", "method", "seed"], as_index=False)["ci_low"].min().dropna()
    if lowest.empty or len(lowest) > lowest["calibrator"].nunique():
        return ""
    parts = []
    for word, is_found in (("Miscalibrated", True), ("No evidence of miscalibration", False)):
        found = lowest.loc[(lowest["ci_low"] > 0) == is_found, "calibrator"]
        if len(found):
            parts.append(f"{word}: {_with(among(data.calibrators, found))}")
    return f"{'. '.join(parts)} (by the {100 * data.level:g} % interval of the ECE)."


def _with(names: Sequence[str]) -> str:
    """Calibrators in words."""
    return text.listed(["uncalibrated" if name == UNCALIBRATED else _code(name) for name in names])


def _tests(data: StudyData, group: Group) -> str:
    """Differences in NLL without calibration, then with one temperature."""
    tests = _against_baseline(data, group)
    tests = tests[tests["metric"] == "nll"]
    rows = tests[tests["calibrator"] == UNCALIBRATED]
    if rows.empty:
        return ""
    if (rows["verdict"] == verdicts.NO_VERDICT).all():
        return (
            f"Differences to {_code(data.baseline)} cannot be tested: a test needs two common "
            "seeds or more."
        )
    said = f"NLL against {_code(data.baseline)} before calibration: {_verdicts(rows)}."
    if after := _verdicts(tests[tests["calibrator"] == ONE_TEMPERATURE]):
        said += f" After {_code(ONE_TEMPERATURE)}: {after}."
    return said


def _parts(data: StudyData, group: Group) -> str:
    """Which methods gain only what one temperature would give, by the parts of the NLL."""
    rows = _against_baseline(data, group)
    rows = rows[(rows["calibrator"] == UNCALIBRATED) & rows["metric"].isin(NLL_PARTS)]
    if (rows["verdict"] == verdicts.NO_VERDICT).all():
        return ""
    cases: dict[tuple[str, str], list[str]] = {}
    parts = rows.pivot(index="method", columns="metric", values="verdict")
    for method in among(data.methods, parts.index):
        calibration, refinement = parts.loc[method, list(NLL_PARTS)]
        case = ("show", "no difference in either part of it")
        if refinement in verdicts.FOUND:
            case = PARTS[refinement, True]
        elif calibration in verdicts.FOUND:
            case = PARTS[calibration, False]
        cases.setdefault(case, []).append(_code(method))
    said = []
    for (verb, what), names in cases.items():
        who = f"all {len(names)} methods" if len(names) == len(parts) > 1 else text.listed(names)
        said.append(f"{who} {verb}{'s' if len(names) == 1 else ''} {what}")
    return f"In NLL against {_code(data.baseline)} before calibration, {'; '.join(said)}."


def _against_baseline(data: StudyData, group: Group) -> pd.DataFrame:
    """Tests of the methods against the baseline with the same calibrator, the best first."""
    tests = data.select(data.clean_tests, group)
    same = tests["calibrator"] == tests["against_calibrator"]
    return data.in_order(tests[same & (tests["against"] == data.baseline)], data.order(group))


def _verdicts(rows: pd.DataFrame) -> str:
    """Differences in a metric by verdict, in words; empty without any."""
    if rows.empty:
        return ""
    metric, said = rows["metric"].iloc[0], []
    for word in verdicts.FOUND:
        found = rows[rows["verdict"] == word]
        names = list(map(_code, found["method"]))
        if len(names) > FEW:
            sizes = found["difference"].abs()
            least, most = (text.size(metric, value) for value in (sizes.min(), sizes.max()))
            said.append(f"{word}, by {least} to {most}: {text.listed(names)}")
        elif names:
            ends = found[["difference", "ci_low", "ci_high"]].itertuples(index=False)
            differences = [text.difference(metric, *values) for values in ends]
            pairs = list(map(" ".join, zip(names, differences, strict=True)))
            said.append(f"{word}: {text.listed(pairs)}")
    ties = rows[rows["verdict"] == verdicts.TIE]
    if len(ties):
        sizes = [text.size(metric, ties["detectable"].agg(end)) for end in ("min", "max")]
        said.append(
            f"no difference found for {_codes(list(ties['method']))}; one of "
            f"{' to '.join(dict.fromkeys(sizes))} would have been"
        )
    if equal := list(rows.loc[rows["verdict"] == verdicts.EQUIVALENT, "method"]):
        said.append(f"equivalent: {_codes(equal)}")
    return "; ".join(said)


def _best(data: StudyData, group: Group) -> str:
    """The recipe with the lowest NLL, and what is not significantly worse."""
    found = best_of_all(data, group)
    if found is None or found.others.empty:
        return ""
    best, others = found.best, len(found.others)
    choices = f"{others + 1} combinations of method and calibrator"
    if set(found.others["method"]) == {best["method"]}:
        choices = f"no calibration and {text.count(others, 'calibrator')}"
    return (
        f"{_combined(best)} has the lowest NLL of {choices} within 1 point of the best accuracy: "
        f"{_said(best, *WORDS)}, {_ece(best)}. {_ties(found)}"
    )


def _combined(row: pd.Series) -> str:
    calibrator = row["calibrator"]
    after = "without calibration" if calibrator == UNCALIBRATED else f"with {_code(calibrator)}"
    return f"{_code(row['method'])} {after}"


def _ties(found: Recipes) -> str:
    """Sentence about the combinations that are not significantly worse than the best."""
    if found.others.empty:
        return ""
    if not found.tested:
        return "With one seed other methods cannot be tested against it."
    if found.tied.empty:
        return "All others are significantly worse."
    named = list(found.tied.head(FEW).apply(_combined, axis=1))
    if more := len(found.tied) - len(named):
        named.append(f"{more} more")
    count = f"{len(found.tied)} of {len(found.others)}"
    return f"Not significantly worse ({count}): {text.listed(named)}."


def _calibrators(data: StudyData, group: Group) -> str:
    """Which calibrators lower or raise the NLL and the calibration error of which methods."""
    tests = data.select(data.clean_tests, group)
    same = (tests["method"] == tests["against"]) & (tests["against_calibrator"] == UNCALIBRATED)
    said = []
    for metric, name in (("nll", "NLL"), ("squared_ce", "calibration error")):
        rows = data.in_order(tests[same & (tests["metric"] == metric)], data.methods)
        cases = []
        for verdict in (*verdicts.FOUND, verdicts.TIE, verdicts.EQUIVALENT):
            found = rows[rows["verdict"] == verdict]
            named = []
            for calibrator, own in found.groupby("calibrator", sort=False):
                n_methods = (rows["calibrator"] == calibrator).sum()
                named.append(_code(calibrator) + _on(list(own["method"]), n_methods))
            if named:
                cases.append(f"{TOLD.get(verdict, verdict)}: {text.listed(named)}")
        if cases:
            said.append(f"{name} {'; '.join(cases)}")
    return f"Against no calibration, {'. In '.join(said)}." if said else ""


def _on(methods: list[str], n_methods: int) -> str:
    """Methods in words; empty if they are all."""
    if len(methods) == n_methods:
        return ""
    if len(methods) > FEW:
        return f" on {len(methods)} of {n_methods} methods"
    return f" on {_codes(methods)}"


def _far_worse(data: StudyData, group: Group) -> str:
    """Warning about calibrators that are far worse than no calibration for some method."""
    rows = data.test(group)
    base = rows[rows["calibrator"] == UNCALIBRATED].set_index("method")["nll_mean"]
    worse = rows[rows["nll_mean"] > WORSE * rows["method"].map(base)]
    cases = []
    for _, row in worse.iterrows():
        with_it = text.format_metric("nll", row["nll_mean"])
        without = text.format_metric("nll", base[row["method"]])
        names = f"{_code(row['calibrator'])} on {_code(row['method'])}"
        cases.append(f"{names} ({with_it} against {without})")
    return _listing(
        f"Warning: calibrators with more than {WORSE:g} times the NLL of the uncalibrated network",
        cases,
    )


def _doubtful_fits(data: StudyData, group: Group) -> str:
    """Warning about calibrator fits that ended at a bound or at the end of a grid, or did not
    converge, with the range of their numbers.
    """
    setting_of = operator.itemgetter(*Group._fields[:3])
    cases = []
    for entry in data.fit_warnings:
        if setting_of(entry) == group[:3]:
            said = _ranges(entry["texts"])
            cases.append(
                f"{_code(entry['calibrator'])} {entry['warned']} of {entry['fits']} {said}"
            )
    return _listing(
        "Warning: fits that stopped at a bound or an end of a grid, or did not converge", cases
    )


def _ranges(texts: Mapping[str, Sequence[str]]) -> str:
    """Warnings (text -> runs), of which those that differ in numbers alone are one, with the range
    of each number: ``(4.40 to 13.00 % are at the bound; ce 1 and ls 2)``.
    """
    alike: dict[str, list[str]] = {}
    for words in texts:
        alike.setdefault(NUMBER.sub("#", words), []).append(words)
    said = []
    for same in alike.values():
        numbers = zip(*map(NUMBER.findall, same), strict=True)
        first, *parts = NUMBER.split(same[0])
        spans = map(_span, numbers)
        ranged = first + "".join(span + word for span, word in zip(spans, parts, strict=True))
        runs = list(dict.fromkeys(run for words in same for run in texts[words]))
        shown = runs if len(runs) <= FEW else [*runs[: FEW - 1], f"{len(runs) - FEW + 1} more"]
        said.append(f"{ranged.removesuffix('.')}: {text.listed(shown)}")
    return f"({'; '.join(said)})"


def _span(numbers: Sequence[str]) -> str:
    """Range of numbers as they are written."""
    low, high = (end(numbers, key=float) for end in (min, max))
    return low if float(low) == float(high) else f"{low} to {high}"


def _shift(data: StudyData, group: Group) -> str:
    means = data.shift_means(group)
    means = means[(means["severity"] == means["severity"].max()) & (means["severity"] > 0)]
    means = means[means["method"] == data.baseline].set_index("calibrator")
    clean = data.test(group, [UNCALIBRATED]).set_index("method")
    if UNCALIBRATED not in means.index or data.baseline not in clean.index:
        return ""
    before, after = clean.loc[data.baseline], means.loc[UNCALIBRATED]
    parts = [
        f"{label} from {text.format_metric(metric, before[f'{metric}_mean'])} to "
        f"{format_with_unit(metric, after[f'{metric}_mean'])}"
        for metric, label in (("accuracy", "accuracy goes"), ("nll", "NLL"), ("ece", "ECE"))
    ]
    calibrator = data.few_calibrators()[-1]
    beside = ""
    if calibrator != UNCALIBRATED and calibrator in means.index:
        ece = format_with_unit("ece", means.loc[calibrator, "ece_mean"])
        beside = f" (ECE {ece} with {_code(calibrator)})"
    condition = f"Under corruption of severity {after['severity']}"
    return f"{condition}, {_code(data.baseline)}: {', '.join(parts)}{beside}."


def _ood(data: StudyData, group: Group) -> str:
    """Differences to the baseline in the detection of other sets."""
    tests = data.select(data.tests, group)
    tests = tests[(tests["split"] == "ood") & (tests["metric"] == "auroc")]
    tests = tests[(tests["calibrator"] == UNCALIBRATED) & ~tests["shift"].isin(OOD_GROUPS)]
    parts = []
    for name, rows in tests[tests["verdict"] != verdicts.NO_VERDICT].groupby("shift"):
        parts.append(f"{_code(name)}, {_verdicts(data.in_order(rows, data.order(group)))}")
    about = f"Out of distribution, AUROC of uncalibrated methods against {_code(data.baseline)}"
    return _listing(about, parts)
