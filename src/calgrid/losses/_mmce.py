"""What both forms of the maximum mean calibration error share (Kumar et al., ICML 2018)."""

from torch import Tensor

#: width of the Laplacian kernel in units of confidence, as in all official code
WIDTH = 0.4


def top_confidence(log_probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return confidence ``max_c p_c`` (N,) and correctness (N,) as 0.0 or 1.0, which carries no gradient."""
    largest, predicted = log_probs.max(dim=1)
    return largest.exp(), (predicted == labels).float()


def kernel_form(left: Tensor, right: Tensor, pairs: Tensor) -> Tensor:
    """``sum_ij a_i b_j k_ij``, scalar, of weights a, b (N,) and a kernel (N, N).

    Not a matrix product, which a GPU may compute in TF32.
    """
    return (left * (pairs * right).sum(dim=1)).sum()


def kernel(confidence: Tensor) -> Tensor:
    """Laplacian kernel ``exp(-|k_i - k_j| / 0.4)`` (N, N) of confidences (N,); the gradient flows through it."""
    return ((confidence.unsqueeze(0) - confidence.unsqueeze(1)).abs() / -WIDTH).exp()
