"""Claims of papers, checked on the runs of a study."""

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import pandas as pd

from calgrid.papers.cells import NOWHERE, SECTION, FilledTable, lower_is_better
from calgrid.papers.declared import COORDINATES, Case, Claim, Paper, PaperTable
from calgrid.papers.run_tests import (
    CONFIRMED,
    OPEN,
    REFUTED,
    ClaimVerdict,
    claim_tests,
    claim_verdict,
)
from calgrid.report import text
from calgrid.report.study import StudyData
from calgrid.report.table import Cell, Section, Table, words
from calgrid.statistics.verdicts import decided_by

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
            for place in checked.places or [NOWHERE]:
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
    def places(self) -> list[tuple[str, str]]:
        """Protocols and checkpoints that have a test."""
        places = self.tests[list(SECTION)].drop_duplicates()
        return list(places.itertuples(index=False, name=None))

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
        """What a verdict needs: seeds, or what else is missing."""
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
        """Why seeds alone do not give a verdict; empty if they may. For calibrators fitted several
        times to one network they never do.
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
