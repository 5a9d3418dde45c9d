"""Recommendations, effects of calibration, and other findings, in sentences; the report sets
`names` in backticks as code.

Differences and their verdicts come from the table of tests.
"""

import functools
import operator
import re
from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from calgrid.calibrators.base import WORSE
from calgrid.metrics.intervals import FEW_ROWS
from calgrid.report import text
from calgrid.report.recipes import Recipes, best_of_all, best_of_methods
from calgrid.report.study import (
    PREFERRED,
    SEES_VALIDATION,
    UNCALIBRATED,
    Group,
    StudyData,
    among,
)
from calgrid.report.tables.tuned import read_tuned
from calgrid.report.text import format_with_unit
from calgrid.statistics import verdicts
from calgrid.storage.records import OOD_GROUPS
from calgrid.storage.schema import CLASSES

#: largest number of names that are listed one by one
FEW = 6
#: metric with a verdict -> metric whose values are said
SAID = {"nll": "nll", "squared_ce": "ece_debiased"}
#: verdict on a calibrator against none -> begin of its sentence
CALIBRATION = {
    verdicts.WORSE: "Calibration worsens",
    verdicts.BETTER: "Calibration improves",
    verdicts.TIE: "Against no calibration, no difference was found in",
    verdicts.EQUIVALENT: "Equivalent to no calibration in",
}
#: verdicts on calibrators that the recommendation does not say
MILD = (verdicts.BETTER, verdicts.TIE, verdicts.EQUIVALENT)
#: part of the NLL -> verdict -> its meaning; the last part with a verdict counts
PARTS = {
    "nll_calibration": {
        verdicts.BETTER: ("gain", "only what one temperature would give"),
        verdicts.WORSE: ("lose", "only what one temperature would give back"),
    },
    "nll_refinement": {
        verdicts.BETTER: ("gain", "what no temperature gives"),
        verdicts.WORSE: ("lose", "what no temperature gives back"),
    },
}
NUMBER = re.compile(r"\d+(?:\.\d+)?")
ECES = ("ece_debiased", "ece", "ece_null")
WORDS = {"accuracy": "accuracy", "nll": "NLL", "brier": "Brier score"}


def recommendation(data: StudyData, group: Group) -> list[str]:
    """Recommend a recipe for a group, and name metrics made worse by calibration; nothing without a
    choice.

    The simplest recipe is recommended unless the one with the lowest NLL is significantly better,
    or one temperature is, which then belongs to it.
    """
    found, said = best_of_all(data, group), []
    if found is not None and not found.tested:
        (nll,) = text.means(found.best, "nll")
        said.append(
            f"{combined(data, found.best)} has the lowest NLL, {nll}, but cannot be tested against "
            "other methods: a test needs two common seeds or more."
        )
        found = best_of_methods(data, group)[found.best["method"]]
    if found is not None and found.tested and len(found.others):
        said.append(_choice(data, group, found))
    said.append(calibration(data, group, verdicts.WORSE))
    return [marked(data, sentence) for sentence in said if sentence]


def _choice(data: StudyData, group: Group, found: Recipes) -> str:
    """Recommended recipe, with the evidence."""
    best, others, tied = found.best, found.others, found.tied
    reference = data.baseline
    if reference not in {best["method"], *others["method"]}:  # it is absent or not ranked
        reference = best["method"]
    simple = others[
        (others["method"] == reference) & others["calibrator"].isin([UNCALIBRATED, PREFERRED])
    ].sort_values("calibrator", key=lambda names: names != UNCALIBRATED)
    enough = simple[simple.index.isin(tied.index)]
    tests = _against_none(data, group, "nll")
    helped = tests[tests["verdict"] == verdicts.BETTER]
    if ((helped["method"] == reference) & (helped["calibrator"] == PREFERRED)).any():
        enough = enough[enough["calibrator"] == PREFERRED]
    if (best["method"], best["calibrator"]) == (reference, UNCALIBRATED) or enough.empty:
        chosen = best
    else:
        chosen = enough.iloc[0]
    nll, accuracy, ece = text.means(chosen, "nll", "accuracy", "ece_debiased")
    simplest = "" if chosen is best else ", the simplest"
    numbers = f"NLL {nll}, accuracy {accuracy}, debiased ECE {ece}"
    said = [f"Use {combined(data, chosen)}{simplest}: {numbers}."]
    if chosen is not best:
        would = ""
        if chosen["verdict"] == verdicts.TIE:
            would = f" ({text.size('nll', chosen['detectable'])} would have been found)"
        said.append(
            f"The lowest NLL is that of {combined(data, best)}: this one is {_higher(chosen)}, but "
            f"no difference was found{would}."
        )
    elif len(simple):
        last = simple.iloc[-1]
        said.append(f"The NLL of {combined(data, last)} is {_higher(last)}.")
    alike = tied.drop(index=chosen.name, errors="ignore")
    if len(alike):
        named = [combined(data, row) for _, row in alike.head(FEW).iterrows()]
        if more := len(alike) - len(named):
            named.append(f"{more} more")
        said.append(
            f"{text.count(len(alike), 'other')} cannot be told apart from the lowest: "
            f"{text.listed(named)}."
        )
    worse = len(others) - len(tied)
    if worse and len(others) > 1:
        count = "All others" if worse == len(others) else text.count(worse, "other")
        said.append(f"{count} {'has' if worse == 1 else 'have'} a worse NLL.")
    return " ".join(said)


def _higher(test: pd.Series) -> str:
    """Difference of the NLL of a recipe from the lowest."""
    return text.difference("nll", test["difference"], test["ci_low"], test["ci_high"])


def combined(data: StudyData, row: pd.Series) -> str:
    """Recipe in words; of a study with one method the calibrator alone."""
    method, calibrator = code(row["method"]), code(row["calibrator"])
    if len(data.methods) == 1:
        return "no calibration" if row["calibrator"] == UNCALIBRATED else calibrator
    if row["calibrator"] == UNCALIBRATED:
        return f"{method} without calibration"
    return f"{method} with {calibrator}"


def _against_none(data: StudyData, group: Group, metric: str) -> pd.DataFrame:
    """Tests of calibrators against none, on the same networks."""
    tests = data.select(data.clean_tests, group)
    same = (tests["method"] == tests["against"]) & (tests["against_calibrator"] == UNCALIBRATED)
    return tests[same & (tests["metric"] == metric)]


def calibration(data: StudyData, group: Group, verdict: str) -> str:
    """Methods on which calibrators have ``verdict`` against none, in NLL or calibration error."""
    said = []
    for metric, shown in SAID.items():
        rows = data.in_order(_against_none(data, group, metric), data.methods)
        found, named = rows[rows["verdict"] == verdict], []
        for calibrator, own in found.groupby("calibrator", sort=False):
            of_all = (rows["calibrator"] == calibrator).sum()
            on, values = f" on {text.listed(list(map(code, own['method'])))}", ""
            if len(own) > FEW:
                on = f" on {len(own)} of {of_all} methods"
            if len(own) == of_all:
                on = ""
            if verdict == verdicts.WORSE and len(own) == 1:
                one = data.test(group)
                one = one[one["method"] == own["method"].item()].set_index("calibrator")
                before, after = one.loc[[UNCALIBRATED, calibrator], f"{shown}_mean"]
                before = text.format_metric(shown, before)
                after = text.format_with_unit(shown, after)
                values = f" ({text.name(shown)} {before} to {after})"
            named.append(f"{code(calibrator)}{on}{values}")
        if named:
            name = "calibration error" if metric == "squared_ce" else text.name(metric)
            said.append(f"the {name} with {text.listed(named)}")
    return f"{CALIBRATION[verdict]} {'; '.join(said)}." if said else ""


def marked(data: StudyData, sentence: str) -> str:
    """Put a dagger after the methods that see validation data during training."""
    for method in data.validation_methods:
        sentence = sentence.replace(code(method), code(method) + SEES_VALIDATION)
    return sentence


def code(name: str) -> str:
    """Name in backticks."""
    return f"`{name}`"


def findings(data: StudyData, group: Group) -> list[str]:
    """Sentences about one group, the most important first; those without data are left out."""
    said, images = [], data.test_samples(group)
    if warning := data.warning(group):
        said.append(f"Warning: on {code(group.dataset)}, {warning}.")
    if images < FEW_ROWS:
        said.append(
            f"Warning: the clean test split has {text.count(images, 'image')}, too few to say how "
            "well a network is calibrated."
        )
    makers: tuple[Callable[[StudyData, Group], str], ...] = (
        _one_class,
        *(functools.partial(calibration, verdict=verdict) for verdict in MILD),
        _parts,
        _tuned,
        _baseline,
        _far_worse,
        _doubtful_fits,
        _shift,
        _ood,
    )
    said += [make(data, group) for make in makers]
    return [marked(data, sentence) for sentence in said if sentence]


def _listing(about: str, cases: list[str]) -> str:
    """Sentence that lists cases; empty without any."""
    return f"{about}: {'; '.join(cases)}." if cases else ""


def _one_class(data: StudyData, group: Group) -> str:
    """Warning about networks that predict one class correctly and no other."""
    rows = data.rows(CLASSES, group, calibrator=UNCALIBRATED)
    rows = rows[rows["count"] > 0]
    right = rows[rows["sensitivity"] > 0].groupby(["method", "seed"], sort=False)
    single = right.filter(lambda classes: len(classes) == 1)
    if single.empty:
        return ""
    cases = [
        f"{code(method)} (seed {text.listed([*map(str, seeds)])})"
        for method, seeds in single.groupby("method", sort=False)["seed"]
    ]
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
    found = read_tuned(data)
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
        f"{text.name(found.metric)} of validation rows: of {len(rows)} methods {code(best)} has "
        f"the lowest NLL, {nll[best]}; against {code(found.baseline)}, {nll[found.baseline]}, "
        f"{survive} of {len(others)} differences are significant over seeds and test images."
    )


def _baseline(data: StudyData, group: Group) -> str:
    rows = data.test(group, [UNCALIBRATED])
    rows = rows if len(rows) == 1 else rows[rows["method"] == data.baseline]
    if rows.empty:
        return ""
    row = rows.iloc[0]
    debiased, plain, null = text.means(row, *ECES)
    over, under = text.means(row, "o_ece", "u_ece")
    beside = ", ".join(map("{} {}".format, WORDS.values(), text.means(row, *WORDS)))
    ends = row[["ece_debiased_ci_low", "ece_debiased_ci_high"]]
    low, high = (text.format_metric("ece_debiased", end) for end in ends)
    interval = "" if low == text.NOTHING else f" ({100 * data.level:g} % interval {low} to {high})"
    return (
        f"{code(row['method'])} has a debiased ECE of {debiased}{interval}, with {beside}. Its "
        f"plain ECE is {plain}: {over} from overconfident bins, {under} from underconfident ones; "
        f"the expected ECE of a perfectly calibrated network with its confidences is {null} on "
        f"{data.test_samples(group):,} images."
    )


def _parts(data: StudyData, group: Group) -> str:
    """Which methods gain no more than one temperature would, by the parts of the NLL."""
    rows = data.select(data.clean_tests, group)
    rows = rows[(rows["against"] == data.baseline) & rows["metric"].isin(PARTS.keys())]
    rows = rows[(rows[["calibrator", "against_calibrator"]] == UNCALIBRATED).all(axis=1)]
    if (rows["verdict"] == verdicts.NO_VERDICT).all():
        return ""
    cases: dict[tuple[str, str], list[str]] = {}
    parts = rows.pivot(index="method", columns="metric", values="verdict")
    for method in among(data.methods, parts.index):
        case = ("show", "no significant difference in either part of it")
        for part, said_of in PARTS.items():
            case = said_of.get(parts.at[method, part], case)
        cases.setdefault(case, []).append(code(method))
    said = []
    for (verb, what), names in cases.items():
        every = "both methods" if len(names) == 2 else f"all {len(names)} methods"
        who = every if len(names) == len(parts) > 1 else text.listed(names)
        said.append(f"{who} {verb}{'s' if len(names) == 1 else ''} {what}")
    return f"In NLL against {code(data.baseline)} before calibration, {'; '.join(said)}."


def _far_worse(data: StudyData, group: Group) -> str:
    """Warning about calibrators that are far worse than no calibration for some method."""
    rows = data.test(group)
    base = rows[rows["calibrator"] == UNCALIBRATED].set_index("method")["nll_mean"]
    worse = rows[rows["nll_mean"] > WORSE * rows["method"].map(base)]
    cases = []
    for _, row in worse.iterrows():
        with_it = text.format_metric("nll", row["nll_mean"])
        without = text.format_metric("nll", base[row["method"]])
        names = f"{code(row['calibrator'])} on {code(row['method'])}"
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
            share = "" if data.is_single else f" {entry['warned']} of {entry['fits']}"
            said = _ranges(entry["texts"], named=not data.is_single)
            cases.append(f"{code(entry['calibrator'])}{share} {said}")
    return _listing(
        "Warning: fits that stopped at a bound or an end of a grid, or did not converge", cases
    )


def _ranges(texts: Mapping[str, Sequence[str]], named: bool) -> str:
    """Merge warnings (text -> runs) that differ only in numbers, with the range of each number, and
    the runs if to be named: ``(4.40 to 13.00 % are at the bound: ce seed 1 and ls seed 2)``.
    """
    alike: dict[str, list[str]] = {}
    for words in texts:
        alike.setdefault(NUMBER.sub("#", words), []).append(words)
    said = []
    for same in alike.values():
        ranged, *parts = NUMBER.split(same[0])
        numbers = zip(*map(NUMBER.findall, same), strict=True)
        for written, word in zip(numbers, parts, strict=True):
            low, high = (end(written, key=float) for end in (min, max))
            ranged += (low if float(low) == float(high) else f"{low} to {high}") + word
        runs = list(dict.fromkeys(run for words in same for run in texts[words]))
        shown = runs if len(runs) <= FEW else [*runs[: FEW - 1], f"{len(runs) - FEW + 1} more"]
        of_runs = f": {text.listed(shown)}" if named else ""
        said.append(f"{ranged.removesuffix('.')}{of_runs}")
    return f"({'; '.join(said)})"


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
        beside = f" (ECE {ece} with {code(calibrator)})"
    condition = f"Under corruption of severity {after['severity']}"
    return f"{condition}, {code(data.baseline)}: {', '.join(parts)}{beside}."


def _ood(data: StudyData, group: Group) -> str:
    """Differences to the baseline in the detection of other sets."""
    tests = data.select(data.tests, group)
    tests = tests[(tests["split"] == "ood") & (tests["metric"] == "auroc")]
    tests = tests[(tests["calibrator"] == UNCALIBRATED) & ~tests["shift"].isin(OOD_GROUPS)]
    parts = []
    for name, rows in tests[tests["verdict"] != verdicts.NO_VERDICT].groupby("shift"):
        of_verdict = data.in_order(rows, data.order(group)).groupby("verdict", sort=False)["method"]
        said = [f"{word} {text.listed(list(map(code, found)))}" for word, found in of_verdict]
        parts.append(f"{code(str(name))}, {', '.join(said)}")
    about = f"Out of distribution, AUROC of uncalibrated methods against {code(data.baseline)}"
    return _listing(about, parts)
