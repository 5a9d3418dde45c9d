"""Claims of papers, checked on the runs of a study."""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from calgrid.reporting import text
from calgrid.reporting.papers.filled_tables import FITS, NOWHERE, Filled
from calgrid.reporting.papers.marks import COORDINATES, lower_is_better, shown
from calgrid.reporting.study import StudyData
from calgrid.reporting.table import Cell, Section, Table, words
from calgrid.statistics import claim_tests, claim_verdict, fitted_claim_tests
from calgrid.statistics.claim_tests import OPEN, ClaimVerdict
from calgrid.statistics.table_cells import SECTION

HEADER = ("Claim", "Verdict", "Holds", "Opposite", "Open", "With runs", "Seeds to tell", "In print")
Papers = Sequence[tuple[Mapping[str, Any], Sequence[Filled]]]


def claims_table(data: StudyData, papers: Papers) -> Table | None:
    """Table of all claims of the papers; None where there are none.

    Parameters
    ----------
    data : the study.
    papers : entries of the manifest, each with its filled tables.
    """
    frames: list[pd.DataFrame] = []
    sections: list[Section] = []
    for paper, tables in papers:
        if not paper["claims"]:
            continue
        by_id = {table.spec["id"]: table for table in tables}
        checked = [_Checked(claim, by_id[claim["table"]], data.level) for claim in paper["claims"]]
        frames += [each.frame.assign(paper=paper["name"]) for each in checked]
        # a claim stands only where it has a test: runs of one protocol may be about other tables than those of another
        for place in dict.fromkeys(place for each in checked for place in each.places):
            where = f"protocol {place[0]}, {place[1]} checkpoint"
            rows = [each.row(place) for each in checked if place in each.places]
            sections.append(Section(f"{paper['name']}: {where}", HEADER, rows))
        if rows := [each.row(NOWHERE) for each in checked if not each.places]:
            sections.append(Section(f"{paper['name']}: no two runs of ours to compare", HEADER, rows))
    if not sections:
        return None
    frame = pd.concat(frames, ignore_index=True)
    first = ["paper", "claim", "metric", *SECTION]
    return Table(
        "claims",
        "Claims of papers",
        "Published numbers",
        _caption(data.level),
        frame[[*first, *(name for name in frame if name not in first)]],
        sections,
    )


def _caption(level: float) -> str:
    return (
        "What the papers' tables are there to show, in words of our own, each under the protocols and checkpoints "
        "whose runs can be compared in its cells. In each cell that a claim is about, ours is "
        "compared with its rivals (where the claim says lowest or best, all rows or columns that it is said of) by "
        "two-sided paired t-tests over the seeds "
        f"that both have, corrected by Holm over all pairs of the claim, at level {1 - level:.2g}. Claims about "
        "calibrators that a paper fits several times to one network are tested on resamples of the test images that "
        "all calibrators share, with the spread over seeds of the calibrator added; where a part of each corruption "
        "fits, by the corrected resampled t-test of Nadeau and Bengio over the random splits. Such a verdict is about "
        "these networks and says nothing of another training or of other images to fit on. Confirmed: it holds "
        "in as many cells as claimed. Not confirmed: so many cells show the opposite that it cannot hold. Cannot tell: "
        "neither, for want of runs or of seeds. Seeds to tell: what the open tests need for a power of 80 % if "
        "differences and their spread over seeds are what they look like now, or what else is wanting. In print: cells "
        "in which the printed numbers hold, of those that are not suspect. Claims about ECE and the like are about "
        "these numbers as papers define them, bias included; which model is better calibrated they do not say."
    )


class _Checked:
    """A claim with the tests of its pairs."""

    def __init__(self, claim: Mapping[str, Any], table: Filled, level: float) -> None:
        self.claim, self.table = claim, table
        self.pairs = _pairs(claim, table)
        self.of_fits = table.spec["spread"] == FITS
        pairs, how = self.pairs[_TESTED], {"margin": claim["margin"], "level": level}
        if self.of_fits:
            self.tests = fitted_claim_tests(table.runs, pairs, table.draws, table.ratios, **how)
        else:
            self.tests = claim_tests(table.runs, pairs, **how)

    @functools.cached_property
    def places(self) -> list[tuple[str, str]]:
        """Protocols and checkpoints that have a test."""
        return [tuple(place) for place in self.tests[list(SECTION)].drop_duplicates().itertuples(index=False)]

    @property
    def frame(self) -> pd.DataFrame:
        """One row a pair that could be tested, with the coordinates of its cell and the row and column of its rival."""
        cells = self.pairs.drop(columns=["lower_is_better"])
        tests = self.tests.drop(columns=["setting", "lower_is_better", "n_rivals"])
        found = tests.merge(cells, on=["cell", "rival"])
        return found.assign(claim=self.claim["id"], margin=self.claim["margin"]).drop(columns=["setting", "n_rivals"])

    def row(self, place: tuple[str, str]) -> list[Cell]:
        """Line of the claim for a protocol and checkpoint."""
        tests = self.tests[(self.tests["protocol"] == place[0]) & (self.tests["checkpoint"] == place[1])]
        settings = len(self.claim["settings"])
        found = claim_verdict(tests, settings, self.claim["at_least"])
        undecided = settings - found["confirmed"] - found["refuted"]
        return [
            words(self.claim["text"]),
            Cell(found["verdict"], bold=found["verdict"] != OPEN),
            *(Cell(str(count), sort=count) for count in (found["confirmed"], found["refuted"])),
            Cell(str(undecided), sort=undecided),
            Cell(f"{found['present']} of {settings}", sort=found["present"]),
            self._wanted(found, tests),
            words(self._printed()),
        ]

    def _wanted(self, found: ClaimVerdict, tests: pd.DataFrame) -> Cell:
        """What a verdict would take: seeds, or for calibrators of one network what their tests lack."""
        settings = len(self.claim["settings"])
        if not self.of_fits or found["verdict"] != OPEN or found["present"] == 0:
            return _seeds(found, settings)
        lacking = [*(["runs"] if found["present"] < settings else [])]
        if tests["p_value"].isna().any():
            lacking.append("resamples of the test images (statistics.paired_resamples)")
        return Cell(f"{' and '.join(lacking)} are missing" if lacking else "more test images")

    def _printed(self) -> str:
        """In how many cells the printed numbers hold, by the digits printed."""
        known = self.pairs[self.pairs["printed"].notna()]
        holds = known.groupby("setting")["printed"].agg(lambda found: bool(found.all()))
        return f"{int(holds.sum())} of {len(holds)}"


_TESTED = ["setting", "cell", "rival", "lower_is_better", "n_rivals"]


def _seeds(found: ClaimVerdict, n_settings: int) -> Cell:
    if found["verdict"] != OPEN:
        return Cell(text.NOTHING)
    if found["present"] == 0:
        return Cell("runs are missing")
    needed = found["seeds_needed"]
    more = "" if found["present"] == n_settings else ", and runs are missing"
    if math.isnan(needed):
        return Cell(f"at least 2{more}")
    return Cell(("more than 10,000" if math.isinf(needed) else f"{needed:,.0f}") + more, sort=needed)


def _pairs(claim: Mapping[str, Any], table: Filled) -> pd.DataFrame:
    """Pairs of cells of a claim, with the coordinates of the first and whether printed numbers hold."""
    spec, frame = table.spec, table.frame
    size = len(spec["rows"]) * len(spec["columns"])
    cells = frame.iloc[:size].set_index(frame["row"][:size] * len(spec["columns"]) + frame["column"][:size])
    rows = []
    for number, setting in enumerate(claim["settings"]):
        mine = cells.loc[setting["cell"]]
        lower = lower_is_better(mine["metric"])
        for rival in setting["rivals"]:
            other = cells.loc[rival]
            rows.append(
                {
                    "setting": number,
                    "cell": setting["cell"],
                    "rival": rival,
                    "lower_is_better": lower,
                    "n_rivals": len(setting["rivals"]),
                    **{name: mine[name] for name in COORDINATES},
                    "rival_method": other["method"],
                    "rival_stage": other["stage"],
                    "rival_calibrator": other["calibrator"],
                    "printed": _holds(spec, mine, other, claim["margin"]),
                }
            )
    return pd.DataFrame(rows)


def _holds(spec: Mapping[str, Any], mine: pd.Series, rival: pd.Series, margin: float) -> bool | None:
    """Do printed numbers hold, by the digits printed? None where one is missing or suspect."""
    values = [cell["published"] for cell in (mine, rival)]
    if any(math.isnan(value) for value in values) or mine["suspect"] or rival["suspect"]:
        return None
    sign = -1 if lower_is_better(mine["metric"]) else 1
    gain = sign * (shown(spec, mine["metric"], values[0]) - shown(spec, mine["metric"], values[1]))
    return gain > -shown(spec, mine["metric"], margin) if margin else gain > 0
