"""Training procedures by identifier: how a method uses the one training loop."""

from typing import TYPE_CHECKING, Any

from calgrid.registry import load, spec

if TYPE_CHECKING:
    from calgrid.procedures._base import Procedure

__all__ = ["build_procedure"]


def build_procedure(id: str, dataset: str | None = None, backbone: str | None = None, **overrides: Any) -> "Procedure":
    """Build a procedure with the defaults of ``dataset`` and ``backbone``, changed by ``overrides``.

    Raises
    ------
    ConfigError : unknown ``id`` or hyper-parameter, or a value of the wrong type.
    """
    options = spec("procedure", id).resolve(overrides, dataset, backbone)
    return load("procedure", id)(**options)
