"""Probes by identifier: measurements of a trained network beyond its logits.

``calgrid new probe my_probe`` writes a new one, ``probes/my_probe.py``, and its test.
"""

from typing import Any

from calgrid.components.registry import description_of, load
from calgrid.optional import say_extra

with say_extra():
    from calgrid.probes.base import Probe, Subject

__all__ = ["Probe", "Subject", "build_probe"]


def build_probe(id: str, **overrides: Any) -> Probe:
    """Return a probe.

    Parameters
    ----------
    id : registered identifier, for example ``"margin_attack"``.
    **overrides : options that differ from the probe's defaults, for example ``samples=100``.

    Raises
    ------
    ConfigError : unknown ``id`` or option, or a value that it cannot take.
    """
    probe = load("probe", id)
    return probe(**description_of(probe).resolve(overrides))
