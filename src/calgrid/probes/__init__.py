"""Probes by identifier: measurements of a trained network beyond its logits.

``calgrid new probe my_probe`` writes a new one, ``probes/my_probe.py``, and its test.
"""

from typing import TYPE_CHECKING, Any

from calgrid.components.lazy import lazy_names
from calgrid.components.registry import load, spec

if TYPE_CHECKING:
    from calgrid.probes.base import Probe, Subject

__all__ = ["Probe", "Subject", "build_probe"]

__getattr__, __dir__ = lazy_names(
    __name__, dict.fromkeys(("Probe", "Subject"), "calgrid.probes.base")
)


def build_probe(id: str, **overrides: Any) -> "Probe":
    """Return a probe.

    Raises ConfigError: unknown ``id`` or option, or a value that it cannot take.

    Parameters
    ----------
    id : registered identifier, for example ``"margin_attack"``.
    **overrides : options that differ from the probe's defaults, for example ``samples=100``.
    """
    return load("probe", id)(**spec("probe", id).resolve(overrides))
