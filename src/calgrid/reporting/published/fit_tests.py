"""Claims about calibrators of one network: tests over test samples and calibrator seeds, not over
trainings.

Two calibrators of one network are compared on the same test samples. The sources of variance are
the sampling of test samples and the random fit of a calibrator. The standard deviation of a
difference is

``std^2 = std_test^2 + s_a^2 / n_a + s_b^2 / n_b``

with std_test the standard deviation over common resamples of the test samples (of means over
seeds), and s the standard deviations over seeds, 0 for one seed. The test assumes a normal
difference. A test over calibrator seeds alone would overstate significance: ``smart`` varies by
0.02 points of ECE over its seeds on CIFAR-10, and by 0.2 over test sets of 10,000 images.

If each seed also draws a new split into fitted and scored samples (``fit_on`` = ``same_shift`` or
``redrawn``),
the seeds are repeated random splits with overlapping scored parts, for which a plain t-test has too
many false positives. Then the corrected resampled t-test of Nadeau and Bengio (Machine Learning 52,
2003) is used: for J differences with standard deviation s,

``std^2 = (1 / J + n_scored / n_fit) s^2`` with J - 1 degrees of freedom.

Neither test covers other trainings; the first does not cover other samples to fit on.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from calgrid.reporting.published.means import SECTION
from calgrid.reporting.published.run_tests import verdicts
from calgrid.statistics.paired import ROUNDING, check_level

Floats = NDArray[np.float64]
Key = tuple[str, str, int]


def fitted_claim_tests(
    fits: pd.DataFrame,
    pairs: pd.DataFrame,
    draws: pd.DataFrame,
    ratios: Mapping[int, float],
    margin: float = 0.0,
    level: float = 0.95,
) -> pd.DataFrame:
    """Test of each cell against each of its rivals, on one network and one test set; see the
    module.

    Parameters
    ----------
    fits : values of cells for calibrator seeds (:func:`calgrid.reporting.published.means.cell_runs` over
        ``fit_seed``).
    pairs : columns setting, cell, rival, and lower_is_better, one row per comparison.
    draws : columns protocol, checkpoint, cell and draws: values (R,) of the cell's mean over seeds
        in each resample of the test samples, paired over all cells of a network and set. Cells
        without draws are not tested.
    ratios : for cells with random splits, number of scored samples per fitted sample.
    margin, level : as in :func:`calgrid.reporting.published.run_tests`.

    Returns
    -------
    One row for each protocol and checkpoint that has both cells of a pair, with the columns of
    :func:`calgrid.reporting.published.run_tests` (``std`` is that of the gain, not over seeds; ``n_seeds``
    the larger of both numbers; ``seeds_needed`` is NaN, because more seeds do not help), and
    std_test, std_fit: its two parts, NaN for random splits. p_value is NaN without resamples;
    without variance it is 1 for a gain of zero, else 0.

    Raises
    ------
    ConfigError : ``level`` outside (0, 1).
    """
    check_level(level)
    values = {
        key: part.set_index("seed")["value"] for key, part in fits.groupby([*SECTION, "cell"])
    }
    resampled: dict[Key, Floats] = {
        (row.protocol, row.checkpoint, row.cell): np.asarray(row.draws)
        for row in draws.itertuples()
    }
    rows = []
    for place in dict.fromkeys(key[:2] for key in values):
        for pair in pairs.to_dict("records"):
            keys = [(*place, pair[name]) for name in ("cell", "rival")]
            if all(key in values for key in keys):
                mine, rival = (values[key] for key in keys)
                sign = -1.0 if pair["lower_is_better"] else 1.0
                ratio = ratios.get(pair["cell"])
                if ratio is None:
                    found = _on_samples(
                        mine, rival, resampled.get(keys[0]), resampled.get(keys[1]), sign, margin
                    )
                else:
                    found = _on_splits(sign * (mine - rival).dropna() + margin, ratio)
                rows.append({**dict(zip(SECTION, place, strict=True)), **pair, **found})
    columns = [*SECTION, *pairs.columns, "n_seeds", "gain", "std", "std_test", "std_fit", "p_value"]
    tests = verdicts(pd.DataFrame(rows, columns=columns), level)
    return tests.assign(seeds_needed=math.nan)


def _on_samples(
    mine: pd.Series,
    rival: pd.Series,
    drawn: Floats | None,
    against: Floats | None,
    sign: float,
    margin: float,
) -> dict[str, float]:
    """Test with the variance over test samples and calibrator seeds."""
    gain = sign * (mine.mean() - rival.mean()) + margin
    fit = sum(float(each.var(ddof=1)) / len(each) for each in (mine, rival) if len(each) > 1)
    test = math.nan
    if drawn is not None and against is not None and len(drawn) == len(against):
        test = float(np.nanvar(drawn - against, ddof=1))
    std = math.sqrt(test + fit)
    size = max(mine.abs().max(), rival.abs().max())
    p_value = _p_value(gain, std, size, lambda t: 2 * special.ndtr(-t))
    counts = {"n_seeds": max(len(mine), len(rival)), "gain": gain, "std": std}
    return {**counts, "std_test": math.sqrt(test), "std_fit": math.sqrt(fit), "p_value": p_value}


def _on_splits(gains: pd.Series, ratio: float) -> dict[str, float]:
    """Corrected resampled t-test of gains (J,) on random splits."""
    count = len(gains)
    std = float(gains.std(ddof=1)) * math.sqrt(1 / max(count, 1) + ratio)
    gain = float(gains.mean())
    p_value = _p_value(
        gain, std, float(gains.abs().max()), lambda t: 2 * special.stdtr(max(count - 1, 1), -t)
    )
    return {
        "n_seeds": count,
        "gain": gain,
        "std": std,
        "std_test": math.nan,
        "std_fit": math.nan,
        "p_value": p_value,
    }


def _p_value(gain: float, std: float, size: float, two_sided: Callable[[float], float]) -> float:
    if math.isnan(std) or math.isnan(gain):
        return math.nan
    if std <= ROUNDING * size:  # only rounding
        return 1.0 if abs(gain) <= ROUNDING * size else 0.0
    return float(two_sided(abs(gain) / std))
