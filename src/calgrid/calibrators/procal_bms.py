"""ProCal by bin-mean shift: a separate calibrator for each range of proximity."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._maps import bin_of, equal_count_cuts
from calgrid.calibrators._probabilities import Array, Head, History, Labels
from calgrid.calibrators._proximity import proximity, unit_rows
from calgrid.calibrators.base import Calibrator
from calgrid.calibrators.hb import TopLabelHistogramBinning
from calgrid.calibrators.hb_ova import HistogramBinning
from calgrid.calibrators.irm import MultiClassIsotonicRegression
from calgrid.calibrators.iso import TopLabelIsotonic
from calgrid.calibrators.iso_ova import IsotonicRegressionOneVsAll
from calgrid.components.registry import register

#: calibrators of the parts; histogram binning has ten bins, as in the authors' code
BASES: Mapping[str, Callable[[], Calibrator]] = {
    "irm": MultiClassIsotonicRegression,
    "iso": TopLabelIsotonic,
    "iso_ova": IsotonicRegressionOneVsAll,
    "hb": lambda: TopLabelHistogramBinning(n_bins=10),
    "hb_ova": lambda: HistogramBinning(n_bins=10),
}


@register(
    source="Xiong, Deng, Koh, Wu, Li, Xu, Hooi, Proximity-Informed Calibration for Deep Neural "
    "Networks, NeurIPS 2023; code MiaoXiong2320/ProximityBias-Calibration, "
    "utils/multi_proximity_isotonic.py",
    needs=("logits", "features"),
    keeps_argmax=False,
    parameters="n_bins times those of the base",
    limits={"n_bins": "[1, 1000000]", "n_neighbours": "[1, inf)"},
)
class ProximityBinMeanShift(Calibrator):
    """ProCal-BMS as in its code: samples are split by proximity, and each part has its own
    calibrator.

    The proximity is that of ``procal_dr``; the parts have equal numbers of validation samples. The
    bases of the code are one-vs-all histogram binning with 10 bins (``hb_ova``), one-vs-all
    isotonic regression (``iso_ova``) and multi-class isotonic regression (``irm``); the top-label
    forms ``hb`` and ``iso`` are possible too. The paper describes another map, a shift of the
    confidence in cells of proximity and confidence.

    ``fit_history``: ``n_bins`` (ties can reduce the number of bins), ``mean_proximity``.

    Parameters
    ----------
    base : identifier of the calibrator of each part.
    n_bins : number of parts.
    n_neighbours : number of nearest validation samples that define the proximity.
    """

    base: Literal["irm", "iso", "iso_ova", "hb", "hb_ova"] = "irm"
    n_bins: int = 5
    n_neighbours: int = 10

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        self.points = unit_rows(cast(Array, features)).astype(np.float32)
        proximities = proximity(self.points, self.n_neighbours)
        self.proximity_cuts = equal_count_cuts(np.sort(proximities), self.n_bins)
        part = bin_of(self.proximity_cuts, proximities)
        self._bases = [BASES[self.base]() for _ in range(len(self.proximity_cuts) + 1)]
        for number, base in enumerate(self._bases):
            base._fit_noted(logits[part == number], labels[part == number])
        return {"n_bins": len(self._bases), "mean_proximity": float(proximities.mean())}

    def _transform(self, logits: Array, features: Array | None) -> Array:
        part = bin_of(self.proximity_cuts, proximity(self.points, self.n_neighbours, features))
        result = np.empty_like(logits)
        for number, base in enumerate(self._bases):
            result[part == number] = base._transform(logits[part == number], None)
        return result

    def _state(self) -> dict[str, NDArray[Any]]:
        state: dict[str, NDArray[Any]] = {}
        for number, base in enumerate(self._bases):
            for name, value in base._state().items():
                state[f"{number}.{name}"] = value
        return {**state, "points": self.points, "proximity_cuts": self.proximity_cuts}

    def _load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.points = state["points"]
        self.proximity_cuts = state["proximity_cuts"]
        self._bases = [BASES[self.base]() for _ in range(len(self.proximity_cuts) + 1)]
        for number, base in enumerate(self._bases):
            prefix = f"{number}."
            base._load_state(
                {name[len(prefix) :]: state[name] for name in state if name.startswith(prefix)}
            )
