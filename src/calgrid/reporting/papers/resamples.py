"""Values of the cells of a paper's table on resamples of the test samples, for tests of calibrators of one network."""

from pathlib import Path

import numpy as np
import pandas as pd

from calgrid.conventions import SAME_SHIFT, SAME_SHIFT_SHARE
from calgrid.reporting.study import CONDITIONS, StudyData
from calgrid.statistics.cells import SECTION
from calgrid.storage.records import CALIBRATE, verified
from calgrid.storage.tables import RESAMPLES, read_frame

AXES = ["dataset", "backbone", "method", "calibrator", "metric"]
COLUMNS = [*CONDITIONS, "method", "checkpoint", "calibrator", "metric", "draws"]


def read_resamples(data: StudyData) -> pd.DataFrame:
    """Files ``resamples.parquet`` of the runs of a study that have one, with the columns ``COLUMNS``.

    Raises
    ------
    StateError : a file was made with another configuration or code version. DataError : a file is damaged.
    """
    lines = data.manifest.get("lines", {})
    parts = []
    for run in data.manifest["runs"]:
        path = Path(run["part"], RESAMPLES)
        if path.is_file():
            path = verified(run["part"], CALIBRATE, RESAMPLES, "file of resamples")
            frame = read_frame(path, "file of resamples", fingerprint=run["fingerprint"])
            key = {name: run["key"][name] for name in (*CONDITIONS, "method")}
            parts.append(frame.assign(**{**key, "protocol": lines.get(key["protocol"], key["protocol"])})[COLUMNS])
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=COLUMNS)


def cell_draws(resamples: pd.DataFrame, places: pd.DataFrame) -> pd.DataFrame:
    """Mean over the seeds of each cell in each resample.

    Parameters
    ----------
    resamples : see :func:`read_resamples`.
    places : as in :func:`calgrid.statistics.cell_runs`; cells of one place on the clean test split count, others have
        no resamples.

    Returns
    -------
    Frame with the columns protocol, checkpoint, cell and draws (R,).
    """
    single = places[~places["cell"].duplicated(keep=False) & (places["shift"] == "") & (places["fit_on"] == "val")]
    found = single[["cell", *AXES]].merge(resamples, on=AXES)
    rows = [
        {**dict(zip((*SECTION, "cell"), key, strict=True)), "draws": np.mean(np.stack(list(part["draws"])), axis=0)}
        for key, part in found.groupby([*SECTION, "cell"])
    ]
    return pd.DataFrame(rows, columns=[*SECTION, "cell", "draws"])


def split_ratios(places: pd.DataFrame) -> dict[int, float]:
    """For cells whose seeds draw anew which samples fit: how many samples are scored for each that fits."""
    redrawn = places.loc[places["fit_on"] == SAME_SHIFT, "cell"].unique()
    return dict.fromkeys(map(int, redrawn), (1 - SAME_SHIFT_SHARE) / SAME_SHIFT_SHARE)
