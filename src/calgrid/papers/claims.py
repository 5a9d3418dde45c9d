"""Claims of papers, checked on the runs of a study: tests of cells by the rule of
:mod:`calgrid.statistics.verdicts`, verdicts, and the number of seeds needed for a verdict.

Claims about training use the seeds of training. Claims about calibrators of one network hold for
these networks, with seeds of the calibrator, which are not paired: the variance of a difference is
``s_a^2 / n_a + s_b^2 / n_b``, 0 for one seed. If each of these seeds draws a new split into fitted
and scored samples (``fit_on`` = ``same_shift`` or ``redrawn``), the variance of J differences over
samples is ``s^2 n_scored / n_fit`` with J - 1 degrees of freedom, the corrected resampled t-test of
Nadeau and Bengio (Machine Learning 52, 2003).
"""

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import TypedDict

import numpy as np
import pandas as pd

from calgrid.calibrators.base import DRAWN_SHARE
from calgrid.metrics.intervals import tails_of
from calgrid.papers.cells import NOWHERE, SECTION, FilledTable, lower_is_better
from calgrid.papers.declared import COORDINATES, Case, Claim, Paper, PaperTable
from calgrid.report import text
from calgrid.report.study import StudyData
from calgrid.report.table import Cell, Section, Table, words
from calgrid.statistics.paired import paired_tests, run_draws
from calgrid.statistics.verdicts import (
    BETTER,
    WORSE,
    decided_by,
    judge,
    seed_test,
    seeds_needed,
)

CONFIRMED, REFUTED, OPEN = "confirmed", "not confirmed", "cannot tell"
CELL = (*SECTION, "cell")
#: scored images per fitted image of a random split
SCORED_PER_FITTED = (1 - DRAWN_SHARE) / DRAWN_SHARE
#: columns of a test beside those of its pair
TESTED = (
    *("n_seeds", "std_seed", "std_test", "gain", "p_value", "p_holm", "ci_low", "ci_high"),
    *("detectable", "verdict", "p_seeds", "seeds_needed"),
)
#: metrics that do not depend on test samples
TIMES = ("train_seconds", "runtime_seconds")
HEADER = (
    *("Claim", "Verdict", "Confirmed", "Not confirmed", "Cannot tell"),
    *("With runs", "Seeds to tell", "In print"),
)
VERDICTS = (CONFIRMED, REFUTED, OPEN)
UNCHECKED = ("Claim", "Why it has no verdict")
#: why claims about ranks are open: a rank jumps where two methods are close, so resamples of the
#: test images do not give its variance
NO_RANKS = "no verdict on ranks"
Papers = Sequence[tuple[Paper, Sequence[FilledTable]]]


def claims_table(data: StudyData, papers: Papers) -> Table | None:
    """Table of all claims of the papers; None if there are none.

    Parameters
    ----------
    data : the study.
    papers : papers with their filled tables.
    """
    frames: list[pd.DataFrame] = []
    sections: list[Section] = []
    summary: list[tuple[str, str]] = []
    for paper, tables in papers:
        by_number = {table.declared.number: table for table in tables}
        rows: dict[tuple[str, str], list[list[Cell]]] = defaultdict(list)
        for claim in paper.claims:
            checked = _Checked(claim, by_number[str(claim.table)], data.level)
            frames.append(checked.frame.assign(paper=paper.name))
            # a claim is listed only where it has a test, as runs of different protocols may be
            # about different tables
            tested = checked.tests[list(SECTION)].drop_duplicates()
            for place in [*tested.itertuples(index=False, name=None)] or [NOWHERE]:
                rows[place].append(checked.row(place))
        for place in sorted(rows, key=lambda place: place == NOWHERE):  # without runs last
            where = f"protocol {place[0]}, {place[1]} checkpoint"
            if place == NOWHERE:
                where = "no two runs of ours to compare"
            sections.append(Section(f"{paper.name}: {where}", HEADER, rows[place]))
            counts = Counter(row[1].text for row in rows[place])
            said = text.listed([f"{counts[name]} {name}" for name in VERDICTS if counts[name]])
            summary.append((f"Claims of {paper.name} ({where})", said))
        if paper.unchecked:
            reasons = [list(map(words, each)) for each in paper.unchecked]
            sections.append(Section(f"{paper.name}: without a verdict", UNCHECKED, reasons))
    if not sections:
        return None
    frame = pd.concat([each for each in frames if len(each)] or frames, ignore_index=True)
    first = ["paper", "claim", "metric", *SECTION]
    frame = frame[[*first, *frame.columns.difference(first, sort=False)]]
    caption = (
        "Main claims of the papers' tables, paraphrased, for each protocol and checkpoint with "
        "runs that can be compared. A cell of a claim is confirmed if our result is better than "
        "its rivals, not confirmed if it is worse. The columns count cells. A claim is confirmed "
        "if as many cells are as it says; not confirmed if this has become impossible. Cannot "
        "tell: neither, because runs, seeds or test images are missing. Better and worse are "
        "verdicts by the rule of all verdicts, over seeds and test images, against all rows or "
        "columns in question, with Holm's correction over all pairs of the claim at level "
        f"{1 - data.level:.2g}. Claims about ECE and other errors of the largest "
        "probability are decided by the squared calibration error, which has no bias. Those about "
        "ranks have no verdict: a rank jumps where two methods are close, so that resamples of "
        "test images do not give its variance; the claims about single cells do. Claims about "
        "calibrators that a paper fits several times to one network are about these networks and "
        "these fitting images, with the variance over seeds of the calibrator; if calibrators are "
        "fitted on a part of each corruption, by the corrected resampled t-test of Nadeau and "
        "Bengio over the random splits. Seeds to tell: number of seeds for a power of 80 "
        "% in the open tests, if differences and their standard deviations are as estimated, or "
        "what else is missing. In print: cells in which the published numbers agree with the "
        "claim, of those that are not suspect."
    )
    return Table(
        "claims", "Claims of papers", "Published numbers", caption, frame, sections, summary=summary
    )


class ClaimVerdict(TypedDict):
    """Verdict on a claim: see :func:`claim_verdict`."""

    verdict: str
    present: int
    confirmed: int
    refuted: int
    seeds_needed: float


_TESTED = ["case", "cell", "rival", "metric", "lower_is_better", "n_rivals", "same_method"]


class _Checked:
    """A claim with the tests of its pairs of cells."""

    def __init__(self, claim: Claim, table: FilledTable, level: float) -> None:
        self.claim, self.table = claim, table
        self.cases = claim.cases(table.declared)
        self.pairs = _pairs(self.cases, claim.margin, table)
        self.tests = claim_tests(
            table.runs, self.pairs[_TESTED], table.draws, table.redrawn, claim.margin, level
        )

    @property
    def frame(self) -> pd.DataFrame:
        """One row a pair that could be tested, with the coordinates of its cell and the row and
        column of its rival.
        """
        asked = ["case", "lower_is_better", "n_rivals", "same_method"]
        tests = self.tests.drop(columns=[*asked, "metric"])
        found = tests.merge(self.pairs.drop(columns=asked), on=["cell", "rival"])
        return found.assign(
            claim=self.claim.id,
            margin=self.claim.margin,
            decided_by=decided_by(found["metric"]),
        )

    def row(self, place: tuple[str, str]) -> list[Cell]:
        """Row of the claim for a protocol and checkpoint."""
        tests = self.tests[(self.tests[list(SECTION)] == list(place)).all(axis=1)]
        cases = len(self.cases)
        found = claim_verdict(tests, cases, self.claim.at_least or cases)
        confirmed, refuted, present = found["confirmed"], found["refuted"], found["present"]
        counts = [confirmed, refuted, cases - confirmed - refuted]
        # cells in which the published numbers agree with the claim, by the digits printed
        known = self.pairs[self.pairs["printed"].notna()]
        holds = known.groupby("case")["printed"].agg(lambda agree: bool(agree.all()))
        return [
            words(self.claim.text),
            Cell(found["verdict"], bold=found["verdict"] != OPEN),
            *(Cell(str(count), sort=count) for count in counts),
            Cell(f"{present} of {cases}", sort=present),
            self._wanted(found, tests),
            words(f"{int(holds.sum())} of {len(holds)}"),
        ]

    def _wanted(self, found: ClaimVerdict, tests: pd.DataFrame) -> Cell:
        """Requirements of a verdict: seeds, or other missing inputs."""
        if found["verdict"] != OPEN:
            return Cell(text.NOTHING)
        if reason := self._untold(found["present"], tests):
            return Cell(reason)
        is_partial = found["present"] < len(self.cases)
        needed, more = found["seeds_needed"], ", and runs are missing" if is_partial else ""
        if math.isnan(needed):
            return Cell(f"at least 2{more}")
        said = "more test images" if math.isinf(needed) else f"{needed:,.0f}"
        return Cell(said + more, sort=needed)

    def _untold(self, present: int, tests: pd.DataFrame) -> str:
        """Reason why seeds alone do not give a verdict; empty if they may. For calibrators fitted
        several times to one network they never do.
        """
        metrics = tests["metric"]
        if present == 0:
            return "runs are missing"
        if metrics.isin(list(self.table.declared.ranks)).any():
            return NO_RANKS
        if untested := sorted({*metrics[decided_by(metrics) == ""].map(text.name)}):
            return f"no test of {text.listed(untested)}"
        drawn = self.table.draws["cell"]
        few = tests["std_test"].isna() & tests["cell"].isin(drawn) & tests["rival"].isin(drawn)
        if few.any():
            return text.untested(str(metrics[few].iloc[0]), math.nan)
        lacking = ["runs"] if present < len(self.cases) else []
        if tests["std_test"].isna().any():
            lacking.append("resamples of the test images")
        elif not self.table.declared.of_fits:
            return ""
        return f"{' and '.join(lacking)} are missing" if lacking else "more test images"


def _pairs(cases: Sequence[Case], margin: float, table: FilledTable) -> pd.DataFrame:
    """Pairs of cells of a claim, with the coordinates of the first; ``printed``: do published
    numbers agree?
    """
    declared, rows = table.declared, []
    cells = table.frame.iloc[: len(declared.cells)]  # those in print come first, row by row
    for number, case in enumerate(cases):
        mine = cells.loc[case.cell]
        lower = lower_is_better(mine["metric"])
        for rival in case.rivals:
            other = cells.loc[rival]
            rows.append(
                {
                    "case": number,
                    "cell": case.cell,
                    "rival": rival,
                    "lower_is_better": lower,
                    "n_rivals": len(case.rivals),
                    "same_method": mine["method"] == other["method"]
                    and mine["stage"] == other["stage"],
                    **{name: mine[name] for name in COORDINATES},
                    "rival_method": other["method"],
                    "rival_stage": other["stage"],
                    "rival_calibrator": other["calibrator"],
                    "printed": _holds(declared, mine, other, margin),
                }
            )
    return pd.DataFrame(rows)


def _holds(declared: PaperTable, mine: pd.Series, rival: pd.Series, margin: float) -> bool | None:
    """Do the published numbers agree with the claim, by the digits printed? None if one is missing
    or suspect.
    """
    in_print = functools.partial(declared.shown, mine["metric"])
    gain = in_print(mine["published"]) - in_print(rival["published"])
    if math.isnan(gain) or mine["suspect"] or rival["suspect"]:
        return None
    if lower_is_better(mine["metric"]):
        gain = -gain
    return gain > -in_print(margin) if margin else gain > 0


# tests and verdicts
# --------------------------------------------------------------------------------------------------


def claim_tests(
    runs: pd.DataFrame,
    pairs: pd.DataFrame,
    draws: pd.DataFrame,
    redrawn: Collection[int] | None = None,
    margin: float = 0.0,
    level: float = 0.95,
) -> pd.DataFrame:
    """Test of each cell against each of its rivals.

    Parameters
    ----------
    runs : values of cells in each seed, from :func:`calgrid.papers.cells.cell_runs`, and the
        ``prior`` variance over seeds of each cell, see
        :func:`calgrid.statistics.pairs.study_priors`.
    pairs : columns case, cell, rival, metric, lower_is_better and same_method, one row per
        comparison.
    draws : resamples of ``runs``, with the columns protocol, checkpoint, cell, seed, draws and
        pairs. Cells without resamples get no verdict, except those of times.
    redrawn : for claims about calibrators of one network, cells whose seeds each draw a split; None
        for claims about training.
    margin : 0 for the claim that the cell is better; else the claim is that it is worse by less
        than ``margin``.
    level : 1 - level is the family-wise error of the claim.

    Returns
    -------
    One row for each protocol and checkpoint with both cells of a pair, with the columns of
    ``pairs`` and n_seeds; gain, improvement of the cell over its rival, plus the margin; std_seed,
    std_test, p_value, p_holm, ci_low, ci_high and detectable, see
    :func:`calgrid.statistics.verdicts.judge`; p_seeds, t-test over seeds alone;
    verdict : ``confirmed`` if the cell is better, ``not confirmed`` if worse, else ``cannot tell``;
    seeds_needed : for an open verdict on training, see
        :func:`calgrid.statistics.verdicts.seeds_needed` (at Bonferroni's level).

    Raises
    ------
    ConfigError : ``level`` outside (0, 1).
    """
    tails_of(level)  # refuses one outside (0, 1)
    columns = [*SECTION, *pairs.columns, *TESTED]
    if not pairs[["cell", "rival"]].isin(set(runs["cell"])).all(axis=1).any():
        return pairs.iloc[:0].reindex(columns=columns)
    values = runs.reindex(columns=[*CELL, "seed", "value", "n_samples", "prior"])
    values = values.reset_index(drop=True).astype({"cell": int, "value": "float64"})
    resamples = draws if len(draws) else None
    if redrawn is None:
        tests = _of_training(values, pairs, resamples)
    else:
        tests = _of_fits(values, pairs, resamples, redrawn)
    sign = np.where(tests["lower_is_better"].astype(bool), -1.0, 1.0)
    tests["gain"] = tests["difference"] = sign * tests["difference"] + margin
    tests["std_test"] = tests["std_test"].mask(tests["metric"].isin(TIMES), 0.0)
    section = tests.groupby(list(SECTION)).ngroup()
    # prior variance over seeds of a test, as of the same pair elsewhere in the study
    of_cell = values.drop_duplicates(list(CELL)).set_index(list(CELL))["prior"]
    own, rival = (
        of_cell.reindex(pd.MultiIndex.from_frame(tests[[*SECTION, side]])).to_numpy(float)
        for side in ("cell", "rival")
    )
    prior = pd.Series(own + rival, index=tests.index) / 2
    tests = tests.assign(sign=-1.0, prior=prior.mask(tests["same_method"].astype(bool)))
    tests = judge(tests, section, level, of_runs=redrawn is not None)
    tests["p_seeds"] = seed_test(tests["gain"], tests["std_seed"], tests["n_seeds"])
    told = {BETTER: CONFIRMED, WORSE: REFUTED}
    tests["verdict"] = tests["verdict"].map(told).fillna(OPEN)
    needed = seeds_needed(tests, (1 - level) / max(len(pairs), 1))
    asked = (tests["verdict"] == OPEN) & (redrawn is None)
    tests["seeds_needed"] = np.where(asked, needed, math.nan)
    return tests[columns]


def _of_training(
    values: pd.DataFrame, pairs: pd.DataFrame, resamples: pd.DataFrame | None
) -> pd.DataFrame:
    """Paired differences over common seeds of training."""
    draws = run_draws(values, resamples, (*CELL, "seed"))
    return paired_tests(_rivals(pairs, values, "seed"), [*SECTION, *pairs.columns], values, draws)


def _rivals(pairs: pd.DataFrame, runs: pd.DataFrame, *keys: str) -> pd.DataFrame:
    """Numbers of both runs of each pair of cells, at equal protocol, checkpoint and ``keys``."""
    own = runs[[*CELL, *keys]].assign(run=np.arange(len(runs)))
    rivals = own.rename(columns={"cell": "rival"})
    shared = ["rival", *SECTION, *keys]
    return pairs.merge(own, on="cell").merge(rivals, on=shared, suffixes=("", "_against"))


def _of_fits(
    values: pd.DataFrame,
    pairs: pd.DataFrame,
    resamples: pd.DataFrame | None,
    redrawn: Collection[int],
) -> pd.DataFrame:
    """Differences of calibrators of the same networks."""
    means = values.groupby(list(CELL), as_index=False).agg(
        value=("value", "mean"),
        var=("value", "var"),
        n=("value", "size"),
        n_samples=("n_samples", "min"),
    )
    if resamples is not None:  # means over seeds
        resamples = resamples.drop(columns="seed")
    both = _rivals(pairs, means)
    tests = paired_tests(both, [*SECTION, *pairs.columns], means, run_draws(means, resamples, CELL))
    own, rival = (means.iloc[both[name]].reset_index() for name in ("run", "run_against"))
    n = np.maximum(own["n"], rival["n"])
    error = own["var"].fillna(0) / own["n"] + rival["var"].fillna(0) / rival["n"]
    tests = tests.assign(n_seeds=n, std_seed=np.sqrt(error * n))
    if not redrawn:
        return tests
    split = _of_training(values, pairs, None)
    split = split[split["cell"].isin(redrawn)]
    split = split.assign(
        std_test=math.sqrt(SCORED_PER_FITTED) * split["std_seed"],
        df_test=(split["n_seeds"] - 1).clip(lower=1),
    )
    tests = tests.assign(df_test=math.nan)
    parts = [tests[~tests["cell"].isin(redrawn)], split]
    return pd.concat([part for part in parts if len(part)] or parts[:1], ignore_index=True)


def claim_verdict(tests: pd.DataFrame, n_cases: int, at_least: int) -> ClaimVerdict:
    """Verdict on a claim from the tests of one protocol and checkpoint.

    A case is confirmed if its cell is better than all its rivals, refuted if it is worse than
    one, and open with missing numbers. The claim is confirmed if ``at_least`` cases are, not
    confirmed if that is impossible, else ``cannot tell``.

    Parameters
    ----------
    tests : rows of :func:`claim_tests`, with the column ``n_rivals`` of their case.
    n_cases : number of cases of the claim, with or without numbers.

    Returns
    -------
    verdict; present, confirmed, refuted: numbers of cases; seeds_needed: maximum over open tests
    (inf if no number of seeds is enough, NaN if no open test has both variances).
    """
    marked = tests.assign(won=tests["verdict"] == CONFIRMED, lost=tests["verdict"] == REFUTED)
    cases = marked.groupby("case").agg(
        won=("won", "all"),
        lost=("lost", "any"),
        n=("rival", "count"),
        n_rivals=("n_rivals", "first"),
    )
    complete = cases["n"] == cases["n_rivals"]
    won, lost = int((cases["won"] & complete).sum()), int(cases["lost"].sum())
    verdict = CONFIRMED if won >= at_least else REFUTED if lost > n_cases - at_least else OPEN
    return {
        "verdict": verdict,
        "present": int(complete.sum()),
        "confirmed": won,
        "refuted": lost,
        "seeds_needed": float(tests["seeds_needed"].max()) if verdict == OPEN else math.nan,
    }
