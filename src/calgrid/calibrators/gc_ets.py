"""Group calibration with an ensemble temperature scaling for each group of a learned partition of the features."""

import numpy as np

from calgrid.calibrators._group_calibration import GroupCalibrator
from calgrid.calibrators._probabilities import softmax
from calgrid.calibrators.base import Array, Labels
from calgrid.calibrators.ets import EnsembleTemperatureScaling
from calgrid.registry import register


@register(
    source="Yang, Zhan, Gan, Beyond Probability Partitions: Calibrating Neural Networks with Semantic Aware Grouping, "
    "NeurIPS 2023; code ThyrixYang/group_calibration, methods/group_calibration.py",
    needs=("logits", "features"),
    keeps_argmax=True,
    parameters="n_partitions (d n_groups + 3 n_groups)",
    stochastic=True,
    limits={
        "seed": "[0, 4294967295]",
        "n_partitions": "[1, 100000]",
        "n_groups": "[1, 100000]",
        "penalty": "[0, inf)",
        "held_out": "[0, 1)",
        "min_group": "[1, inf)",
    },
)
class GroupEnsembleTemperatureScaling(GroupCalibrator):
    """Group calibration combined with ensemble temperature scaling, GC+ETS.

    As ``gc_ts``, but each hard group gets a temperature and mixture weights of lowest squared error, those of ``ets``,
    whose plain softmax is that of the logits as they come: logits of another scale give another map.

    ``fit_history``: ``partition_loss``, ``n_groups_fitted``, ``n_groups_too_small``.

    Parameters
    ----------
    seed : of the starts of W and of the draws.
    n_partitions, n_groups : partitions, and groups in each.
    penalty : weight of the mean square of W.
    held_out : share of the samples, drawn for each partition, that calibrate its groups and do not shape it; with 0
        all samples do both.
    min_group : least samples of a group with a calibrator of its own.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        n_partitions: int = 20,
        n_groups: int = 2,
        penalty: float = 0.1,
        held_out: float = 0.5,
        min_group: int = 50,
    ) -> None:
        super().__init__(
            n_partitions=n_partitions,
            n_groups=n_groups,
            penalty=penalty,
            held_out=held_out,
            min_group=min_group,
            seed=seed,
        )

    def _fit_group(self, logits: Array, labels: Labels) -> tuple[Array, list[str]]:
        fitted = EnsembleTemperatureScaling().fit(logits, labels)
        state = fitted._state()
        return np.concatenate([state["beta"], state["weights"]]), fitted.fit_history["warnings"]

    def _average(self, logits: Array, parameters: Array) -> Array:
        beta, tempered, plain, uniform = np.moveaxis(parameters, 2, 0)[..., None]
        total = plain.sum(axis=0) * softmax(logits) + uniform.sum(axis=0) / logits.shape[1]
        for own_beta, share in zip(beta, tempered, strict=True):
            total += share * softmax(logits * own_beta)
        return total / len(parameters)
