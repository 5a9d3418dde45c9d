"""Class-based temperature scaling: a temperature for each class, chosen greedily by calibration error."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._class_temperatures import ClassTemperatures
from calgrid.calibrators._probabilities import centred, softmax
from calgrid.calibrators._temperature import fit_temperature, temperature_range
from calgrid.calibrators.base import Array, Calibrator, Head, Labels
from calgrid.registry import register

#: candidates for the temperature of a class
GRID = np.arange(5, 51) / 10.0
#: minimum decrease of the error, so that rounding never changes a temperature
LEAST_GAIN = 1e-12


@register(
    source="Frenkel & Goldberger, Network Calibration by Class-based Temperature Scaling, EUSIPCO 2021",
    keeps_argmax=False,
    parameters="K",
    limits={"sweeps": "[1, inf)", "n_bins": "[1, 1000000]"},
)
class ClassTemperatureScaling(Calibrator):
    """Class-based temperature scaling (CTS), ``softmax(z_k / T_k)``.

    All T_k start from the temperature of ``ts``, clipped to [0.5, 5]. A sweep sets T_k of each class in turn to the
    value in 0.5, 0.6, ..., 5.0 with the lowest validation ECE over all samples, the others fixed, if this is lower than
    before. Sweeps end when nothing changes. Classes without validation samples keep their T.

    The authors' code (liorfrenkel1992/calibration) starts from the best ECE among T = 0.1, ..., 10.0, and takes the
    same grid for the classes in one sweep; a later version moves each T by at most 0.2. Start, grid, sweeps and the
    accuracy guard here are those of a public port, calibench. z is the logits minus the mean of their row, because
    the map is not invariant to a constant added to a row; public code uses the logits without this. The grid is one of
    temperatures of the unscaled logits, so the map depends on their scale.

    ``fit_history``: ``loss`` (ECE at the start and after each sweep), ``sweeps``, ``changed`` (classes whose
    temperature changed, for each sweep), ``start_temperature``, ``temperature_min``, ``_mean``, ``_max``.

    Parameters
    ----------
    sweeps : maximum number of sweeps through the classes.
    n_bins : equal-width bins of the ECE.
    keep_accuracy : reject temperatures that lower the accuracy on the validation samples.
    """

    def __init__(self, *, sweeps: int = 5, n_bins: int = 15, keep_accuracy: bool = True) -> None:
        super().__init__()
        self.sweeps, self.n_bins, self.keep_accuracy = sweeps, n_bins, keep_accuracy

    def _fit(self, logits: Array, labels: Labels, features: Array | None, head: Head | None) -> dict[str, Any]:
        n_classes = logits.shape[1]
        start = float(np.clip(fit_temperature(logits, labels).temperature, GRID[0], GRID[-1]))
        search = ClassTemperatures(centred(logits), labels, np.full(n_classes, start), GRID, self.n_bins)
        present, losses = np.unique(labels), [search.current()[0]]
        changed: list[int] = []
        while len(changed) < self.sweeps and (not changed or changed[-1]):
            changed.append(self._sweep(search, present))
            search.refresh()
            losses.append(search.current()[0])
        self.temperatures = search.temperatures
        return {
            "loss": losses,
            "sweeps": len(changed),
            "changed": changed,
            "start_temperature": start,
            **temperature_range(self.temperatures),
            "warnings": self._warnings(),
        }

    def _warnings(self) -> list[str]:
        at_end = int(((self.temperatures == GRID[0]) | (self.temperatures == GRID[-1])).sum())
        if not at_end:
            return []
        return [
            f"{at_end} of {len(self.temperatures)} classes have the smallest or largest temperature of the grid, "
            f"{GRID[0]:g} or {GRID[-1]:g}: one beyond may do better."
        ]

    def _sweep(self, search: ClassTemperatures, classes: NDArray[np.int64]) -> int:
        """Search the grid for each class in turn; return the number of changed temperatures."""
        lowest, correct = search.current()
        changed = 0
        for label in classes.tolist():
            errors, right = search.errors(label)
            if self.keep_accuracy:
                errors = np.where(right >= correct, errors, np.inf)
            best = int(errors.argmin())
            if errors[best] < lowest - LEAST_GAIN:
                search.accept(label, float(GRID[best]))
                lowest, correct = float(errors[best]), int(right[best])
                changed += 1
        return changed

    def _transform(self, logits: Array, features: Array | None) -> Array:
        scaled = centred(logits) / self.temperatures
        scaled -= scaled.max(axis=1, keepdims=True)
        return softmax(scaled)
