"""Training objectives on a batch: one file = one loss = one identifier.

    loss = build_loss("mbls", num_classes=10, dataset="cifar10", lambda_=0.2)
    total = loss(logits, labels)  # scalar float32 tensor; the terms are in loss.last_terms

``calgrid new loss my_loss`` writes a new one, ``losses/my_loss.py``, and its test.
"""

from typing import Any

from calgrid.components import registry
from calgrid.optional import say_extra

with say_extra():
    from calgrid.losses.base import Loss, LossTerms, Terms

__all__ = ["Loss", "LossTerms", "Terms", "build_loss"]


def build_loss(
    id: str,
    num_classes: int,
    dataset: str | None = None,
    backbone: str | None = None,
    **overrides: Any,
) -> Loss:
    """Build a training loss with the published hyper-parameters of a data set.

    Parameters
    ----------
    id : identifier of the loss, the name of its file (``"fedlas_ls"``).
    num_classes : number of classes C, at least 2.
    dataset, backbone : where the loss will be used; they select its published defaults there.
    overrides : hyper-parameters of the loss, and ``reduction`` (``"mean"``, or ``"sum"`` over the
        batch), that win over the defaults. Learned gates and random indicators are initialised from
        torch's global generator.

    Returns
    -------
    A module called ``loss(logits, labels, features=None, index=None)``; see :class:`Loss`.

    Raises
    ------
    ConfigError : the loss or a hyper-parameter does not exist, or a value has the wrong type or
        range.
    """
    loss_class = registry.load("loss", id)
    options = registry.description_of(loss_class).resolve(overrides, dataset, backbone)
    reduction = options.pop("reduction")
    loss: Loss = loss_class(num_classes, **options)
    loss.reduction = reduction
    return loss
