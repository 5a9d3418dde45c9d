"""Angles between the prototypes of classes (MaC-Cal, Figure 2b and e)."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calgrid.components.registry import register
from calgrid.probes.base import Array, Probe, Subject


@register(
    source="MaC-Cal (arXiv 2508.09116), Fig. 2b, e; centred angles as in Papyan, Han & Donoho, "
    "Neural collapse, PNAS 2020"
)
class PrototypeAngles(Probe):
    """Pairwise angles between class prototypes, of three kinds.

    ``features``: means of the penultimate features over the test images of each class. ``logits``:
    means of the logits. ``head``: rows of the last linear layer with the mask of predictions (for a
    second stage, the last layer of the new head), if there is one. The paper does not define its
    prototypes. Retraining a head on frozen features does not change ``features``.

    ``angle`` is the angle between the vectors, ``angle_centred`` that after subtracting the mean of
    all prototypes. In a simplex, with all classes equally far apart, the centred angles are
    arccos(-1 / (K - 1)): 96.4 degrees for ten classes.

    Columns: ``of``, ``class_a``, ``class_b`` (each pair once, a < b), ``angle``, ``angle_centred``
    in degrees, NaN if a vector is zero. Classes without test images only have rows of ``head``.
    """

    def measure(self, subject: Subject) -> pd.DataFrame:
        """One row per kind of prototype and pair of classes."""
        present = np.unique(subject.labels)
        parts = []
        for of, values in subject.outputs._asdict().items():
            means = []
            for label in present:
                means.append(values[subject.labels == label].mean(axis=0, dtype=np.float64))
            parts.append(_angles(of, np.stack(means), present))
        if (layer := subject.last_layer()) is not None:
            weight = layer.weight.cpu().numpy().astype(np.float64)
            parts.append(_angles("head", weight, np.arange(len(weight))))
        return pd.concat(parts, ignore_index=True)


def _angles(of: str, vectors: Array, classes: NDArray[np.int64]) -> pd.DataFrame:
    first, second = np.triu_indices(len(vectors), k=1)
    return pd.DataFrame(
        {
            "of": of,
            "class_a": classes[first].astype(np.int32),
            "class_b": classes[second].astype(np.int32),
            "angle": pairwise_angles(vectors)[first, second],
            "angle_centred": pairwise_angles(vectors - vectors.mean(axis=0))[first, second],
        }
    )


def pairwise_angles(vectors: Array) -> Array:
    """Angles (C, C) in degrees between vectors (C, d), to about 1e-6; NaN if one is zero."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = np.divide(vectors, norms, out=np.full_like(vectors, np.nan), where=norms > 0)
    return np.degrees(np.arccos(np.clip(units @ units.T, -1.0, 1.0)))
