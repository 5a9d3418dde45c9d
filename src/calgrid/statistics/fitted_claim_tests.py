"""Claims about calibrators of one network: tests on test samples and seeds of the calibrator, not of training.

Two calibrators of one network are compared on the same test samples. What could have come out otherwise is which
samples were drawn, and where the fit of a calibrator with random numbers ended. The deviation of a difference is

``std^2 = std_test^2 + s_a^2 / n_a + s_b^2 / n_b``

with std_test the deviation of the difference over resamples of the test samples that both share (of the means over the
seeds of each), and s the deviations over seeds; a calibrator with one seed adds nothing. The test is that of a normal
difference. A test over the seeds of the calibrator alone would call differences certain that another test set undoes:
``smart`` varies by 0.02 points of ECE over its seeds on CIFAR-10, and by 0.2 over test sets of 10,000 images.

Where each seed also draws anew which samples fit and which are scored (``fit_on`` = ``same_shift``), the seeds are
repeated random splits. Their scored parts overlap, so that a plain t-test finds far too much. Used is the corrected
resampled t-test of Nadeau and Bengio (Machine Learning 52, 2003): of J differences with deviation s,

``std^2 = (1 / J + n_scored / n_fit) s^2`` with J - 1 degrees of freedom.

Neither says anything of another training, the first nothing of other samples to fit on.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from calgrid.statistics._paired import ROUNDING, check_level
from calgrid.statistics.claim_tests import verdicts
from calgrid.statistics.table_cells import SECTION

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
    """Test of each cell against each of its rivals, on one network and one test set; see the module.

    Parameters
    ----------
    fits : values of cells in seeds of the calibrator (:func:`calgrid.statistics.cell_runs` over ``fit_seed``).
    pairs : columns setting, cell, rival, and lower_is_better, one row a comparison.
    draws : columns protocol, checkpoint, cell and draws, the values (R,) of the cell's mean over seeds in each resample
        of the test samples; the same resamples for all cells of a network and set. Cells without any are not tested.
    ratios : for cells whose seeds draw the scored samples anew, how many are scored for each one that fits.
    margin, level : as in :func:`calgrid.statistics.claim_tests`.

    Returns
    -------
    One row for each protocol and checkpoint that has both cells of a pair, with the columns of
    :func:`calgrid.statistics.claim_tests` (``std`` is that of the gain, not over seeds; ``n_seeds`` the larger number
    of the two; ``seeds_needed`` is NaN, for other seeds would not do), and std_test, std_fit: its two parts, NaN where
    the seeds are random splits. p_value is NaN without resamples; where nothing varies it is 1 for a gain of zero, else
    0: no resample tells the two apart.

    Raises
    ------
    ConfigError : for a ``level`` outside (0, 1).
    """
    check_level(level)
    values = {key: part.set_index("seed")["value"] for key, part in fits.groupby([*SECTION, "cell"])}
    resampled: dict[Key, Floats] = {
        (row.protocol, row.checkpoint, row.cell): np.asarray(row.draws) for row in draws.itertuples()
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
                    found = _on_samples(mine, rival, resampled.get(keys[0]), resampled.get(keys[1]), sign, margin)
                else:
                    found = _on_splits(sign * (mine - rival).dropna() + margin, ratio)
                rows.append({**dict(zip(SECTION, place, strict=True)), **pair, **found})
    columns = [*SECTION, *pairs.columns, "n_seeds", "gain", "std", "std_test", "std_fit", "p_value"]
    tests = verdicts(pd.DataFrame(rows, columns=columns), level)
    return tests.assign(seeds_needed=math.nan)


def _on_samples(
    mine: pd.Series, rival: pd.Series, drawn: Floats | None, against: Floats | None, sign: float, margin: float
) -> dict[str, float]:
    """Test by resamples of the test samples and the deviation over seeds of the calibrators."""
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
    """Corrected resampled t-test of gains (J,) in random splits."""
    count = len(gains)
    std = float(gains.std(ddof=1)) * math.sqrt(1 / max(count, 1) + ratio)
    gain = float(gains.mean())
    p_value = _p_value(gain, std, float(gains.abs().max()), lambda t: 2 * special.stdtr(max(count - 1, 1), -t))
    return {"n_seeds": count, "gain": gain, "std": std, "std_test": math.nan, "std_fit": math.nan, "p_value": p_value}


def _p_value(gain: float, std: float, size: float, two_sided: Callable[[float], float]) -> float:
    if math.isnan(std) or math.isnan(gain):
        return math.nan
    if std <= ROUNDING * size:  # nothing but rounding varies
        return 1.0 if abs(gain) <= ROUNDING * size else 0.0
    return float(two_sided(abs(gain) / std))
