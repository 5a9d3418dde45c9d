"""Training procedures by identifier.

``calgrid new procedure my_procedure`` writes a new one, ``procedures/my_procedure.py``, and its
test. It overrides some hooks of :class:`Procedure`.
"""

from typing import TYPE_CHECKING, Any

from calgrid.components.lazy import lazy_names
from calgrid.components.registry import load, spec

if TYPE_CHECKING:
    from calgrid.training.procedure import Procedure, Training

__all__ = ["Procedure", "Training", "build_procedure"]

__getattr__, __dir__ = lazy_names(
    __name__, dict.fromkeys(("Procedure", "Training"), "calgrid.training.procedure")
)


def build_procedure(
    id: str, dataset: str | None = None, backbone: str | None = None, **overrides: Any
) -> "Procedure":
    """Return a procedure with the defaults of ``dataset`` and ``backbone``, changed by
    ``overrides``.

    Raises
    ------
    ConfigError : unknown ``id`` or hyper-parameter, or invalid value.
    """
    options = spec("procedure", id).resolve(overrides, dataset, backbone)
    return load("procedure", id)(**options)
