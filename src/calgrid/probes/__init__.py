"""Probes by identifier: measurements that need a trained network itself and not only its logits."""

from typing import TYPE_CHECKING, Any

from calgrid.registry import load, spec

if TYPE_CHECKING:
    from calgrid.probes._base import Probe

__all__ = ["build_probe"]


def build_probe(id: str, **overrides: Any) -> "Probe":
    """Build a probe.

    Parameters
    ----------
    id : registered identifier, for example ``"margin_attack"``.
    **overrides : options that differ from the probe's defaults, for example ``samples=100``.

    Raises
    ------
    ConfigError : unknown ``id`` or option, or a value that it cannot take.
    """
    return load("probe", id)(**spec("probe", id).resolve(overrides))
