"""Matrix scaling: a linear map of the logits without a penalty."""

from calgrid.calibrators._linear import FEW_ROWS, LEAST_RIDGE
from calgrid.calibrators._probabilities import Array, Head, History, Labels
from calgrid.calibrators.ms_odir import MAX_VALIDATED, MatrixScalingOdir
from calgrid.components.registry import register
from calgrid.errors import DataError

#: number of rows times squared number of classes up to which double precision is faster, as fits
#: take fewer steps
DOUBLE = 5_000_000


@register(
    source="Guo, Pleiss, Sun, Weinberger, On Calibration of Modern Neural Networks, ICML 2017, "
    "Sec. 4.2; CalArena, arXiv 2605.30188",
    keeps_argmax=False,
    parameters="K^2 + K",
    slow_from=50,
)
class MatrixScaling(MatrixScalingOdir):
    """Matrix scaling, ``softmax(W z + b)`` by validation NLL, "MS" in CalArena.

    ``ms_odir`` with the strength 1e-8, also for the distance of the diagonal from that of ``ts``,
    which makes the minimum unique where classes are separable and has no effect elsewhere: the
    diagonal stays in [0.01, 20], and z is in units of the logits' spread. Over-fits with ``K^2``
    weights unless there are many validation samples; takes at most 200 classes.

    ``fit_history`` is that of ``ms_odir``.
    """

    #: the loss is nearly flat in some directions
    tolerance = 1e-11
    diagonal = LEAST_RIDGE

    def __init__(self) -> None:
        super().__init__()
        self.strength = LEAST_RIDGE

    def _is_exact(self, n_samples: int, n_classes: int) -> bool:
        is_small = n_samples * n_classes**2 <= DOUBLE
        return is_small or n_samples < FEW_ROWS * n_classes

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        n_classes = logits.shape[1]
        if n_classes > MAX_VALIDATED:
            raise DataError(
                "calibrator 'ms' has K^2 weights without a penalty and takes at most "
                f"{MAX_VALIDATED} classes, got {n_classes}; use 'sms'."
            )
        return super()._fit(logits, labels, features, head)
