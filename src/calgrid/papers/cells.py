"""Cells of a paper's tables: our result with its interval, the published number, and their
difference.
"""

import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from calgrid.papers.declared import (
    COORDINATES,
    Entry,
    Paper,
    PaperTable,
    papers_of,
    run_method,
)
from calgrid.papers.marks import marks, row_ranks
from calgrid.papers.means import AXES, SECTION, cell_means, cell_runs
from calgrid.report.study import UNCALIBRATED, StudyData, named_calibrators
from calgrid.statistics import printed_numbers
from calgrid.statistics.verdicts import decided_by
from calgrid.storage.schema import (
    DRAWN,
    MEAN_SHIFT,
    METRICS,
    PUBLISHED_PLACE,
    RESAMPLES,
    RUN_KEY,
    SHIFT_MEANS,
)
from calgrid.storage.tables import read_published

NUMBERS = ["ours", "std", "ci_low", "ci_high", "n_seeds", "n_ranked"]
PRINTED = ["published", "published_std", "suspect"]
#: protocol and checkpoint of a table without runs
NOWHERE = ("", "")
#: coordinates of a cell that are columns of the resamples
RESAMPLED = ("dataset", "backbone", "method", "metric")
#: stages of the costs whose seconds are summed to ``train_seconds``
TRAINING = ("first_stage", "train")


class FilledTable(NamedTuple):
    """A table as declared, its rows and columns in print and behind them those of the study, its
    frame, and the values of its cells for each seed.

    ``runs`` has one value per seed, of training or of the calibrator as the table's ``spread``
    says, of the metric that decides about each cell, with ranks for each seed that has all ranked
    cells; ``draws`` has their resamples. If seeds are those of the calibrator, ``redrawn`` has the
    cells fitted on a random part of the scored images; else it is None.
    """

    declared: PaperTable
    rows: Sequence[Entry]
    columns: Sequence[Entry]
    frame: pd.DataFrame
    runs: pd.DataFrame
    draws: pd.DataFrame
    redrawn: Collection[int] | None


def filled_tables(data: StudyData, paper: Paper) -> Iterator[FilledTable]:
    """Tables of a paper, each with its frame: one row per cell, for each protocol and checkpoint
    with results.

    Yields
    ------
    Each table; its frame has the cells of the paper, and behind them those of its own rows and
    columns with a number of ours (``own``): ``row``, ``column``, the coordinates, our results
    (``ours``, ``std``, ``ci_low``, ``ci_high``, ``n_seeds``; ``n_ranked`` is the number of ranked
    rows), ``published``, ``published_std``, ``suspect``, ``difference`` (ours - published), and the
    marks ``ours_mark`` and ``published_mark``. Protocols of one line (key ``lines`` of the
    configuration) share a frame, under the name of the line. Without results, protocol and
    checkpoint are empty, and only published numbers are present.
    """
    printed, names = _printed(paper), _own_names(data, paper)
    laid, places, deciding = [], [], []
    for table in paper.tables:
        rows = [*table.printed_rows, *table.own_rows(names)]
        columns = [*table.printed_columns, *table.own_columns(names)]
        laid.append((table, rows, columns, _cells(table, rows, columns, printed)))
        places.append(_places(table, laid[-1][-1]))
        own = places[-1]["metric"]
        by = decided_by(own)
        # runs of a metric without a test count as runs
        deciding.append(places[-1].assign(metric=by.where(by != "", own)))
    metrics = _metrics(data, pd.concat([*places, *deciding]))
    for (table, rows, columns, cells), needed, decided in zip(laid, places, deciding, strict=True):
        over: Literal["seed", "fit_seed"] = "fit_seed" if table.of_fits else "seed"
        values = cell_runs(metrics, needed, over)
        runs = cell_runs(metrics, decided, over)
        draws = cell_draws(read_resamples(data, decided), decided, over)
        means = cell_means(values, data.level)
        parts = list(means.groupby(list(SECTION))) or [(NOWHERE, means)]
        sections = [_section(table, cells, keys, part) for keys, part in parts]
        frame = _without_empty(pd.concat(sections, ignore_index=True))
        runs = pd.concat([runs, *_rank_runs(table, cells, values)], ignore_index=True)
        redrawn = set(needed.loc[needed["fit_on"].isin(DRAWN), "cell"]) if table.of_fits else None
        yield FilledTable(table, rows, columns, frame, runs, draws, redrawn)


def _printed(paper: Paper) -> pd.DataFrame:
    """Printed numbers of a paper, the first of each cell of a table."""
    numbers = printed_numbers(read_published([paper.published]))
    numbers = numbers.assign(published=numbers["value"], published_std=numbers.get("std", np.nan))
    return numbers.drop_duplicates(["table", *PUBLISHED_PLACE])


def _own_names(data: StudyData, paper: Paper) -> dict[str, list[str]]:
    """Methods and calibrators with results that no table of a paper names, by axis."""
    named: dict[str, set[object]] = {"method": set(), "calibrator": {UNCALIBRATED}}
    for table in paper.tables:
        for cell in table.cells:
            named["calibrator"].add(cell["calibrator"])
            named["method"].update(place["method"] for place in table.places(cell))
    own = {}
    for axis, known in named.items():
        found = data.distinct(METRICS, [axis])[axis].astype(str)
        own[axis] = [name for name in found if name not in known]
    return own


def _cells(
    table: PaperTable, rows: Sequence[Entry], columns: Sequence[Entry], printed: pd.DataFrame
) -> pd.DataFrame:
    """Cells of a table in reading order, those in print first, with the published numbers."""
    found = []
    for (i, row), (j, column) in itertools.product(enumerate(rows), enumerate(columns)):
        cell = table.cell(row, column)
        is_mean, own = len(table.places(cell)) > 1, row.own or column.own
        found.append({"row": i, "column": j, **cell, "is_mean": is_mean, "own": own})
    cells = pd.DataFrame(found).sort_values("own", kind="stable", ignore_index=True)
    place = list(PUBLISHED_PLACE)
    keyed = cells.assign(method=list(map(run_method, cells.to_dict("records"))))[place]
    of_table = printed.loc[printed["table"] == table.number, [*place, *PRINTED]]
    beside = keyed.merge(of_table, on=place, how="left").fillna({"suspect": ""})
    order = ["row", "column", *COORDINATES, "is_mean", "own"]
    return cells[order].assign(**beside[PRINTED])


def _without_empty(frame: pd.DataFrame) -> pd.DataFrame:
    """The cells of the paper, and those of further rows and columns that have a number."""
    kept = pd.Series(True, index=frame.index)
    for side in ("row", "column"):
        of_paper = frame.loc[~frame["own"], side]
        filled = frame.loc[frame["ours"].notna(), side]
        kept &= frame[side].isin({*of_paper, *filled})
    return frame[kept].reset_index(drop=True)


def printed_cells(data: StudyData) -> pd.DataFrame:
    """Published numbers in the tables of the papers that a study names, with the study's names of
    methods.

    Returns one row per cell with a number that is not suspect: ``COORDINATES`` (the method with its
    second stage, the calibrator with what it was fitted on unless val), ``published`` and
    ``published_std``, in the unit of the metric.
    """
    names = [*COORDINATES, "published", "published_std"]
    parts = [pd.DataFrame(columns=[*names, "suspect"])]
    for paper in papers_of(data.manifest):
        printed = _printed(paper)
        for table in paper.tables:
            parts.append(_cells(table, table.printed_rows, table.printed_columns, printed))
    cells = pd.concat(parts[1:] or parts, ignore_index=True)
    cells = cells[cells["published"].notna() & (cells["suspect"] == "")]
    methods = list(map(run_method, cells.to_dict("records")))
    return named_calibrators(cells.assign(method=methods))[names]


def _places(table: PaperTable, cells: pd.DataFrame) -> pd.DataFrame:
    """Places that each cell averages over; without ranks, which are computed from other cells."""
    measured, rows = cells.loc[~cells["metric"].isin(list(table.ranks)), list(COORDINATES)], []
    for number, cell in measured.to_dict("index").items():
        rows += [{**place, "cell": number} for place in table.places(cell)]
    return named_calibrators(pd.DataFrame(rows))[["cell", *AXES]]


def _metrics(data: StudyData, places: pd.DataFrame) -> pd.DataFrame:
    """Tidy metrics of the places, with means over corruptions and with times."""
    times = timed_rows(
        data.costs, data.distinct(METRICS, [*RUN_KEY, "checkpoint"]), set(places["metric"])
    )
    wanted = {axis: set(places[axis]) for axis in ("dataset", "method", "metric")}
    metrics, means = data.rows(METRICS, **wanted), data.rows(SHIFT_MEANS, **wanted)
    means = means[
        (means["severity"] > 0)
        & means["dataset"].isin(places.loc[places["shift"] == MEAN_SHIFT, "dataset"])
    ]
    parts = [part for part in (metrics, means, times) if len(part)] or [metrics]
    return _in_lines(data, pd.concat(parts, ignore_index=True))


def _in_lines(data: StudyData, rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with the name of the line in place of its protocols."""
    return rows.assign(protocol=rows["protocol"].replace(data.manifest.get("lines", {})))


def timed_rows(
    costs: pd.DataFrame, checkpoints: pd.DataFrame, wanted: Collection[str]
) -> pd.DataFrame:
    """Rows of the metrics ``train_seconds`` (all stages) and ``runtime_seconds`` (a fit, by seed of
    the calibrator).

    All ``checkpoints`` (one row each) of a run have the same times: training is shared, and the
    times of fits are averaged. ``wanted`` are metrics; others than these two are ignored.
    """
    costs = costs.assign(value=pd.to_numeric(costs["seconds"]), calibrator=costs["item"])
    run, parts = list(RUN_KEY), []
    if "train_seconds" in wanted:
        trained = costs[costs["stage"].isin(TRAINING)].groupby(run, as_index=False)["value"].sum()
        parts.append(trained.assign(calibrator="none", fit_seed=0, metric="train_seconds"))
    if "runtime_seconds" in wanted:
        fits = costs[costs["stage"] == "calibrate"].groupby([*run, "calibrator", "fit_seed"])
        parts.append(fits["value"].mean().reset_index().assign(metric="runtime_seconds"))
    if not parts:
        return pd.DataFrame()
    empty = {"fit_on": "val", "split": "test", "shift": "", "severity": 0}
    bounds = dict.fromkeys(("ci_low", "ci_high"), float("nan"))
    return pd.concat(parts).merge(checkpoints, on=run).assign(**empty, **bounds)


def read_resamples(data: StudyData, places: pd.DataFrame) -> pd.DataFrame:
    """Metrics of the places on resamples; protocols have the name of their line."""
    wanted = {axis: set(places[axis]) for axis in RESAMPLED}
    return _in_lines(data, data.rows(RESAMPLES, **wanted))


def cell_draws(
    resamples: pd.DataFrame, places: pd.DataFrame, over: Literal["seed", "fit_seed"]
) -> pd.DataFrame:
    """Resamples of each cell and seed: protocol, checkpoint, cell, seed, draws and pairs (R,).

    Means over seeds of the other kind and over the places of a cell, if all have resamples.
    ``places`` and ``over`` as in :func:`calgrid.papers.means.cell_runs`.
    """
    resamples = resamples[resamples["split"] != "val"]
    found = places.merge(resamples.assign(seed=resamples[over]), on=list(AXES))
    size, rows = places.groupby("cell").size(), []
    for key, part in found.groupby([*SECTION, "cell", "seed"]):
        if len(part[list(AXES)].drop_duplicates()) == size[key[2]]:
            draws, pairs = np.stack(list(part["draws"])), np.stack(list(part["pairs"]))
            means = (draws.mean(axis=0, dtype=np.float64), pairs.mean(axis=0, dtype=np.float64))
            rows.append((*key, *means))
    return pd.DataFrame(rows, columns=[*SECTION, "cell", "seed", "draws", "pairs"])


def _rank_runs(
    table: PaperTable, cells: pd.DataFrame, runs: pd.DataFrame
) -> Iterator[pd.DataFrame]:
    """Ranks for each seed with all ranked cells, as rows of ``runs``."""
    cells = cells[~cells["own"]]
    for keys, values in runs.groupby([*SECTION, "seed"]):
        frame = cells.join(values.set_index("cell")["value"])
        for rank, metric in table.ranks.items():
            is_rank, ranked = cells["metric"] == rank, cells["metric"] == metric
            if frame.loc[ranked, "value"].notna().all():
                places = cells.loc[is_rank, "row"].map(row_ranks(table, frame, "value", metric))
                facts = {**dict(zip([*SECTION, "seed"], keys, strict=True)), "metric": rank}
                yield pd.DataFrame({"cell": places.index, "value": places.to_numpy(), **facts})


def _section(
    table: PaperTable, cells: pd.DataFrame, keys: tuple[str, str], means: pd.DataFrame
) -> pd.DataFrame:
    """Cells with our numbers for one protocol and checkpoint."""
    numbers = means.rename(columns={"mean": "ours"}).set_index("cell")
    frame = cells.join(numbers.reindex(columns=NUMBERS).astype("float64"))
    for rank, ranked in table.ranks.items():
        places = row_ranks(table, frame[~frame["own"]], "ours", ranked)
        is_rank = frame["metric"] == rank
        frame.loc[is_rank, "ours"] = frame.loc[is_rank, "row"].map(places)
        frame.loc[is_rank & frame["ours"].notna(), "n_ranked"] = len(places)
    doubted = frame["suspect"] != ""
    partial = frame["n_ranked"] < len(table.printed_rows)  # ranks among fewer do not compare
    frame["difference"] = (frame["ours"] - frame["published"]).mask(doubted | partial)
    frame["ours_mark"] = marks(table, frame, "ours", frame["ours"].isna())
    frame["published_mark"] = marks(table, frame, "published", doubted)
    return frame.assign(**dict(zip(SECTION, keys, strict=True)))
