"""FeDLaS: Feature-Modulated Bidirectional Label Smoothing (ECCV 2026, arXiv 2606.28654).

The three modules of the paper, as in its official code (nadarasarbahavan/FEDLAS,
calibrate/losses/fedlas.py):

- NCI, norm-based confidence indicator (Eqs. 10-12): ``gamma_i = (n_i - mu) / (sigma + eps)``, n the
  L1 norm of the features, mu and sigma moving averages;
- BCG, bidirectional calibration gate (Eqs. 8-9): ``psi_i`` in {-1, +1} from the logits, with a
  straight-through gradient;
- ASM, adaptive smoothing module (Eq. 7): ``a_i = 2 alpha sigmoid(beta psi_i gamma_i)``,
  in (0, 2 alpha).
"""

import functools
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Literal, cast

import torch
from torch import Tensor, nn

from calgrid.losses._samples import SampleRecord
from calgrid.losses.base import Loss, LossTerms, cross_entropy

#: initial moving averages of the official code; with momentum >= 0.5 they have no effect after 15
#: steps
OFFICIAL_MEAN, OFFICIAL_STD = 20.0, 100.0

#: indicator -> n_i (N,) from logits (N, C) and features (N, d)
STATISTICS: Mapping[str, Callable[[Tensor, Tensor | None], Tensor]] = {
    "nci_l1": lambda logits, features: cast(Tensor, features).abs().sum(dim=1),
    "maxprob": lambda logits, features: logits.softmax(dim=1).amax(dim=1),
    "maxlogit": lambda logits, features: logits.amax(dim=1),
}


class StandardisedIndicator(nn.Module):
    """Indicator ``gamma = (n - mu) / (sigma + eps)`` with moving averages mu, sigma over the
    training batches.

    In training mode the averages are updated before they normalise the same batch, as in the
    official code: ``mu <- theta mean(n) + (1 - theta) mu``, and sigma from the unbiased standard
    deviation. A batch of one sample has no standard deviation and does not update them. In
    evaluation mode they are constant.

    Parameters
    ----------
    name : key of ``STATISTICS``.
    momentum : theta, weight of the current batch, in [0, 1].
    start : initial averages: ``constants`` of the official code, or the values of the
        ``first_batch``, before which gamma is 0, so that the smoothing is alpha. ``auto`` uses the
        constants for the L1 norm with momentum >= 0.5; in other cases they would dominate (small
        momentum) or be far from the scale of the statistic.
    """

    mean: Tensor
    std: Tensor
    started: Tensor

    def __init__(
        self, name: str, momentum: float, start: Literal["auto", "constants", "first_batch"]
    ) -> None:
        super().__init__()
        self.name = name
        self.momentum = momentum
        # probabilities have standard deviations near 0.01, for which the 1e-3 of the official code
        # is too large
        self.eps = 1e-3 if name == "nci_l1" else 1e-6
        if start == "auto":
            start = "constants" if name == "nci_l1" and momentum >= 0.5 else "first_batch"
        constants = start == "constants"
        self.register_buffer("mean", torch.tensor(OFFICIAL_MEAN if constants else 0.0))
        self.register_buffer("std", torch.tensor(OFFICIAL_STD if constants else 1.0))
        self.register_buffer("started", torch.tensor(constants))

    def forward(self, logits: Tensor, features: Tensor | None) -> tuple[Tensor, Tensor]:
        """Update the averages (training mode); return n and gamma (N,) of logits (N, C) and
        features (N, d).
        """
        values = STATISTICS[self.name](logits, features)
        if self.training and len(values) > 1:
            weight = torch.where(self.started, self.momentum, 1.0)
            std, mean = torch.std_mean(values, correction=1)
            self.mean.lerp_(mean, weight)
            self.std.lerp_(std, weight)
            self.started.fill_(True)
        gamma = (values - self.mean) / (self.std + self.eps)
        return values, torch.where(self.started, gamma, 0.0)


class ConstantIndicator(nn.Module):
    """Indicator gamma = 1 for every sample, ``a = 2 alpha sigmoid(+-beta)``: the gate alone
    decides.

    gamma is not standardised: a standardised constant would be 0, without an effect or a gradient
    of the gate.
    """

    def forward(self, logits: Tensor, features: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return n and gamma, ones (N,)."""
        ones = logits.new_ones(len(logits))
        return ones, ones


class RandomIndicator(nn.Module):
    """Indicator gamma ~ N(0, 1), new in each step: the scale of a z-score without information.

    It has its own generator on the CPU, seeded from torch's global one, so that all devices get the
    same numbers and other draws of the run do not change; its state is saved with the module.
    """

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(int(torch.randint(2**62, ())))

    def forward(self, logits: Tensor, features: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return n and gamma, the same standard normal draws (N,)."""
        draws = torch.randn(len(logits), generator=self.generator)
        draws = draws.to(logits.device, non_blocking=True)
        return draws, draws

    def get_extra_state(self) -> Tensor:
        """Return the state of the generator, saved in ``state_dict``."""
        return self.generator.get_state()

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the state of the generator."""
        self.generator.set_state(state.cpu())


class LearnedGate(nn.Module):
    """Gate ``psi = sign(pi_1 - pi_0)``, ``pi = softmax(MLP(s))``; in the backward pass sign is the
    identity.

    ``sign(0) = 0`` as in the code (-1 in the paper), for which the smoothing is alpha.

    Parameters
    ----------
    num_classes : number of classes C; the hidden layer has C // 2 units, as in the official code.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        hidden = num_classes // 2
        self.mlp = nn.Sequential(
            nn.Linear(num_classes, hidden), nn.LeakyReLU(0.01), nn.Linear(hidden, 2)
        )

    def forward(self, logits: Tensor) -> Tensor:
        """Return psi (N,) in {-1, 0, +1} of detached logits (N, C)."""
        pi_0, pi_1 = self.mlp(logits).softmax(dim=1).unbind(dim=1)
        d = pi_1 - pi_0
        value = d.detach()
        # the bracket is 0 in the forward pass and has gradient 1 in the backward pass
        return value.sign() + (d - value)


def fixed_gate(psi: float, logits: Tensor) -> Tensor:
    """Return the gate psi (N,), +1 or -1 for every sample of logits (N, C)."""
    return logits.new_full((len(logits),), psi)


class FeDLaS(Loss):
    """Loss ``mean((1 - a_i) CE_i + a_i Reg_i)``; a subclass defines the regulariser Reg.

    gamma is computed from detached features and logits, psi is not detached: the gate reduces the
    training loss, by ``dL/dpsi_i = (1/N) (Reg_i - CE_i) 2 alpha beta gamma_i sigmoid'(beta psi_i
    gamma_i)``. Its parameters are in the optimiser of the network (official code: same group) and
    excluded from gradient clipping.

    Diagnostics are computed over the samples of an epoch if calls get their ``index``: see
    ``_samples``.

    Parameters
    ----------
    strength : alpha, mean of the smoothing range (0, 2 alpha), in [0, 0.5] so that weights stay
        non-negative.
    beta : slope of the smoothing in gamma, at least 0; 0 smooths every sample by alpha.
    momentum, indicator, gate, ema_start : as in ``fedlas_ls``.
    """

    #: name of the regulariser in ``last_terms``
    regulariser_name: str

    def __init__(
        self,
        num_classes: int,
        strength: float,
        *,
        beta: float,
        momentum: float = 0.95,
        indicator: Literal["nci_l1", "maxprob", "maxlogit", "const", "random"] = "nci_l1",
        gate: Literal["learned", "positive", "negative"] = "learned",
        ema_start: Literal["auto", "constants", "first_batch"] = "auto",
    ) -> None:
        super().__init__(num_classes)
        self.strength = strength
        self.beta = beta
        self.needs = ("features",) if indicator == "nci_l1" else ()
        self.indicator: nn.Module
        if indicator == "const":
            self.indicator = ConstantIndicator()
        elif indicator == "random":
            self.indicator = RandomIndicator()
        else:
            self.indicator = StandardisedIndicator(indicator, momentum, ema_start)
        self.gate: Callable[[Tensor], Tensor]
        if gate == "learned":
            self.gate = LearnedGate(num_classes)
        else:
            self.gate = functools.partial(fixed_gate, 1.0 if gate == "positive" else -1.0)
        self.samples = SampleRecord()

    @abstractmethod
    def regulariser(self, logits: Tensor, log_probs: Tensor) -> Tensor:
        """Return Reg (N,) of logits and log-probabilities (N, C)."""
        raise NotImplementedError(f"{type(self).__name__} does not define regulariser().")

    def modulate(self, logits: Tensor, features: Tensor | None) -> dict[str, Tensor]:
        """Run the three modules on a batch; return indicator n (``norm``) and gamma (``nci``),
        ``gate`` psi and ``smoothing`` a, each (N,). In training mode the averages of the indicator
        are updated.
        """
        logits = logits.detach()
        with torch.no_grad():
            norm, nci = self.indicator(logits, features)
        gate = self.gate(logits)
        smoothing = 2 * self.strength * (gate * (self.beta * nci)).sigmoid()
        return {"norm": norm, "nci": nci, "gate": gate, "smoothing": smoothing}

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return the adaptively smoothed loss of logits (N, C), labels (N,) and features (N, d)."""
        log_probs = logits.log_softmax(dim=1)
        ce, regulariser = cross_entropy(log_probs, labels), self.regulariser(logits, log_probs)
        modulation = self.modulate(logits, features)
        if self.training and index is not None:
            largest, predicted = log_probs.detach().max(dim=1)
            self.samples.write(
                index,
                label=labels,
                correct=predicted == labels,
                confidence=largest.exp(),
                **modulation,
            )
        amount = modulation["smoothing"]
        total = ce.lerp(regulariser, amount).mean()  # (1 - a) CE + a Reg
        return total, {
            "ce": ce.detach().mean(),
            self.regulariser_name: regulariser.detach().mean(),
            "smoothing": amount.detach().mean(),
        }

    def sample_table(self, epoch: int) -> dict[str, Tensor]:
        """Return index, label, correct, confidence, norm, nci, gate and smoothing of the samples of
        the epoch (S,).
        """
        return self.samples.table()

    def pop_diagnostics(self) -> dict[str, float]:
        """Return gate, smoothing and indicator statistics of the epoch, and reset them."""
        return {**super().pop_diagnostics(), **self.samples.pop()}
