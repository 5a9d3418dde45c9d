"""Table of methods that were tuned with an equal budget: chosen candidates, their scores, gain over
the default.
"""

import functools
import math
from dataclasses import dataclass, replace

import pandas as pd

from calgrid.report import captions, text
from calgrid.report.study import BESIDE_ECE, GROUP, Group, StudyData, wide
from calgrid.report.table import (
    Cell,
    Section,
    Table,
    calibrated_columns,
    grouped,
    metric_section,
    words,
)
from calgrid.statistics import as_tuned, choose
from calgrid.statistics.choices import listed
from calgrid.statistics.summary import summarise_study
from calgrid.storage.schema import METRICS, RESAMPLES

KEYS = ["method", "calibrator", "fit_on"]
#: metric of the differences to the default and to the baseline
JUDGED = "nll"


@dataclass(frozen=True)
class Tuned:
    """Choices of all seeds and their scores on the test split.

    Attributes
    ----------
    metric : metric of the choice. budget : number of candidates per method.
    baseline : tuned method that the others are tested against. methods : all tuned methods, in the
        order of the study.
    choices : see :func:`calgrid.statistics.choose`.
    summary, defaults : summaries (:func:`calgrid.statistics.summarise`) of the chosen and of the
        first candidates.
    """

    metric: str
    budget: int
    baseline: str
    methods: list[str]
    choices: pd.DataFrame
    summary: pd.DataFrame
    defaults: pd.DataFrame


@functools.lru_cache(maxsize=1)
def read_tuned(data: StudyData) -> Tuned | None:
    """Choose and summarise, with few calibrators; None if the study tunes nothing."""
    tuning = data.manifest["configuration"].get("tuning")
    if not tuning:
        return None
    protocol = tuning["protocol"]
    candidates = {}
    for name, those in tuning["methods"].items():
        candidates[name] = [(each["protocol"], each["method"]) for each in those]
    metric = tuning["metric"]
    choices = choose(data.rows(METRICS, split="val", metric=metric), candidates, metric)
    test = data.rows(METRICS, split="test")
    test = test[test["calibrator"].isin(data.few_calibrators())]
    first = listed(test, {name: each[:1] for name, each in candidates.items()})
    defaults = first.assign(method=first["tuned"], protocol=protocol)[list(test.columns)]
    baseline = data.baseline if data.baseline in candidates else next(iter(candidates))
    chosen = as_tuned(test, choices, protocol)
    resamples = as_tuned(data.rows(RESAMPLES, split="test"), choices, protocol)
    asked = replace(data.asked, baseline=baseline, comparisons=None)
    summary, _ = summarise_study(chosen, asked, resamples=resamples, priors=data.priors)
    return Tuned(
        metric,
        budget=len(candidates[baseline]),
        baseline=baseline,
        methods=list(candidates),
        choices=choices,
        summary=summary,
        defaults=summarise_study(defaults, asked)[0],
    )


def tuned(data: StudyData) -> Table | None:
    """Every tuned method with few calibrators: candidates chosen by each seed on val, scored on the
    test split.
    """
    found = read_tuned(data)
    if found is None:
        return None
    lead = {
        **calibrated_columns(data),
        "Chosen": lambda row: words(row["chosen"]),
        "Δ NLL to default": lambda row: Cell(
            text.format_metric(JUDGED, row["nll_to_default"], signed=True)
        ),
        f"Δ NLL to {found.baseline} (verdict; Holm p)": lambda row: (
            words(text.NOTHING) if row["method"] == found.baseline else _against_baseline(row)
        ),
    }

    def sections(group: Group, rows: pd.DataFrame) -> list[Section]:
        heading = f"{group.dataset}, {group.backbone}, {group.checkpoint} checkpoint"
        return [metric_section(heading, rows, BESIDE_ECE, lead, within="calibrator")]

    return grouped(
        "tuned",
        "Tuned with an equal budget",
        "Methods",
        map(Group._make, found.summary[GROUP].drop_duplicates().itertuples(index=False)),
        lambda group: _rows(data, group, found),
        sections,
        lambda _: (
            f"Each method was tried with {text.count(found.budget, 'candidate')}; each seed chose "
            f"among them by the {text.name(found.metric)} of its uncalibrated network on "
            f"validation rows. Shown are the chosen candidates on the {captions.test_split(data)}, "
            f"which was not used for the choice; {captions.seeds(found.summary)}. "
            f"{captions.spread(data, found.summary)} The default is the first candidate of each "
            "method: a difference below 0 is an improvement by tuning. "
            f"Verdicts and p-values are over seeds and test images against {found.baseline}, "
            "after Holm's correction over methods. Bold: best of each calibrator and column among "
            f"those that keep the best accuracy. {captions.NULL}"
        ),
    )


def _rows(data: StudyData, group: Group, found: Tuned) -> pd.DataFrame:
    """Wide rows of a group with the chosen candidates, and differences to the default and to the
    baseline.
    """
    mine = data.select(found.summary, group)
    rows = wide(mine, KEYS)
    judged = mine[mine["metric"] == JUDGED].set_index(KEYS)
    before = data.select(found.defaults, group)
    before = before[before["metric"] == JUDGED].set_index(KEYS)["mean"]
    rows = rows.join((judged["mean"] - before).rename("nll_to_default"), on=KEYS)
    tested = judged[["diff_vs_baseline", "p_holm", "detectable", "verdict"]].add_prefix("nll_")
    rows = rows.join(tested, on=KEYS)
    choices = found.choices
    here = choices[(choices[["dataset", "backbone", "checkpoint"]] == list(group[1:])).all(axis=1)]
    names = here["method"].where(
        here["protocol"] == group.protocol, here["method"] + " (" + here["protocol"] + ")"
    )
    named = here.assign(name=names).groupby("tuned")["name"].agg(_counted)
    return data.in_order(rows.assign(chosen=rows["method"].map(named)), found.methods)


def _counted(names: pd.Series) -> str:
    """Chosen candidates with their number of seeds, most frequent first: ``ls_005 × 2, ls_02``."""
    counts = names.value_counts(sort=True)
    return ", ".join(name if count == 1 else f"{name} × {count}" for name, count in counts.items())


def _against_baseline(row: pd.Series) -> Cell:
    p_value = row["nll_p_holm"]
    verdict = text.verdict(row["nll_verdict"], JUDGED, float(row["nll_detectable"]))
    said = "" if math.isnan(p_value) else f"({verdict}; {text.p_value(p_value)})"
    return Cell(text.format_metric(JUDGED, row["nll_diff_vs_baseline"], signed=True), said)
