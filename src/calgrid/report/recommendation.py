"""What to use, and what calibration makes better or worse: sentences from the table of tests; the
report sets `names` in backticks as code.
"""

import pandas as pd

from calgrid.report import text
from calgrid.report.recipes import Recipes, best_of_all, best_of_methods
from calgrid.report.study import PREFERRED, SEES_VALIDATION, UNCALIBRATED, Group, StudyData
from calgrid.statistics import verdicts

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


def recommendation(data: StudyData, group: Group) -> list[str]:
    """What to use in a group and why, and what calibration makes worse; nothing without a choice.

    The simplest recipe is recommended unless the one with the lowest NLL is significantly better.
    """
    found, said = best_of_all(data, group), []
    if found is not None and not found.tested:
        (nll,) = text.means(found.best, "nll")
        said.append(
            f"{combined(data, found.best)} has the lowest NLL, {nll}; methods cannot be tested "
            "against each other: a test needs two common seeds or more."
        )
        found = best_of_methods(data, group)[found.best["method"]]
    if found is not None and found.tested and len(found.others):
        said.append(_choice(data, found))
    said.append(calibration(data, group, verdicts.WORSE))
    return [marked(data, sentence) for sentence in said if sentence]


def _choice(data: StudyData, found: Recipes) -> str:
    """Which recipe to use, and the evidence."""
    best, others, tied = found.best, found.others, found.tied
    reference = data.baseline
    if reference not in {best["method"], *others["method"]}:  # it is absent or not ranked
        reference = best["method"]
    simple = others[
        (others["method"] == reference) & others["calibrator"].isin([UNCALIBRATED, PREFERRED])
    ].sort_values("calibrator", key=lambda names: names != UNCALIBRATED)
    enough = simple[simple.index.isin(tied.index)]
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
    """By how much the NLL of a recipe is above the lowest."""
    return text.difference("nll", test["difference"], test["ci_low"], test["ci_high"])


def combined(data: StudyData, row: pd.Series) -> str:
    """Recipe in words; of a study with one method the calibrator alone."""
    method, calibrator = code(row["method"]), code(row["calibrator"])
    if len(data.methods) == 1:
        return "no calibration" if row["calibrator"] == UNCALIBRATED else calibrator
    if row["calibrator"] == UNCALIBRATED:
        return f"{method} without calibration"
    return f"{method} with {calibrator}"


def calibration(data: StudyData, group: Group, verdict: str) -> str:
    """On which methods calibrators have a verdict against none in NLL or calibration error."""
    tests = data.select(data.clean_tests, group)
    same = (tests["method"] == tests["against"]) & (tests["against_calibrator"] == UNCALIBRATED)
    said = []
    for metric, shown in SAID.items():
        rows = data.in_order(tests[same & (tests["metric"] == metric)], data.methods)
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
