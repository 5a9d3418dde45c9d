"""Group calibration with an ensemble temperature scaling for each group of a learned partition of
the features.
"""

import numpy as np

from calgrid.calibrators._probabilities import Array, Labels, softmax
from calgrid.calibrators.ets import EnsembleTemperatureScaling, uniform
from calgrid.calibrators.gc_ts import LIMITS, SOURCE, GroupTemperatureScaling
from calgrid.components.registry import register


@register(
    source=SOURCE,
    needs=("logits", "features"),
    keeps_argmax=True,
    parameters="n_partitions (d n_groups + 3 n_groups)",
    limits=LIMITS,
)
class GroupEnsembleTemperatureScaling(GroupTemperatureScaling):
    """Group calibration combined with ensemble temperature scaling, GC+ETS.

    As ``gc_ts``, but each hard group gets temperature and mixture weights of lowest squared error,
    as in ``ets``. The map depends on the scale of the logits, because the plain softmax is that of
    the unscaled logits. ``fit_history`` and parameters are those of ``gc_ts``.
    """

    scale_free = False

    def _fit_group(self, logits: Array, labels: Labels) -> tuple[Array, list[str]]:
        fitted = EnsembleTemperatureScaling().fit(logits, labels)
        return np.append(fitted.beta, fitted.weights), fitted.fit_history["warnings"]

    def _unchanged(self) -> Array:
        return np.array([1.0, 0.0, 1.0, 0.0])

    def _loss(self, probabilities: Array, labels: Labels) -> float:
        of_label = np.take_along_axis(probabilities, labels[:, None], axis=1)
        return float((np.square(probabilities).sum(axis=1) - 2.0 * of_label[:, 0]).mean()) + 1.0

    def _average(self, logits: Array, parameters: Array) -> Array:
        beta, tempered, plain, equal = np.moveaxis(parameters, 2, 0)[..., None]
        total = plain.sum(axis=0) * softmax(logits) + equal.sum(axis=0) * uniform(logits)
        for partition_beta, share in zip(beta, tempered, strict=True):
            total += share * softmax(logits * partition_beta)
        return total / len(parameters)
