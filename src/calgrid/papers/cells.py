"""Cells of a paper's tables: our result with its interval, the published number, and their
difference.
"""

import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from calgrid.metrics import METRICS as KNOWN
from calgrid.metrics.intervals import tails_of
from calgrid.papers.declared import (
    COORDINATES,
    Entry,
    Paper,
    PaperTable,
    further,
    papers_of,
    run_method,
)
from calgrid.report.study import UNCALIBRATED, StudyData, named_calibrators
from calgrid.report.tables.costs import TRAINING
from calgrid.statistics import mean_ranks, printed_numbers
from calgrid.statistics.checks import WORDS, check_metrics
from calgrid.statistics.paired import seed_interval
from calgrid.statistics.verdicts import decided_by
from calgrid.storage.schema import (
    DRAWN,
    MEAN_SHIFT,
    METRICS,
    NUMBER_KEY,
    PUBLISHED_PLACE,
    RESAMPLES,
    RUN_KEY,
    SEEDS,
    SHIFT_MEANS,
)
from calgrid.storage.tables import read_published

#: keys of a table: runs of one protocol and checkpoint
SECTION = ("protocol", "checkpoint")
#: coordinates of a place; the split follows from the shift
AXES = ("dataset", "backbone", "method", "calibrator", "fit_on", "shift", "severity", "metric")
PER_SEED = ["cell", "metric", *SECTION, "seed"]
NUMBERS = ["ours", "std", "ci_low", "ci_high", "n_seeds", "n_ranked"]
PRINTED = ["published", "published_std", "suspect"]
#: protocol and checkpoint of a table without runs
NOWHERE = ("", "")
#: coordinates of a cell that are columns of the resamples
RESAMPLED = ("dataset", "backbone", "method", "metric")

BEST, SECOND = "best", "second"
BEST_PLACE = 1
#: least number of competing cells for a mark of the second
FEWEST_FOR_SECOND = 3


class FilledTable(NamedTuple):
    """A declared table, its printed rows and columns followed by the study's own, its frame, and
    the values of its cells for each seed.

    ``runs`` has one value per seed, of training or of the calibrator as the table's ``spread``
    says, of the metric that decides about each cell, with ranks for each seed that has all ranked
    cells, and the ``prior`` variance over seeds of cells of a single place (NaN of others);
    ``draws`` has their resamples. If seeds are those of the calibrator, ``redrawn`` has the
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
    Each table; its frame has the cells of the paper, followed by cells of its own rows and columns
    with a number of ours (``own``): ``row``, ``column``, the coordinates, our results (``ours``,
    ``std``, ``ci_low``, ``ci_high``, ``n_seeds``; ``n_ranked`` is the number of ranked rows),
    ``published``, ``published_std``, ``suspect``, ``difference`` (ours - published), and the marks
    ``ours_mark`` and ``published_mark``. Protocols of one line (key ``lines`` of the configuration)
    share a frame, under the name of the line. Without results, protocol and checkpoint are empty,
    and only published numbers are present.
    """
    printed, names, laid = _printed(paper), _own_names(data, paper), []
    for table in paper.tables:
        rows = [*table.printed_rows, *further(table.printed_rows, names, table.row_axes)]
        columns = [*table.printed_columns, *further(table.printed_columns, names)]
        cells = _cells(table, rows, columns, printed)
        places = _places(table, cells)
        by = decided_by(places["metric"])
        # runs of a metric without a test count as runs
        decided = places.assign(metric=by.where(by != "", places["metric"]))
        laid.append((table, rows, columns, cells, places, decided))
    metrics = _metrics(
        data, pd.concat([frame for *_, measured, tested in laid for frame in (measured, tested)])
    )
    for table, rows, columns, cells, places, decided in laid:
        over: Literal["seed", "fit_seed"] = "fit_seed" if table.of_fits else "seed"
        values, runs = (cell_runs(metrics, each, over) for each in (places, decided))
        runs = _with_priors(data, runs, decided)
        means = cell_means(values, data.level)
        parts = list(means.groupby(list(SECTION))) or [(NOWHERE, means)]
        sections = [_section(table, cells, keys, part) for keys, part in parts]
        frame = pd.concat(sections, ignore_index=True)
        # of further rows and columns only the ones with a number
        shown = frame[~frame["own"] | frame["ours"].notna()]
        kept = frame["row"].isin(shown["row"]) & frame["column"].isin(shown["column"])
        frame = frame[kept].reset_index(drop=True)
        runs = pd.concat([runs, *_rank_runs(table, cells, values)], ignore_index=True)
        redrawn = set(places.loc[places["fit_on"].isin(DRAWN), "cell"]) if table.of_fits else None
        draws = cell_draws(data, decided, over)
        yield FilledTable(table, rows, columns, frame, runs, draws, redrawn)


def _printed(paper: Paper) -> pd.DataFrame:
    """Printed numbers of a paper, the first of each cell of a table."""
    numbers = printed_numbers(read_published([paper.published]))
    numbers = numbers.assign(published=numbers["value"], published_std=numbers.get("std", np.nan))
    return numbers.drop_duplicates(["table", *PUBLISHED_PLACE])


def _own_names(data: StudyData, paper: Paper) -> dict[str, list[str]]:
    """Methods and calibrators with results, but in no table of a paper, by axis."""
    cells = [(table, cell) for table in paper.tables for cell in table.cells]
    methods = {place["method"] for table, cell in cells for place in table.places(cell)}
    calibrators = {UNCALIBRATED, *(cell["calibrator"] for _, cell in cells)}
    known = {"method": methods, "calibrator": calibrators}
    own = {}
    for axis, names in known.items():
        found = data.distinct(METRICS, [axis])[axis].astype(str)
        own[axis] = [name for name in found if name not in names]
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
    of_table = printed.loc[printed["table"] == table.number, [*place, *PRINTED]]
    beside = _of_runs(cells).merge(of_table, on=place, how="left").fillna({"suspect": ""})
    order = ["row", "column", *COORDINATES, "is_mean", "own"]
    return cells[order].assign(**beside[PRINTED])


def _of_runs(cells: pd.DataFrame) -> pd.DataFrame:
    """Cells with the full method of runs, including the second stage."""
    return cells.assign(method=list(map(run_method, cells.to_dict("records"))))


def printed_cells(data: StudyData) -> pd.DataFrame:
    """Published numbers in the tables of the papers that a study names, with the study's names of
    methods.

    Returns one row per cell with a number that is not suspect: ``COORDINATES`` (the method with its
    second stage, the calibrator with what it was fitted on unless val), ``published`` and
    ``published_std``, in the unit of the metric.
    """
    names = [*COORDINATES, "published", "published_std"]
    parts = []
    for paper in papers_of(data.manifest):
        printed = _printed(paper)
        for table in paper.tables:
            parts.append(_cells(table, table.printed_rows, table.printed_columns, printed))
    none = [pd.DataFrame(columns=[*names, "suspect"])]
    cells = pd.concat(parts or none, ignore_index=True)
    cells = cells[cells["published"].notna() & (cells["suspect"] == "")]
    return named_calibrators(_of_runs(cells))[names]


def _places(table: PaperTable, cells: pd.DataFrame) -> pd.DataFrame:
    """Places averaged by each cell; without ranks, which are computed from other cells."""
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


def _with_priors(data: StudyData, runs: pd.DataFrame, places: pd.DataFrame) -> pd.DataFrame:
    """Runs with the prior variance over seeds of their cell (``prior``), which cells of several
    places do not have.
    """
    single = places[~places.duplicated("cell", keep=False)]
    known = _in_lines(data, data.priors).drop(columns="split")
    shared = [name for name in AXES if name in known]
    known = single.merge(known, on=shared)[[*SECTION, "cell", "prior"]]
    # protocols of one line may have a prior each
    known = known.drop_duplicates([*SECTION, "cell"], keep=False)
    return runs.merge(known, on=[*SECTION, "cell"], how="left")


def cell_draws(
    data: StudyData, places: pd.DataFrame, over: Literal["seed", "fit_seed"]
) -> pd.DataFrame:
    """Resamples of each cell and seed: protocol, checkpoint, cell, seed, draws and pairs (R,).

    Means over seeds of the other kind and over the places of a cell, if all have resamples.
    ``places`` and ``over`` as in :func:`cell_runs`.
    """
    wanted = {axis: set(places[axis]) for axis in RESAMPLED}
    resamples = _in_lines(data, data.rows(RESAMPLES, **wanted))
    resamples = resamples[resamples["split"] != "val"]
    found = places.merge(resamples.assign(seed=resamples[over]), on=list(AXES))
    size, rows = places.groupby("cell").size(), []
    for key, part in found.groupby([*SECTION, "cell", "seed"]):
        if len(part[list(AXES)].drop_duplicates()) == size[key[2]]:
            drawn = [np.stack(list(part[name])) for name in ("draws", "pairs")]
            rows.append((*key, *(each.mean(axis=0, dtype=np.float64) for each in drawn)))
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


# best and second of a table, and mean ranks, both by the digits shown
# --------------------------------------------------------------------------------------------------


def lower_is_better(metric: str) -> bool | None:
    """Direction of a metric; ranks and seconds, which are no metrics, are better if lower."""
    return KNOWN[metric].lower_is_better if metric in KNOWN else True


def marks(table: PaperTable, frame: pd.DataFrame, column: str, exclude: pd.Series) -> pd.Series:
    """Best and second of competing cells: equal in all coordinates except ``best_over``.

    Returns ``best``, ``second`` or an empty string for each cell. Ties share their mark; a single
    cell has no mark, and of two cells only the best has one.

    Parameters
    ----------
    frame : one row per cell with ``COORDINATES`` and the numbers in ``column``.
    exclude : cells that do not compete.
    """
    rivals = [frame[axis] for axis in COORDINATES if axis not in table.best_over]
    # a metric without a direction has no best
    sign = frame["metric"].map(lower_is_better).map({True: 1.0, False: -1.0})
    competing = (sign * shown(table, frame, column).mask(exclude)).groupby(rivals)
    place, count = competing.rank(method="dense"), competing.transform("count")
    found = pd.Series("", index=frame.index)
    found[(place == BEST_PLACE) & (count > 1)] = BEST
    found[(place == BEST_PLACE + 1) & (count >= FEWEST_FOR_SECOND)] = SECOND
    return found


def shown(table: PaperTable, frame: pd.DataFrame, column: str) -> pd.Series:
    """Numbers of a column in the unit and digits of the table."""
    numbers = zip(frame["metric"], frame[column], strict=True)
    return pd.Series([table.shown(*number) for number in numbers], frame.index, dtype="float64")


def row_ranks(table: PaperTable, frame: pd.DataFrame, column: str, metric: str) -> pd.Series:
    """Mean rank of each row over the columns with a metric; ties share the smaller rank.

    Rows with a missing number are left out; fewer than two rows have no ranks.

    Parameters
    ----------
    frame : one row per cell with ``row``, ``column``, ``metric``, ``is_mean`` and the numbers in
        ``column``.
    """
    cells = frame[(frame["metric"] == metric) & ~frame["is_mean"]]
    cells = cells.assign(number=shown(table, cells, column))
    scores = cells.pivot(index="column", columns="row", values="number").dropna(axis="columns")
    if scores.shape[1] < 2:
        return pd.Series(dtype="float64")
    return mean_ranks(scores, lower_is_better=bool(lower_is_better(metric)), ties="min")


# values of cells over seeds
# --------------------------------------------------------------------------------------------------


def cell_runs(
    metrics: pd.DataFrame, places: pd.DataFrame, over: Literal["seed", "fit_seed"] = "seed"
) -> pd.DataFrame:
    """Value of each cell for each run seed, or for each calibrator seed.

    Seeds of the other kind are averaged first, then the places of a cell; seeds with missing places
    are dropped.

    Parameters
    ----------
    metrics : tidy metrics frame, see :func:`calgrid.statistics.summarise`; rows of the split
        ``val`` are ignored.
    places : one row per place, with the columns ``AXES`` and ``cell``, the index of its cell.
    over : column of the seeds of the result.

    Returns
    -------
    Frame with the columns cell, metric, protocol, checkpoint, seed, value, ci_low, ci_high (those
    of a single place), n_samples (of the smallest place).

    Raises
    ------
    DataError : as in :func:`calgrid.statistics.summarise`.
    """
    rows = metrics[metrics["split"] != "val"]
    for axis in ("dataset", "method", "metric"):  # before a large frame is validated and copied
        rows = rows[rows[axis].isin(places[axis])]
    frame = check_metrics(rows)[[*NUMBER_KEY, *SEEDS, "value", "ci_low", "ci_high", "n_samples"]]
    frame = frame.dropna(subset="value").astype(dict.fromkeys(WORDS, "str"))
    if over == "fit_seed":
        frame = frame.assign(seed=frame["fit_seed"])
    found = places.merge(frame, on=list(AXES))
    numbers = {name: (name, "mean") for name in ("value", "ci_low", "ci_high")}
    numbers["n_samples"] = ("n_samples", "min")
    place = list(dict.fromkeys([*PER_SEED, *AXES]))
    each = found.groupby(place, as_index=False).agg(**numbers)
    runs = each.groupby(PER_SEED, as_index=False).agg(**numbers, n_places=("value", "size"))
    runs = runs[runs["n_places"] == runs["cell"].map(places.groupby("cell").size())]
    runs.loc[runs["n_places"] > 1, ["ci_low", "ci_high"]] = float("nan")
    return runs.drop(columns="n_places")


def cell_means(runs: pd.DataFrame, level: float = 0.95) -> pd.DataFrame:
    """Mean of each cell over seeds.

    Parameters
    ----------
    runs : from :func:`cell_runs`.
    level : nominal coverage of the intervals, in (0, 1).

    Returns
    -------
    Frame with the columns protocol, checkpoint, cell, mean, std (over seeds, ddof 1), n_seeds, and
    ci_low, ci_high: the Student t interval of the mean over seeds, within the bounds of the metric;
    with one seed that of its run, if it has one.

    Raises
    ------
    ConfigError : for a ``level`` outside (0, 1).
    """
    tails_of(level)  # refuses one outside (0, 1)
    means = runs.groupby([*SECTION, "cell", "metric"], as_index=False).agg(
        mean=("value", "mean"),
        std=("value", "std"),
        n_seeds=("value", "count"),
        ci_low=("ci_low", "mean"),
        ci_high=("ci_high", "mean"),
    )
    return seed_interval(means, level).drop(columns="metric")
