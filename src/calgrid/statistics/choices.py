"""Methods tuned with an equal budget: selection on validation rows, and scores of the selected runs
on test rows.

Each seed selects separately, so that the variance over seeds includes the variance of the
selection.
"""

from collections.abc import Mapping, Sequence

import pandas as pd

from calgrid.errors import DataError, check_ids
from calgrid.metrics import METRICS

#: columns that all candidates of a selection share
CELL = ("dataset", "backbone", "checkpoint", "seed")
Candidates = Mapping[str, Sequence[tuple[str, str]]]


def choose(metrics: pd.DataFrame, candidates: Candidates, metric: str = "nll") -> pd.DataFrame:
    """Select the candidate of each method with the best validation value of the uncalibrated
    network.

    Parameters
    ----------
    metrics : tidy metrics frame, see :func:`calgrid.statistics.summarise`.
    candidates : tuned method -> (protocol, method) of its candidates; ties select the first.
    metric : compared metric, on the rows with split ``val`` and calibrator ``none``.

    Returns
    -------
    One row per tuned method and cell, in the order of ``candidates``: tuned, dataset, backbone,
    checkpoint, seed, protocol and method of the selected candidate, place (0 = the first
    candidate), value (validation), n_candidates.

    Raises
    ------
    DataError : a candidate lacks a validation value that another one has.
    ConfigError : unknown metric or one without ranks.
    """
    ranking = [name for name, each in METRICS.items() if each.lower_is_better is not None]
    check_ids("metric that ranks", [metric], ranking, "tuning")
    rows = metrics[
        (metrics["split"] == "val")
        & (metrics["calibrator"] == "none")
        & (metrics["metric"] == metric)
    ]
    values = listed(rows, candidates)
    counts = values.groupby(["tuned", *CELL])["place"].nunique()
    wanted = pd.Series({name: len(each) for name, each in candidates.items()})
    short = counts[counts.to_numpy() != wanted[counts.index.get_level_values("tuned")].to_numpy()]
    if len(short):
        name, *cell = short.index[0]
        raise DataError(
            f"tuning: only {short.iloc[0]} of {wanted[name]} candidates of '{name}' have a "
            f"validation {metric} on {', '.join(map(str, cell))}; run the others too."
        )
    lower = METRICS[metric].lower_is_better
    best = values.sort_values(["value", "place"], ascending=[lower, True], kind="stable")
    chosen = best.drop_duplicates(["tuned", *CELL])
    chosen = chosen.assign(
        n_candidates=chosen["tuned"].map(wanted),
        _tuned=chosen["tuned"].map(list(candidates).index),
    )
    columns = ["tuned", *CELL, "protocol", "method", "place", "value", "n_candidates"]
    return chosen.sort_values(["_tuned", *CELL])[columns].reset_index(drop=True)


def listed(rows: pd.DataFrame, candidates: Candidates) -> pd.DataFrame:
    """Rows of all candidates, with the columns tuned and place; a run may be a candidate of several
    methods.
    """
    flat = []
    for name, pairs in candidates.items():
        for place, (protocol, method) in enumerate(pairs):
            flat.append((name, place, protocol, method))
    columns = ["tuned", "place", "protocol", "method"]
    return rows.merge(pd.DataFrame(flat, columns=columns), on=["protocol", "method"])


def as_tuned(metrics: pd.DataFrame, choices: pd.DataFrame, protocol: str) -> pd.DataFrame:
    """Rows of the selected runs, renamed to the tuned method and one protocol.

    Parameters
    ----------
    metrics : tidy metrics frame.
    choices : one row per tuned method and cell: tuned, dataset, backbone, checkpoint, seed,
        protocol, method.
    protocol : protocol name of all rows, so that methods are compared whose candidates differ in
        protocol.
    """
    keys = [*CELL, "protocol", "method"]
    rows = metrics.merge(choices[["tuned", *keys]], on=keys)
    return rows.assign(method=rows["tuned"], protocol=protocol)[list(metrics.columns)]
