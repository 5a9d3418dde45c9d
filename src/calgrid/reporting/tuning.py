"""What a study found of methods that were tuned with an equal budget: for its table and its findings."""

from dataclasses import dataclass

import pandas as pd

from calgrid.reporting.study import StudyData
from calgrid.statistics import as_tuned, choose, summarise
from calgrid.statistics.tuning import listed


@dataclass(frozen=True)
class Tuned:
    """Choices of all seeds and what they score on the test split.

    Attributes
    ----------
    protocol : under which tuned methods are compared. metric : by which seeds choose. budget : settings of each method.
    baseline : tuned method that the others are tested against. methods : all of them, in the order of the study.
    choices : see :func:`calgrid.statistics.choose`.
    summary, defaults : summaries (:func:`calgrid.statistics.summarise`) of the chosen and of the first settings.
    """

    protocol: str
    metric: str
    budget: int
    baseline: str
    methods: list[str]
    choices: pd.DataFrame
    summary: pd.DataFrame
    defaults: pd.DataFrame


def read_tuned(data: StudyData) -> Tuned | None:
    """Choose and summarise, with few calibrators; None where the study tunes nothing."""
    tuning = data.manifest.get("tuning")
    if not tuning:
        return None
    protocol = tuning["protocol"]
    candidates = {name: [tuple(each) for each in found] for name, found in tuning["candidates"].items()}
    choices = choose(data.metrics, candidates, tuning["metric"])
    test = data.metrics[(data.metrics["split"] == "test") & data.metrics["calibrator"].isin(data.few_calibrators())]
    first = listed(test, {name: each[:1] for name, each in candidates.items()})
    defaults = first.assign(method=first["tuned"], protocol=protocol)[list(test.columns)]
    baseline = data.baseline if data.baseline in candidates else next(iter(candidates))
    return Tuned(
        protocol,
        tuning["metric"],
        len(candidates[baseline]),
        baseline,
        list(candidates),
        choices,
        summarise(as_tuned(test, choices, protocol), baseline, level=data.level),
        summarise(defaults, baseline, level=data.level),
    )
