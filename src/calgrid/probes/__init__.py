"""Probes by identifier: measurements that need a trained network itself and not only its logits.

A new probe is a file ``probes/<id>.py``; this one measures how long the feature vectors are::

    import numpy as np
    import pandas as pd

    from calgrid.probes import Probe
    from calgrid.registry import register

    @register(source="an example")
    class FeatureNorm(Probe):
        def measure(self, subject):
            norms = np.linalg.norm(subject.outputs.features, axis=1)
            return pd.DataFrame({"label": subject.labels, "norm": norms})

"""

from typing import TYPE_CHECKING, Any

from calgrid.lazy import lazy_names
from calgrid.registry import load, spec

if TYPE_CHECKING:
    from calgrid.probes.base import Probe, Subject

__all__ = ["Probe", "Subject", "build_probe"]

__getattr__ = lazy_names(__name__, dict.fromkeys(("Probe", "Subject"), "calgrid.probes.base"))


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
