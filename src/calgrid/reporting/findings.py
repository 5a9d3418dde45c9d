"""Findings in sentences, from the summary; the report sets `names` in backticks as code."""

import operator
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from calgrid.calibrators.base import WORSE
from calgrid.metrics.intervals import FEW_ROWS
from calgrid.reporting import text
from calgrid.reporting.recipes import Recipes, best_of_all
from calgrid.reporting.study import (
    SEES_VALIDATION,
    UNCALIBRATED,
    Group,
    StudyData,
    among,
    keeps_accuracy,
)
from calgrid.reporting.tables.class_groups import group_means
from calgrid.reporting.tables.shift import SCORED_BY
from calgrid.reporting.tables.tuned import read_tuned
from calgrid.reporting.text import format_with_unit
from calgrid.statistics import compare, verdicts
from calgrid.storage.layout import OOD_GROUPS
from calgrid.storage.schema import CLASSES, METRICS, RESAMPLES

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
ECES = ("ece_debiased", "ece", "ece_null")
WORDS = {"accuracy": "accuracy", "nll": "NLL", "brier": "Brier score"}


def findings(data: StudyData, group: Group) -> list[str]:
    """Sentences about one group, the most important first; those without data are left out."""
    makers: tuple[Callable[[StudyData, Group], str], ...] = (
        _dataset,
        _few,
        _one_class,
        _tests,
        _parts,
        _tuned,
        _best_method,
        _baseline,
        _miscalibrated,
        _best_combination,
        _calibrators,
        _class_groups,
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


def _best_method(data: StudyData, group: Group) -> str:
    rows = data.test(group, [UNCALIBRATED])
    if len(rows) < 2:
        return ""
    kept = rows[keeps_accuracy(rows)]
    best = kept.iloc[0]
    return (
        f"Of {len(rows)} uncalibrated methods, {len(kept)} are within 1 point of the best "
        f"accuracy; among them {_code(best['method'])} has the lowest NLL: "
        f"{format_with_unit('nll', best['nll_mean'])}{_interval(data, best, 'nll')}, "
        f"{_said(best, 'accuracy', 'brier')}, {_ece(best)}."
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
    """How many networks have a larger ECE than chance explains, by calibrator."""
    rows = data.rows(METRICS, group, split="test", metric="ece")
    lowest = rows.groupby(["calibrator", "method", "seed"])["ci_low"].min().dropna()
    if lowest.empty:
        return ""
    above = (lowest > 0).groupby("calibrator").agg(["sum", "size"])
    above = above.loc[among(data.calibrators, above.index)].reset_index()
    by = f"by the {100 * data.level:g} % interval of the ECE"
    if above["size"].max() == 1:
        found = above["sum"] > 0
        words = {"Miscalibrated": above[found], "No evidence of miscalibration": above[~found]}
        parts = [f"{word}: {_with(rows)}" for word, rows in words.items() if len(rows)]
        return f"{'. '.join(parts)} ({by})."
    if above["calibrator"].iloc[0] != UNCALIBRATED:
        return ""
    before, after = above.iloc[0], above.iloc[1:]
    said = f"{before['sum']} of {before['size']} uncalibrated networks are miscalibrated, {by}"
    if before["sum"] == before["size"]:
        said = f"All {before['size']} uncalibrated networks are miscalibrated, {by}"
    if len(after) > FEW:
        fewest = after[after["sum"] == after["sum"].min()]
        return f"{said}; after {_with(fewest)} the fewest: {fewest['sum'].iloc[0]}."
    for _, row in after.iterrows():
        said += f"; after {_code(row['calibrator'])} {row['sum']} of {row['size']}"
    return f"{said}."


def _with(rows: pd.DataFrame) -> str:
    """Calibrators in words."""
    names = ["uncalibrated" if name == UNCALIBRATED else _code(name) for name in rows["calibrator"]]
    return text.listed(names) if names else "none"


def _tests(data: StudyData, group: Group) -> str:
    """Differences in NLL without calibration, then with one temperature."""
    tests = _against_baseline(data, group, ["nll"])
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
    rows = _against_baseline(data, group, ["nll_calibration", "nll_refinement"])
    rows = rows[rows["calibrator"] == UNCALIBRATED]
    if (rows["verdict"] == verdicts.NO_VERDICT).all():
        return ""
    cases: dict[tuple[str, str], list[str]] = {}
    parts = rows.pivot(index="method", columns="metric", values="verdict")
    for method in among(data.methods, parts.index):
        calibration, refinement = parts.loc[method, ["nll_calibration", "nll_refinement"]]
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


def _against_baseline(data: StudyData, group: Group, metrics: Sequence[str]) -> pd.DataFrame:
    """Tests of the methods against the baseline, before and after one temperature, with the
    verdicts of the table of tests; methods that a question is about are answered there.
    """
    where = {"split": "test", "metric": metrics, "calibrator": data.few_calibrators()}
    numbers = [data.rows(name, group, **where) for name in (METRICS, RESAMPLES)]
    asked = [
        {"question": "", "method": name, "against": data.baseline}
        for name in data.order(group)
        if name != data.baseline
    ]
    tests = compare(numbers[0], asked, data.level, numbers[1])
    return tests[~tests["method"].isin(data.asked)]


def _verdicts(rows: pd.DataFrame) -> str:
    """Differences in NLL by verdict, in words; empty without any."""
    said = []
    for word in verdicts.FOUND:
        found = rows[rows["verdict"] == word]
        names = list(map(_code, found["method"]))
        if len(names) > FEW:
            sizes = found["difference"].abs()
            least, most = (text.size("nll", value) for value in (sizes.min(), sizes.max()))
            said.append(f"{word}, by {least} to {most}: {text.listed(names)}")
        elif names:
            ends = found[["difference", "ci_low", "ci_high"]].itertuples(index=False)
            differences = [text.difference("nll", *values) for values in ends]
            pairs = list(map(" ".join, zip(names, differences, strict=True)))
            said.append(f"{word}: {text.listed(pairs)}")
    ties = rows[rows["verdict"] == verdicts.TIE]
    if len(ties):
        sizes = [text.size("nll", ties["detectable"].agg(end)) for end in ("min", "max")]
        said.append(
            f"no difference found for {_codes(list(ties['method']))}; one of "
            f"{' to '.join(dict.fromkeys(sizes))} would have been"
        )
    if equal := list(rows.loc[rows["verdict"] == verdicts.EQUIVALENT, "method"]):
        said.append(f"equivalent: {_codes(equal)}")
    return "; ".join(said)


def _best_combination(data: StudyData, group: Group) -> str:
    rows = data.test(group)
    if rows.empty or rows["calibrator"].nunique() < 2:
        return ""
    if (found := best_of_all(data, group)) is None:
        return ""
    best = found.best
    choices = f"Of all {len(rows)} combinations of method and calibrator"
    if rows["method"].nunique() == 1:
        choices = f"Of {text.count(len(rows) - 1, 'calibrator')} and no calibration"
    return (
        f"{choices}, {_combined(best)} has the lowest NLL among those within 1 point of the best "
        f"accuracy: {_said(best, *WORDS)}, {_ece(best)}. {_ties(found)}"
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
    rows = data.test(group)
    base = rows[rows["calibrator"] == UNCALIBRATED].set_index("method")
    if len(base) == rows["method"].nunique() == 1:
        (none,), others = base.to_dict("records"), rows[rows["calibrator"] != UNCALIBRATED]
        lower = [
            f"{WORDS[metric]}: {_with(others[others[f'{metric}_mean'] < none[f'{metric}_mean']])}"
            for metric in ("nll", "brier")
        ]
        return f"Lower than without calibration, {'; '.join(lower)}." if len(others) else ""
    counts, everywhere = [], np.zeros(2, int)
    for name in data.calibrators:
        part = rows[rows["calibrator"] == name].set_index("method")
        shared = part.index.intersection(base.index)
        if name != UNCALIBRATED and len(shared):
            means = ["nll_mean", "ece_mean"]
            lower = (part.loc[shared, means] < base.loc[shared, means]).sum().to_numpy()
            counts.append(
                f"{_code(name)} NLL for {lower[0]} and ECE for {lower[1]} of {len(shared)}"
            )
            everywhere += lower == len(shared)
    if len(counts) > FEW:
        return (
            f"Of {len(counts)} calibrators {everywhere[0]} lower the mean NLL of every method, "
            f"{everywhere[1]} the mean ECE."
        )
    return _listing("Methods for which a calibrator lowers the mean over seeds", counts)


def _class_groups(data: StudyData, group: Group) -> str:
    """Over-confidence of one method by the group of the predicted class."""
    means = group_means(data, group)
    if means.empty:
        return ""
    rows, cases = means[means["method"] == data.reference(group)], []
    for _, part in rows.groupby("calibrator", sort=False):
        gaps = [text.format_metric("accuracy", gap, signed=True) for gap in part["gap_mean"]]
        cases.append(f"{_combined(part.iloc[0])} {', '.join(gaps)}")
    groups = text.listed(list(rows["class_group"].unique()))
    return _listing(
        f"Confidence minus precision of images predicted as {groups} classes, in points", cases
    )


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
    converge.
    """
    setting_of = operator.itemgetter(*Group._fields[:3])
    cases = []
    for entry in data.fit_warnings:
        if setting_of(entry) == group[:3]:
            count = f"{entry['warned']} of {entry['fits']}"
            cases.append(
                f"{_code(entry['calibrator'])} {count} ({entry['first'].removesuffix('.')})"
            )
    return _listing(
        "Warning: fits that stopped at a bound or an end of a grid, or did not converge", cases
    )


def _shift(data: StudyData, group: Group) -> str:
    means = data.shift_means(group)
    means = means[means["severity"] == means["severity"].max()]
    clean = data.test(group, [UNCALIBRATED])
    clean = clean[clean["method"] == data.baseline]
    of_baseline = means[means["method"] == data.baseline]
    bare = of_baseline[of_baseline["calibrator"] == UNCALIBRATED]
    if bare.empty or clean.empty or bare["severity"].iloc[0] < 1:
        return ""
    before, after = clean.iloc[0], bare.iloc[0]
    parts = [
        f"{label} from {text.format_metric(metric, before[f'{metric}_mean'])} to "
        f"{format_with_unit(metric, after[f'{metric}_mean'])}"
        for metric, label in (("accuracy", "accuracy goes"), ("nll", "NLL"), ("ece", "ECE"))
    ]
    calibrated = of_baseline[of_baseline["calibrator"] != UNCALIBRATED]
    if len(calibrated) > FEW:
        calibrated = calibrated.sort_values("ece_mean").iloc[[0, -1]]
    others = [
        f"{format_with_unit('ece', row['ece_mean'])} with {_code(row['calibrator'])}"
        for _, row in calibrated.iterrows()
    ]
    span = " to " if len(of_baseline) > FEW + 1 else ", "
    with_calibrators = f" (ECE {span.join(others)})" if others else ""
    condition = f"Under corruption of severity {after['severity']}"
    said = f"{condition}, {_code(data.baseline)}: {', '.join(parts)}{with_calibrators}."
    of_val = means[means["fit_on"] == "val"]
    eces = of_val.pivot(index="method", columns="calibrator", values="ece_mean")
    if ONE_TEMPERATURE not in eces:
        return said
    eces = eces[[UNCALIBRATED, ONE_TEMPERATURE]].dropna()
    if len(eces) < 2:
        return said
    lower = int((eces[ONE_TEMPERATURE] < eces[UNCALIBRATED]).sum())
    return (
        f"{said} There {_code(ONE_TEMPERATURE)}, fitted on clean images, lowers the mean ECE of "
        f"{lower} of {len(eces)} methods and raises that of the others."
    )


def _ood(data: StudyData, group: Group) -> str:
    rows = data.ood(group)
    tests = data.compared(data.tidy(group, "ood", [UNCALIBRATED]))
    tests = tests[(tests["metric"] == "auroc") & (tests["verdict"] != verdicts.NO_VERDICT)]
    parts = []
    chosen = (rows["calibrator"] == UNCALIBRATED) & ~rows["shift"].isin(OOD_GROUPS)
    for name, part in rows[chosen].groupby("shift"):
        best = part.loc[part["auroc_mean"].idxmax()]
        auroc, fpr95 = text.means(best, "auroc", "fpr95")
        numbers = f"AUROC {auroc}, FPR95 {fpr95}"
        others = tests.loc[tests["shift"] == name, "verdict"]
        if len(others):
            found = int(others.isin(verdicts.FOUND).sum())
            numbers += (
                f"; {found} of {len(others)} differences of AUROC from {_code(data.baseline)} are "
                "significant"
            )
        aurocs = part.set_index("method").filter(map("{}_mean".format, SCORED_BY["AUROC"])).stack()
        method, column = aurocs.idxmax()
        score = text.name(column.removesuffix("_mean"))
        highest = format_with_unit("auroc", aurocs.max())
        parts.append(
            f"{_code(name)} is detected best by {_code(best['method'])} ({numbers}); highest of "
            f"all scores: {score} of {_code(method)}, {highest}"
        )
    return _listing("Out of distribution, uncalibrated, by the largest probability", parts)
