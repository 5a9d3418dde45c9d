"""Cells of a paper's tables: our result with its interval, the published number, and their
difference.
"""

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from calgrid.configuration.home import home
from calgrid.configuration.manifest import CellKey, DeclaredTable, Paper
from calgrid.configuration.papers import cell_key, matches
from calgrid.reporting.published.marks import COORDINATES, marks, row_ranks
from calgrid.reporting.published.means import AXES, SECTION, cell_means, cell_runs
from calgrid.reporting.published.own import Own, own_entries, own_names
from calgrid.reporting.study import UNCALIBRATED, StudyData, named_calibrators
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
#: protocol and checkpoint of a table without runs
NOWHERE = ("", "")
#: ``spread`` of a table whose cells vary over seeds of the calibrator
FITS = "calibrator_seeds"
#: coordinates of a cell that are columns of the resamples
RESAMPLED = ("dataset", "backbone", "method", "metric")
#: stages of the costs whose seconds are summed to ``train_seconds``
TRAINING = ("first_stage", "train")


class FilledTable(NamedTuple):
    """A table as declared, the further rows and columns of the study, its frame, and the values of
    its cells for each seed.

    ``runs`` has one value per seed, of training or of the calibrator as the table's ``spread``
    says, of the metric that decides about each cell, with ranks for each seed that has all ranked
    cells; ``draws`` has their resamples. If seeds are those of the calibrator, ``redrawn`` has the
    cells fitted on a random part of the scored images; else it is None.
    """

    declared: DeclaredTable
    own: Own
    frame: pd.DataFrame
    runs: pd.DataFrame
    draws: pd.DataFrame
    redrawn: Collection[int] | None


def filled_tables(data: StudyData, paper: Paper) -> Iterator[FilledTable]:
    """Tables of a paper, each with its frame: one row per cell, for each protocol and checkpoint
    with results.

    Parameters
    ----------
    paper : entry of the manifest (see :func:`calgrid.configuration.papers.paper`).

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
    tables, places, deciding = _with_own(data, _tables(paper)), [], []
    for declared, _, cells in tables:
        places.append(_places(declared, cells))
        found = places[-1].assign(metric=decided_by(places[-1]["metric"]))
        deciding.append(found[found["metric"] != ""])
    metrics = _metrics(data, pd.concat([*places, *deciding]))
    for (declared, own, cells), needed, decided in zip(tables, places, deciding, strict=True):
        fits = declared["spread"] == FITS
        over: Literal["seed", "fit_seed"] = "fit_seed" if fits else "seed"
        values = cell_runs(metrics, needed, over)
        runs = cell_runs(metrics, decided, over)
        draws = cell_draws(read_resamples(data, decided), decided, over)
        means = cell_means(values, data.level)
        parts = list(means.groupby(list(SECTION))) or [(NOWHERE, means)]
        sections = [_section(declared, cells, keys, part) for keys, part in parts]
        frame = _without_empty(pd.concat(sections, ignore_index=True))
        runs = pd.concat([runs, *_rank_runs(declared, cells, values)], ignore_index=True)
        redrawn = set(needed.loc[needed["fit_on"].isin(DRAWN), "cell"]) if fits else None
        yield FilledTable(declared, own, frame, runs, draws, redrawn)


def _with_own(
    data: StudyData, tables: Sequence[tuple[DeclaredTable, pd.DataFrame]]
) -> list[tuple[DeclaredTable, Own, pd.DataFrame]]:
    """Tables of a paper, with rows and columns for what none of them names."""
    named: dict[str, set[str]] = {"method": set(), "calibrator": {UNCALIBRATED}}
    for declared, cells in tables:
        named["method"] |= {*_places(declared, cells)["method"]}
        named["calibrator"] |= {*cells["calibrator"]}
    names = own_names(data, named)
    found = []
    for declared, cells in tables:
        parts, own = [cells], own_entries(declared, names)
        if own.rows or own.columns:
            parts.append(_own_cells(declared, own))
        found.append((declared, own, pd.concat(parts, ignore_index=True)))
    return found


def _own_cells(declared: DeclaredTable, own: Own) -> pd.DataFrame:
    """Cells of further rows and columns, numbered behind those of the paper."""
    rows, columns = [*declared["rows"], *own.rows], [*declared["columns"], *own.columns]
    places = []
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            if i >= len(declared["rows"]) or j >= len(declared["columns"]):
                places.append({"row": i, "column": j, **cell_key(declared, row, column)})
    nothing = {"published": math.nan, "published_std": math.nan, "suspect": ""}
    return _coordinates(declared, places).assign(own=True, **nothing)


def _coordinates(declared: DeclaredTable, places: Sequence[CellKey]) -> pd.DataFrame:
    """Cells of a table by their coordinates."""
    is_mean = [len(list(expanded(place, declared["means"]))) > 1 for place in places]
    cells = pd.DataFrame(places)[["row", "column", *COORDINATES]]
    return cells.assign(is_mean=is_mean, own=False)


def _without_empty(frame: pd.DataFrame) -> pd.DataFrame:
    """The cells of the paper, and those of further rows and columns that have a number."""
    kept = pd.Series(True, index=frame.index)
    for side in ("row", "column"):
        of_paper = frame.loc[~frame["own"], side]
        filled = frame.loc[frame["ours"].notna(), side]
        kept &= frame[side].isin({*of_paper, *filled})
    return frame[kept].reset_index(drop=True)


def _tables(paper: Paper) -> list[tuple[DeclaredTable, pd.DataFrame]]:
    """Tables of a paper as declared, each with its cells."""
    printed = printed_numbers(read_published([home() / paper["published"]]))
    tables = []
    for declared in paper["tables"]:
        of_table = printed[printed["table"] == declared["table"]]
        tables.append((declared, _cells(declared, of_table)))
    return tables


def _cells(declared: DeclaredTable, printed: pd.DataFrame) -> pd.DataFrame:
    """Cells of a table in reading order, with the published numbers."""
    rows = []
    for i, row in enumerate(declared["rows"]):
        for j, column in enumerate(declared["columns"]):
            rows.append({"row": i, "column": j, **cell_key(declared, row, column)})
    cells = _coordinates(declared, rows)
    place, numbers = list(PUBLISHED_PLACE), ["published", "published_std", "suspect"]
    found = printed.assign(published=printed["value"], published_std=printed.get("std", np.nan))
    found = found.drop_duplicates(place)[[*place, *numbers]]
    keyed = cells.assign(method=list(map(run_method, rows)))[place]
    beside = keyed.merge(found, on=place, how="left").fillna({"suspect": ""})
    return cells.assign(**beside[numbers])


def printed_cells(data: StudyData) -> pd.DataFrame:
    """Published numbers in the tables of the papers that a study names, with the study's names of
    methods.

    Returns one row per cell with a number that is not suspect: ``COORDINATES`` (the method with its
    second stage, the calibrator with what it was fitted on unless val), ``published`` and
    ``published_std``, in the unit of the metric.
    """
    parts = []
    for paper in data.manifest.get("papers", ()):
        parts += [cells for _, cells in _tables(paper)]
    names = [*COORDINATES, "published", "published_std"]
    if not parts:
        return pd.DataFrame(columns=names)
    cells = pd.concat(parts, ignore_index=True)
    cells = cells[cells["published"].notna() & (cells["suspect"] == "")]
    methods = list(map(run_method, cells.to_dict("records")))
    return named_calibrators(cells.assign(method=methods))[names]


def run_method(place: CellKey) -> str:
    """Method of a cell, including its second stage."""
    if place["stage"] == "none":
        return place["method"]
    return place["stage"] if place["method"] == "ce" else f"{place['stage']}+{place['method']}"


def _places(declared: DeclaredTable, cells: pd.DataFrame) -> pd.DataFrame:
    """Places that each cell averages over; without ranks, which are computed from other cells."""
    rows = []
    for number, cell in cells[~cells["metric"].isin(list(declared["ranks"]))].iterrows():
        places = expanded({**cell, "cell": number}, declared["means"])
        rows += [{**at, "method": run_method(at)} for at in places]
    return named_calibrators(pd.DataFrame(rows))[["cell", *AXES]]


def expanded(place: CellKey, means: Sequence[Mapping[str, Any]]) -> Iterator[CellKey]:
    """Places that a place averages over; each entry of ``means`` is applied once, to the places
    that it matches.
    """
    over: dict[str, Sequence[Any]] = {}
    later = [mean for mean in means if not matches(place, mean["where"])]
    for mean in means:
        over |= mean["over"] if matches(place, mean["where"]) else {}
    if not over:
        yield place
        return
    for values in itertools.product(*over.values()):
        yield from expanded({**place, **dict(zip(over, values, strict=True))}, later)


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
    found = pd.concat(parts, ignore_index=True)
    return found.assign(protocol=found["protocol"].replace(data.manifest.get("lines", {})))


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
    frame = data.rows(RESAMPLES, **{axis: set(places[axis]) for axis in RESAMPLED})
    return frame.assign(protocol=frame["protocol"].replace(data.manifest.get("lines", {})))


def cell_draws(
    resamples: pd.DataFrame, places: pd.DataFrame, over: Literal["seed", "fit_seed"]
) -> pd.DataFrame:
    """Resamples of each cell and seed: protocol, checkpoint, cell, seed, draws and pairs (R,).

    Means over seeds of the other kind and over the places of a cell, if all have resamples.
    ``places`` and ``over`` as in :func:`calgrid.reporting.published.means.cell_runs`.
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
    declared: DeclaredTable, cells: pd.DataFrame, runs: pd.DataFrame
) -> Iterator[pd.DataFrame]:
    """Ranks for each seed with all ranked cells, as rows of ``runs``."""
    cells = cells[~cells["own"]]
    for keys, values in runs.groupby([*SECTION, "seed"]):
        frame = cells.join(values.set_index("cell")["value"])
        for rank, metric in declared["ranks"].items():
            is_rank, ranked = cells["metric"] == rank, cells["metric"] == metric
            if frame.loc[ranked, "value"].notna().all():
                places = cells.loc[is_rank, "row"].map(row_ranks(declared, frame, "value", metric))
                facts = {**dict(zip([*SECTION, "seed"], keys, strict=True)), "metric": rank}
                yield pd.DataFrame({"cell": places.index, "value": places.to_numpy(), **facts})


def _section(
    declared: DeclaredTable, cells: pd.DataFrame, keys: tuple[str, str], means: pd.DataFrame
) -> pd.DataFrame:
    """Cells with our numbers for one protocol and checkpoint."""
    numbers = means.rename(columns={"mean": "ours"}).set_index("cell")
    frame = cells.join(numbers.reindex(columns=NUMBERS).astype("float64"))
    for rank, ranked in declared["ranks"].items():
        places = row_ranks(declared, frame[~frame["own"]], "ours", ranked)
        is_rank = frame["metric"] == rank
        frame.loc[is_rank, "ours"] = frame.loc[is_rank, "row"].map(places)
        frame.loc[is_rank & frame["ours"].notna(), "n_ranked"] = len(places)
    doubted = frame["suspect"] != ""
    partial = frame["n_ranked"] < len(declared["rows"])  # ranks among fewer rows cannot be compared
    frame["difference"] = (frame["ours"] - frame["published"]).mask(doubted | partial)
    frame["ours_mark"] = marks(declared, frame, "ours")
    frame["published_mark"] = marks(declared, frame, "published", exclude=doubted)
    for place, (name, value) in enumerate(zip(SECTION, keys, strict=True)):
        frame.insert(place, name, value)
    return frame
