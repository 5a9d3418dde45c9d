"""Training procedures by identifier.

``calgrid new procedure my_procedure`` writes a new one, ``procedures/my_procedure.py``, and its
test. It overrides some hooks of :class:`Procedure`.
"""

from typing import Any

from calgrid.components.registry import description_of, load
from calgrid.optional import say_extra

with say_extra():
    from calgrid.training.procedure import Procedure, Training

__all__ = ["Procedure", "Training", "build_procedure"]


def build_procedure(
    id: str, dataset: str | None = None, backbone: str | None = None, **overrides: Any
) -> Procedure[Any]:
    """Return a procedure with the defaults of ``dataset`` and ``backbone``, changed by
    ``overrides``.

    Raises
    ------
    ConfigError : unknown ``id`` or hyper-parameter, or invalid value.
    """
    procedure = load("procedure", id)
    return procedure(**description_of(procedure).resolve(overrides, dataset, backbone))
