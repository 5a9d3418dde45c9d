"""Sorted features of easy and of hard images (FeDLaS, Figure 1d)."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calgrid.components.registry import register
from calgrid.probes.base import Array, Probe, Subject, log_softmax

#: quantiles of the columns q10, q50 and q90
QUANTILES = {"q10": 0.1, "q50": 0.5, "q90": 0.9}


@register(source="FeDLaS (arXiv 2606.28654), Fig. 1d", limits={"images": "[1, inf)"})
class FeatureProfiles(Probe):
    """Sorted magnitudes of penultimate features, averaged over the easiest, the hardest and all
    images.

    The profile of an image is its absolute features in descending order, whose sum is the L1 norm
    of the features. Easy images have the highest label probability (lowest cross-entropy), hard
    images the lowest; ties by position. The paper shows a few images of MNIST without saying how
    they were chosen.

    Columns: ``group`` (``easy``, ``hard``, ``all``), ``rank`` (1 is the largest feature), ``mean``,
    ``q10``, ``q50``, ``q90`` of the magnitude over the group's images, and constant in a group
    ``images``, ``l1`` (mean L1 norm), ``l1_std`` (its standard deviation over images, 0 for one
    image) and ``accuracy``.

    Parameters
    ----------
    images : number of images per group easy and hard; at most half of the test split.
    """

    images: int = 100

    def measure(self, subject: Subject) -> pd.DataFrame:
        """One row per group and rank."""
        features, logits = subject.outputs
        rows = np.arange(len(subject.labels))
        label_log_probs = log_softmax(logits)[rows, subject.labels]
        correct = logits.argmax(axis=1) == subject.labels
        profiles = sorted_profiles(features)
        ranks = np.arange(1, profiles.shape[1] + 1, dtype=np.int32)
        parts = []
        for group, members in difficulty_groups(label_log_probs, self.images).items():
            norms = profiles[members].sum(axis=1)
            facts = {
                "images": np.int32(len(members)),
                "l1": norms.mean(),
                "l1_std": norms.std(ddof=1) if len(members) > 1 else 0.0,
                "accuracy": correct[members].mean(),
            }
            quantiles = np.quantile(profiles[members], list(QUANTILES.values()), axis=0)
            columns = {
                "mean": profiles[members].mean(axis=0),
                **dict(zip(QUANTILES, quantiles, strict=True)),
            }
            parts.append(pd.DataFrame({"rank": ranks, **columns}).assign(group=group, **facts))
        return pd.concat(parts, ignore_index=True)


def sorted_profiles(features: NDArray[np.float32]) -> Array:
    """Magnitudes of features (N, d), each row in descending order."""
    return -np.sort(-np.abs(features.astype(np.float64)), axis=1)


def difficulty_groups(label_log_probs: Array, images: int) -> dict[str, NDArray[np.intp]]:
    """Rows of the easiest, hardest and all images by the log-probability of their label (N,)."""
    order = np.argsort(-label_log_probs, kind="stable")
    count = max(1, min(images, len(order) // 2))
    return {"easy": order[:count], "hard": order[::-1][:count], "all": order}
