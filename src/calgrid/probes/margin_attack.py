"""Smallest FGSM perturbation that changes the predicted class, beside the logit margin (SMART,
Figure 1a).
"""

from collections.abc import Callable

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from calgrid.components.registry import register
from calgrid.probes.base import Probe, Subject
from calgrid.training.data import EVALUATION_BATCH, Batch
from calgrid.training.seeds import stream

#: gradients need several times the memory of a forward pass
ATTACKED_AT_ONCE = EVALUATION_BATCH // 4
Changed = Callable[[Tensor], Tensor]


@register(
    source="SMART (arXiv 2506.23492), Fig. 1a; Goodfellow et al., Explaining and harnessing "
    "adversarial examples, ICLR 2015, Sec. 4",
    limits={
        "samples": "[2, inf)",
        "eps_max": "[1e-6, 1]",
        "steps": "[1, 200]",
        "bisections": "[0, 50]",
        "seed": "[0, inf)",
    },
)
class MarginAttack(Probe):
    """Minimal FGSM perturbation of each image and the margin between its two largest logits.

    For an image x with pixels in [0, 1] and predicted class c, the sign of the gradient is the
    direction of the attack, and the perturbation is the smallest length at which another class is
    predicted::

        s = sign grad_x (-log p_c(x))
        eps*(x) = min { eps > 0 : argmax z(clip(x + eps s, 0, 1)) != c }

    eps is the L-infinity norm in units of pixel values in [0, 1]: 1/255 is one step of an 8-bit
    image. The attack is on the predicted class, not on the label: it measures the distance to the
    decision boundary, also for misclassified images (column ``correct``).

    The implementation uses the gradient of ``logsumexp_{k != c} z_k - z_c``. The gradient of -log
    p_c is the same times 1 - p_c, which is 0 in float32 if the softmax is saturated, as for images
    with the largest margins.

    eps* is found by trying ``eps_max / 2^(j / 2)`` for j = ``steps`` - 1 .. 0 in ascending order,
    and bisecting the bracket before the first change of class ``bisections`` times. Its relative
    error is below 2^(-1 - bisections); below the smallest tried length its absolute error is that
    length times 2^-bisections. Changes back within one bracket are missed. An image whose class
    does not change up to ``eps_max`` is ``censored``: its ``epsilon`` is ``eps_max``, a lower
    bound.

    The paper does not specify its search, its networks, or whether pixels are clipped.

    Columns: ``index`` (position in the test split), ``label``, ``predicted``, ``correct``,
    ``confidence``, ``margin`` (logits), ``epsilon``, ``censored``.

    Parameters
    ----------
    samples : number of random test images; the same for every run on a data set.
    eps_max : largest tried length. steps, bisections : as above.
    seed : seed of the sample.
    """

    samples: int = 500
    eps_max: float = 0.5
    steps: int = 21
    bisections: int = 10
    seed: int = 0

    def measure(self, subject: Subject) -> pd.DataFrame:
        """One row per image."""
        rng = np.random.default_rng(stream(self.seed, "probe", "margin_attack"))
        rows = np.sort(rng.permutation(len(subject.labels))[: self.samples])
        batches = subject.images(rows).batches(ATTACKED_AT_ONCE, filled=True)
        parts = [self._attack(subject, batch) for batch in batches]
        table = pd.concat(parts, ignore_index=True)[: len(rows)]
        return table.assign(index=rows[table["index"]].astype(np.int32))

    def _attack(self, subject: Subject, batch: Batch) -> pd.DataFrame:
        """Attack a batch; ``index`` is the position in the sample."""
        mean, std = (
            torch.tensor(each, dtype=torch.float32, device=subject.device).view(1, -1, 1, 1)
            for each in subject.prepared.normalisation
        )
        images = batch.images.detach().requires_grad_()
        logits = subject.logits(images, batch.index)
        top, predicted = logits.detach().double().topk(2, dim=1)
        chosen = predicted[:, :1]
        others = logits.scatter(1, chosen, float("-inf")).logsumexp(dim=1)
        (gradient,) = torch.autograd.grad(
            (others - logits.gather(1, chosen).squeeze(1)).sum(), images
        )
        step, low, high = gradient.sign() / std, -mean / std, (1 - mean) / std

        @torch.no_grad()
        def changed(epsilon: Tensor) -> Tensor:
            moved = batch.images + epsilon.float().view(-1, 1, 1, 1) * step
            return subject.logits(moved.clamp(low, high), batch.index).argmax(dim=1) != chosen[:, 0]

        epsilon, found = self._smallest(changed, len(batch), subject.device)
        probabilities = logits.detach().double().softmax(dim=1)
        columns = {
            "index": batch.index,
            "label": batch.labels.int(),
            "predicted": chosen[:, 0].int(),
            "correct": chosen[:, 0] == batch.labels,
            "confidence": probabilities.amax(dim=1),
            "margin": top[:, 0] - top[:, 1],
            "epsilon": epsilon,
            "censored": ~found,
        }
        return pd.DataFrame({name: values.cpu().numpy() for name, values in columns.items()})

    def _smallest(
        self, changed: Changed, count: int, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        """Smallest lengths (B,) at which ``changed`` holds, else ``eps_max``, and (B,) whether one
        was found.
        """
        low = torch.zeros(count, dtype=torch.float64, device=device)
        high = torch.full_like(low, self.eps_max)
        found = torch.zeros(count, dtype=torch.bool, device=device)
        for place in reversed(range(self.steps)):
            tried = torch.full_like(low, self.eps_max * 2 ** (-place / 2))
            now = changed(tried)
            high = torch.where(now & ~found, tried, high)
            found = found | now
            low = torch.where(found, low, tried)
        for _ in range(self.bisections):
            middle = (low + high) / 2
            now = changed(middle)
            high = torch.where(found & now, middle, high)
            low = torch.where(found & ~now, middle, low)
        return high, found
