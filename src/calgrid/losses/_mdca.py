"""Multi-class difference of confidence and accuracy, MDCA (Hebbalaguppe et al., CVPR 2022, arXiv 2203.13834)."""

from torch import Tensor

from calgrid.losses._terms import one_hot


def frequency_gap(probs: Tensor, labels: Tensor) -> Tensor:
    """``(1/C) sum_c |mean_i p_ic - mean_i 1[y_i = c]|``, scalar, of probabilities (N, C) and labels (N,).

    The factor 1/C makes the term small for many classes, and at N < C the batch frequencies are mostly noise.
    """
    return (probs.mean(dim=0) - one_hot(labels, probs.shape[1]).mean(dim=0)).abs().mean()
