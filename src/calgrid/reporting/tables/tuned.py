"""Table of methods that were tuned with an equal budget: what was chosen, what it scores, what tuning brought."""

import math

import pandas as pd

from calgrid.reporting import captions, text
from calgrid.reporting.study import BESIDE_ECE, GROUP, Group, StudyData, wide
from calgrid.reporting.tables._model import Cell, Section, Table, metric_section, present, whole, with_group, words
from calgrid.statistics import as_tuned, choose, summarise
from calgrid.statistics.tuning import listed

KEYS = ["method", "calibrator", "fit_on"]
#: by what chosen and default settings, and methods, are told apart in words
JUDGED = "nll"


def tuned(data: StudyData) -> Table | None:
    """Every tuned method with few calibrators: the seeds' choices by validation rows, scored on the test split."""
    tuning = data.manifest.get("tuning")
    if not tuning:
        return None
    candidates = {name: [tuple(each) for each in found] for name, found in tuning["candidates"].items()}
    choices = choose(data.metrics, candidates, tuning["metric"])
    test = data.metrics[(data.metrics["split"] == "test") & data.metrics["calibrator"].isin(data.few_calibrators())]
    baseline = data.baseline if data.baseline in candidates else next(iter(candidates))
    summary = summarise(as_tuned(test, choices, tuning["protocol"]), baseline, level=data.level)
    defaults = summarise(_defaults(test, candidates, tuning["protocol"]), baseline, level=data.level)
    frames, sections = [], []
    for values in summary[GROUP].drop_duplicates().itertuples(index=False):
        group = Group(*values)
        rows = _rows(data, group, summary, defaults, choices, list(candidates))
        frames.append(with_group(rows, group))
        sections.append(_section(group, rows, baseline))
    caption = _caption(data, tuning, candidates, summary, baseline)
    return Table("tuned", "Tuned with an equal budget", "Methods", caption, pd.concat(frames), sections)


def _defaults(test: pd.DataFrame, candidates: dict[str, list[tuple[str, str]]], protocol: str) -> pd.DataFrame:
    """Rows of the first candidate of each method."""
    rows = listed(test, {name: each[:1] for name, each in candidates.items()})
    return rows.assign(method=rows["tuned"], protocol=protocol)[list(test.columns)]


def _rows(
    data: StudyData,
    group: Group,
    summary: pd.DataFrame,
    defaults: pd.DataFrame,
    choices: pd.DataFrame,
    methods: list[str],
) -> pd.DataFrame:
    """Wide rows of a group with what was chosen, and differences to the default and to the baseline."""
    mine = data.select(summary, group)
    rows = wide(mine, KEYS)
    judged = mine[mine["metric"] == JUDGED].set_index(KEYS)
    before = data.select(defaults, group)
    before = before[before["metric"] == JUDGED].set_index(KEYS)["mean"]
    rows = rows.join((judged["mean"] - before).rename("nll_to_default"), on=KEYS)
    rows = rows.join(judged[["diff_vs_baseline", "p_holm"]].add_prefix("nll_"), on=KEYS)
    here = choices[(choices[["dataset", "backbone", "checkpoint"]] == list(group[1:])).all(axis=1)]
    named = here.assign(name=_names(here, group.protocol)).groupby("tuned")["name"].agg(_counted)
    return data.in_order(rows.assign(chosen=rows["method"].map(named)), methods)


def _names(choices: pd.DataFrame, protocol: str) -> pd.Series:
    elsewhere = choices["protocol"] != protocol
    return choices["method"].where(~elsewhere, choices["method"] + " (" + choices["protocol"] + ")")


def _counted(names: pd.Series) -> str:
    """``ls_005 x 2, ls_02``: how many seeds chose what, most first."""
    counts = names.value_counts(sort=True)
    return ", ".join(name if count == 1 else f"{name} × {count}" for name, count in counts.items())


def _section(group: Group, rows: pd.DataFrame, baseline: str) -> Section:
    lead = {
        "Method": lambda row: words(row["method"]),
        "Calibrator": lambda row: words(row["calibrator"]),
        "Seeds": lambda row: whole(row["n_seeds"]),
        "Chosen": lambda row: words(row["chosen"]),
        "Δ NLL to default": lambda row: Cell(text.number(JUDGED, row["nll_to_default"], signed=True)),
        f"Δ NLL to {baseline} (Holm p)": lambda row: (
            words(text.NOTHING) if row["method"] == baseline else _against_baseline(row)
        ),
    }
    return metric_section(
        f"{group.dataset}, {group.backbone}, {group.checkpoint} checkpoint",
        rows,
        present(rows, BESIDE_ECE),
        lead,
        within="calibrator",
    )


def _against_baseline(row: pd.Series) -> Cell:
    p_value = row["nll_p_holm"]
    said = "" if math.isnan(p_value) else f"({text.p_value(p_value)})"
    return Cell(text.number(JUDGED, row["nll_diff_vs_baseline"], signed=True), said)


def _caption(
    data: StudyData,
    tuning: dict[str, str],
    candidates: dict[str, list[tuple[str, str]]],
    summary: pd.DataFrame,
    baseline: str,
) -> str:
    budget = len(next(iter(candidates.values())))
    return (
        f"Each method was tried with {text.count(budget, 'setting')}; each seed chose among them by the "
        f"{text.name(tuning['metric'])} of its uncalibrated network on validation rows. Numbers are of the chosen "
        f"settings on the {captions.test_split(data)}, which took no part in the choice; {captions.seeds(summary)}. "
        f"{captions.spread(data, summary)} The default is the first setting of each method: a difference below 0 is "
        f"what tuning brought. p is that of the paired t-test over seeds against {baseline}, after Holm's correction "
        f"over methods. Bold: best of each calibrator and column among those that keep accuracy. {captions.NULL}"
    )
