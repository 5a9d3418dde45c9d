"""Two-dimensional t-SNE of penultimate features and of logits (MaC-Cal, Figure 2a and d)."""

from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.manifold import TSNE

from calgrid.components.registry import register
from calgrid.errors import ConfigError
from calgrid.probes.base import Probe, Subject, log_softmax
from calgrid.training.seeds import stream


@register(
    source="van der Maaten & Hinton, Visualizing data using t-SNE, JMLR 2008 (scikit-learn); "
    "MaC-Cal (arXiv 2508.09116), Fig. 2a, d",
    limits={
        "points": "[2, 20000]",
        "perplexity": "[1, 1000]",
        "iterations": "[250, 10000]",
        "seed": "[0, inf)",
    },
)
class Embedding(Probe):
    """t-SNE of a class-balanced sample of test images.

    Only neighbourhoods are meaningful: coordinates of different networks, and sizes of and
    distances between clusters, are not. The paper embeds logits, coloured by label, paler for
    larger entropy; retraining a head on frozen features changes only the logits.

    Initialised by principal components and seeded; on one CPU thread the same features give the
    same bytes.

    Columns: ``space`` (``features`` or ``logits``), ``index`` (position in the test split),
    ``label``, ``x``, ``y`` (no unit), ``correct``, ``confidence``, ``entropy`` (of the softmax,
    nats).

    Parameters
    ----------
    points : maximum number of images, equally many of each class; the same for every run on a data
        set. At least the number of classes.
    space : embedded quantities.
    perplexity : effective number of neighbours; below a third of the number of images.
    iterations : number of optimisation steps. seed : seed of the sample and of t-SNE.
    """

    def __init__(
        self,
        *,
        points: int = 1000,
        space: Literal["features", "logits", "both"] = "both",
        perplexity: float = 30.0,
        iterations: int = 1000,
        seed: int = 0,
    ) -> None:
        self.points, self.perplexity = points, perplexity
        self.iterations, self.seed = iterations, seed
        self.spaces = ("features", "logits") if space == "both" else (space,)

    def measure(self, subject: Subject) -> pd.DataFrame:
        """One row a space and image.

        Raises
        ------
        ConfigError : fewer points than classes, or too few for the perplexity.
        """
        rows = balanced_rows(subject.labels, self.points, self.seed)
        if 3 * self.perplexity > len(rows):
            raise ConfigError(
                f"probe 'embedding': perplexity {self.perplexity:g} needs more than "
                f"{3 * self.perplexity:g} images, and there are {len(rows)} of equal numbers a "
                "class; lower it or raise points."
            )
        log_probs = log_softmax(subject.outputs.logits[rows])
        labels = subject.labels[rows]
        known = pd.DataFrame(
            {
                "index": rows.astype(np.int32),
                "label": labels.astype(np.int32),
                "correct": log_probs.argmax(axis=1) == labels,
                "confidence": np.exp(log_probs.max(axis=1)),
                "entropy": -(np.exp(log_probs) * log_probs).sum(axis=1),
            }
        )
        state = stream(self.seed, "probe", "tsne") % 2**32
        parts = []
        for space in self.spaces:
            tsne = TSNE(
                perplexity=self.perplexity,
                init="pca",
                max_iter=self.iterations,
                random_state=state,
                n_jobs=1,
            )
            places = tsne.fit_transform(getattr(subject.outputs, space)[rows])
            parts.append(known.assign(space=space, x=places[:, 0], y=places[:, 1]))
        return pd.concat(parts, ignore_index=True)


def balanced_rows(labels: NDArray[np.int64], points: int, seed: int) -> NDArray[np.intp]:
    """Rows with equally many of each class in ``labels`` (N,), at most ``points``, ascending.

    Raises
    ------
    ConfigError : fewer points than classes.
    """
    classes, counts = np.unique(labels, return_counts=True)
    if points < len(classes):
        raise ConfigError(
            f"probe 'embedding': {points} points are fewer than the {len(classes)} classes; raise "
            "points to at least that number."
        )
    each = min(points // len(classes), int(counts.min()))
    rng = np.random.default_rng(stream(seed, "probe", "embedding"))
    chosen = [rng.permutation(np.flatnonzero(labels == label))[:each] for label in classes]
    return np.sort(np.concatenate(chosen))
