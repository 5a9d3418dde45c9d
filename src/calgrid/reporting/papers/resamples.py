"""Values of the cells of a paper's table on resamples of the test samples, for tests of calibrators of one network."""

import numpy as np
import pandas as pd

from calgrid.conventions import SAME_SHIFT, SAME_SHIFT_SHARE
from calgrid.reporting.study import StudyData
from calgrid.statistics.table_cells import SECTION
from calgrid.storage.schema import RESAMPLES

AXES = ["dataset", "backbone", "method", "calibrator", "metric"]


def read_resamples(data: StudyData, places: pd.DataFrame) -> pd.DataFrame:
    """Values of the metrics of the places on resamples, protocols under the name of their line."""
    frame = data.rows(RESAMPLES, **{axis: set(places[axis]) for axis in AXES})
    return frame.assign(protocol=frame["protocol"].replace(data.manifest.get("lines", {})))


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
