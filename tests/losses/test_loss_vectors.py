"""Reference vectors: value and L2 norm of the logit gradient on one batch of four samples and four
classes.

The values agree between the official code of each method and independent formulas, to 2e-6.
"""

import pytest
import torch
from tests.losses.cases import GivenGate

from calgrid.losses import build_loss

VECTORS = [
    ("ce", {}, 1.934170, 0.434557),
    ("ls", {"alpha": 0.05}, 2.023545, 0.417516),
    ("ls", {"alpha": 0.1}, 2.112920, 0.400919),
    ("mbls", {"margin": 6.0, "lambda_": 0.1}, 2.034170, 0.437783),
    ("fl3", {}, 1.519004, 0.425441),
    ("brier", {}, 0.755358, 0.208379),
    ("ecp", {"beta": 0.1}, 1.855851, 0.437505),
    ("ecp", {"beta": 0.1, "entropy_reduction": "mean"}, 1.914590, 0.435273),
    ("flsd53", {}, 1.506192, 0.435630),
    ("dfl", {"gamma": 5.0}, 1.666830, 0.820757),
    ("dfl", {"gamma": 2.3}, 1.784356, 0.619590),
    ("mdca", {"gamma": 1.0, "beta": 1.0}, 1.896913, 0.453184),
    ("acls", {"margin": 6.0, "alpha": 0.1}, 2.220837, 0.459901),
    ("acls", {"margin": 6.0, "alpha": 0.1, "pos_gap": "maxmin"}, 3.520837, 0.794741),
    ("cpc", {"lambda_d": 0.1, "lambda_e": 1.0}, 3.072198, 0.487598),
    ("adafocal", {}, 1.747161, 0.452175),
]
#: id, options, weight of the term, value of the term, its gradient norm
TERM_VECTORS = [
    ("mmce", {"lambda_": 3.0}, 3.0, 0.059974, 0.072415),
    ("mmce_w", {"norm": "code"}, 2.0, 0.244895, 0.147850),
    ("mmce_w", {"norm": "paper"}, 2.0, 0.489791, 0.295699),
    ("mdca_nll", {"beta": 3.0}, 3.0, 0.149752, 0.048097),
    ("cals_alm", {"lambda_init": 0.5, "rho_init": 1.0, "margin": 6.0}, 1.0, 0.057292, 0.045670),
    ("sb_ece", {"lambda_": 2.0}, 2.0, 0.531428, 0.258225),
    ("sb_ece", {"num_bins": 10, "temperature": 0.05}, 1.0, 0.369988, 0.295170),
    ("s_avuc", {"lambda_": 2.0}, 2.0, 0.478244, 0.127786),
    ("s_avuc", {"temperature": 0.2, "kappa": 0.3}, 1.0, 0.327338, 0.064664),
]


@pytest.fixture
def logits():
    values = (
        (9.0, 1.0, 0.0, -2.0),
        (2.0, 1.5, 0.5, 0.0),
        (0.2, 0.1, 0.0, -0.1),
        (-1.0, 4.0, 3.0, -8.0),
    )
    return torch.tensor(values, requires_grad=True)


@pytest.fixture
def labels():
    return torch.tensor((0, 1, 0, 0))


@pytest.fixture
def features():
    """Features (4, 2) whose L1 norms are 30, 10, 18, 22."""
    norms = torch.tensor((30.0, 10.0, 18.0, 22.0))
    return torch.stack([0.75 * norms, -0.25 * norms], dim=1)


def _close(value):
    return pytest.approx(value, abs=2e-6)


@pytest.mark.parametrize(("name", "options", "value", "gradient"), VECTORS)
def test_loss_and_gradient_match_the_reference(name, options, value, gradient, logits, labels):
    loss = build_loss(name, 4, **options)(logits, labels)
    loss.backward()
    assert (loss.item(), logits.grad.norm().item()) == (_close(value), _close(gradient))


@pytest.mark.parametrize(("name", "options", "weight", "value", "gradient"), TERM_VECTORS)
def test_added_term_matches_the_reference(name, options, weight, value, gradient, logits, labels):
    term = (
        build_loss(name, 4, **options)(logits, labels) - build_loss("ce", 4)(logits, labels)
    ) / weight
    term.backward()
    assert (term.item(), logits.grad.norm().item()) == (_close(value), _close(gradient))


def test_inverse_focal_mode_of_adafocal_matches_the_reference(logits, labels):
    loss = build_loss("adafocal", 4)
    loss.gammas.fill_(-0.5)
    total = loss(logits, labels)
    total.backward()
    assert (total.item(), logits.grad.norm().item()) == (_close(2.021777), _close(0.428346))


def test_ranking_term_matches_the_reference(logits, labels):
    loss = build_loss("crl", 4, lambda_=2.0)
    loss.counts.grow(4)
    loss.counts.rows.copy_(torch.tensor([5, 3, 4, 0]))
    loss.max_count.fill_(5)
    term = (loss(logits, labels, index=torch.arange(4)) - build_loss("ce", 4)(logits, labels)) / 2
    term.backward()
    assert (term.item(), logits.grad.norm().item()) == (_close(0.596756), _close(0.197772))


@pytest.mark.parametrize(
    ("name", "options", "value", "gradient"),
    [
        ("fedlas_ls", {"alpha": 0.05, "beta": 4.0}, 2.056993, 0.416820),
        ("fedlas_mbls", {"lambda_": 0.1, "beta": 0.5, "margin": 6.0}, 1.843448, 0.394231),
    ],
)
def test_fedlas_matches_the_reference(name, options, value, gradient, logits, labels, features):
    loss = build_loss(name, 4, momentum=0.5, **options)
    loss.gate = GivenGate(1.0, -1.0, 1.0, -1.0)
    total = loss(logits, labels, features=features)
    total.backward()
    assert (total.item(), logits.grad.norm().item()) == (_close(value), _close(gradient))


def test_parts_of_pairwise_constraints_match_the_reference(logits, labels):
    loss = build_loss("cpc", 4)
    loss(logits, labels)
    parts = {name: round(part.item(), 4) for name, part in loss.last_terms.items()}
    assert parts == {"ce": 1.9342, "discrimination": 1.026, "equality": 1.0354}
