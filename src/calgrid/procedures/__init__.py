"""Training procedures by identifier: how a method uses the one training loop.

A new procedure is a file ``procedures/<id>.py`` with a class that overrides some hooks of :class:`Procedure`; this one
adds noise to the images of each training step::

    import torch

    from calgrid.procedures import Procedure
    from calgrid.registry import register

    @register(source="an example", losses="any", limits={"scale": "[0, inf)"})
    class NoisyImages(Procedure):
        def __init__(self, *, scale: float = 0.1) -> None:
            super().__init__()
            self.scale = scale

        def forward_loss(self, model, loss, batch):
            features = model.features(batch.images + self.scale * torch.randn_like(batch.images))
            logits = model.head(features)
            return logits, loss(logits, batch.labels, features=features, index=batch.index)

"""

from typing import TYPE_CHECKING, Any

from calgrid.lazy import lazy_names
from calgrid.registry import load, spec

if TYPE_CHECKING:
    from calgrid.training.procedure import Procedure, Training

__all__ = ["Procedure", "Training", "build_procedure"]

__getattr__ = lazy_names(__name__, dict.fromkeys(("Procedure", "Training"), "calgrid.training.procedure"))


def build_procedure(id: str, dataset: str | None = None, backbone: str | None = None, **overrides: Any) -> "Procedure":
    """Build a procedure with the defaults of ``dataset`` and ``backbone``, changed by ``overrides``.

    Raises
    ------
    ConfigError : unknown ``id`` or hyper-parameter, or a value of the wrong type.
    """
    options = spec("procedure", id).resolve(overrides, dataset, backbone)
    return load("procedure", id)(**options)
