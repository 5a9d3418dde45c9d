"""Images whose feature norm contradicts the correctness of the prediction: failure cases of
FeDLaS's indicator.
"""

import io
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image

from calgrid.class_names import first_difference, is_other_order
from calgrid.components.registry import register
from calgrid.errors import ConfigError
from calgrid.metrics import auroc
from calgrid.probes.base import Probe, Subject, log_softmax


@register(
    source="asked for by a review of FeDLaS (arXiv 2606.28654); indicator of Eqs. 10-12",
    limits={"images": "[1, inf)"},
)
class Misjudged(Probe):
    """Wrong predictions with the largest feature norms, and correct predictions with the smallest
    ones.

    The indicator is that of FeDLaS on the test split: ``(n - mean(n)) / std(n)``, n the L1 norm of
    the penultimate features. A large value indicates a confident prediction, so the two groups are
    the worst errors of the indicator.

    Columns: ``group`` (``wrong``: wrong predictions, largest norm first; ``right``: correct ones,
    smallest norm first), ``rank`` from 1, ``index`` of the image, ``class`` and ``answer`` (true
    and predicted class, as number or name), ``confidence`` (largest softmax probability),
    ``indicator``, ``picture`` (PNG), and constant in a table ``auroc`` (AUROC of the norm for
    correctness, all test images) and ``auroc_confidence`` (the same for the confidence). An empty
    group has no rows, and then the AUROCs are 0.5.

    Parameters
    ----------
    images : maximum number of images per group.
    class_names : names of all classes in order; None uses numbers.
    """

    images: int = 8
    class_names: Sequence[str] | None = None

    def measure(self, subject: Subject) -> pd.DataFrame:
        """One row per image.

        Raises
        ------
        ConfigError : ``class_names`` do not match the data set.
        """
        names = self.class_names or [str(number) for number in range(subject.num_classes)]
        if len(names) != subject.num_classes:
            raise ConfigError(
                f"class_names of the probe misjudged has {len(names)} names, but the data set has "
                f"{subject.num_classes} classes; name each of them once."
            )
        known = subject.prepared.manifest.get("classes")
        if known and is_other_order(names, known):
            raise ConfigError(
                "class_names of the probe misjudged has the classes of the data set in another "
                f"order ({first_difference(names, known)}); write them in its order."
            )
        features, logits = subject.outputs
        answer, confidence = logits.argmax(axis=1), np.exp(log_softmax(logits).max(axis=1))
        correct = answer == subject.labels
        norm = np.abs(features.astype(np.float64)).sum(axis=1)
        indicator = (norm - norm.mean()) / (norm.std() or 1.0)
        order = np.argsort(norm, kind="stable")
        groups = {"wrong": order[::-1][~correct[order[::-1]]], "right": order[correct[order]]}
        parts = []
        for group, members in groups.items():
            index = members[: self.images].astype(np.int32)
            ranks = np.arange(1, len(index) + 1, dtype=np.int32)
            parts.append(pd.DataFrame({"group": group, "rank": ranks, "index": index}))
        table = pd.concat(parts, ignore_index=True)
        rows = table["index"].to_numpy()
        both = correct.any() and not correct.all()
        images = subject.prepared.splits["test"].images[rows]
        table["class"] = np.array(names)[subject.labels[rows]]
        return table.assign(
            answer=np.array(names)[answer[rows]],
            confidence=confidence[rows],
            indicator=indicator[rows],
            picture=list(map(_png, images)),
            auroc=auroc(norm[correct], norm[~correct]) if both else 0.5,
            auroc_confidence=auroc(confidence[correct], confidence[~correct]) if both else 0.5,
        )


def _png(image: NDArray[np.uint8]) -> bytes:
    """An image (3, H, W) as the bytes of a PNG file."""
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))).save(buffer, format="png")
    return buffer.getvalue()
