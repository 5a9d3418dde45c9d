"""Training objectives on a batch: one file = one loss = one identifier.

    loss = build_loss("mbls", num_classes=10, dataset="cifar10", lambda_=0.2)
    total = loss(logits, labels)  # scalar float32 tensor; the terms are in loss.last_terms

A new loss is a file ``losses/<id>.py``; this one is the squared error of the probabilities of the labels::

    from calgrid.losses import Loss
    from calgrid.registry import register

    @register(
        source="an example",
        needs=(),
        sees_validation=False,
        hard_labels=True,
        state="none",
        limits={"power": "(0, inf)"},
    )
    class SquaredMiss(Loss):
        def __init__(self, num_classes: int, *, power: float = 2.0) -> None:
            super().__init__(num_classes)
            self.power = power

        def compute(self, logits, labels, features, index):
            chosen = logits.softmax(dim=1).gather(1, labels[:, None])[:, 0]
            total = (1 - chosen).pow(self.power).mean()
            return total, {"miss": total}

"""

from typing import TYPE_CHECKING, Any

from calgrid import registry
from calgrid.lazy import lazy_names

if TYPE_CHECKING:
    from calgrid.losses.base import Loss, Terms

__all__ = ["Loss", "Terms", "build_loss"]

__getattr__ = lazy_names(__name__, dict.fromkeys(("Loss", "Terms"), "calgrid.losses.base"))


def build_loss(
    id: str,
    num_classes: int,
    dataset: str | None = None,
    backbone: str | None = None,
    **overrides: Any,
) -> "Loss":
    """Build a training loss with the published hyper-parameters of a data set.

    Parameters
    ----------
    id : identifier of the loss, the name of its file (``"fedlas_ls"``).
    num_classes : number of classes C, at least 2.
    dataset, backbone : where the loss will be used; they select its published defaults there.
    overrides : hyper-parameters of the loss, and ``reduction`` (``"mean"``, or ``"sum"`` over the batch), that
        win over the defaults. Learned gates and random indicators are initialised from torch's global generator.

    Returns
    -------
    Loss
        A module called ``loss(logits, labels, features=None, index=None)``; see :class:`Loss`.

    Raises
    ------
    ConfigError
        The loss or a hyper-parameter does not exist, or a value has the wrong type or range.
    """
    values = registry.spec("loss", id).resolve(overrides, dataset, backbone)
    reduction = values.pop("reduction")
    loss: Loss = registry.load("loss", id)(num_classes, **values)
    loss.reduction = reduction
    return loss
