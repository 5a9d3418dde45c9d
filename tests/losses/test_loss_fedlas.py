"""FeDLaS: indicator, gate, adaptive smoothing, state."""

import copy
import math
import pickle

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save
from tests.losses.cases import batch_with_features

from calgrid.losses import build_loss
from calgrid.losses.base import margin_excess

N, C, D = 16, 6, 5
VARIANTS = ["fedlas_ls", "fedlas_mbls"]


def build(name="fedlas_ls", seed=0, **options):
    torch.manual_seed(seed)
    return build_loss(name, C, **options)


class TestAdaptiveSmoothing:
    @settings(deadline=None, max_examples=20)
    @given(seed=st.integers(0, 10_000))
    def test_beta_zero_is_the_base_loss(self, seed):
        logits, labels, features = batch_with_features(seed)
        ls = build("fedlas_ls", alpha=0.1, beta=0.0)(logits, labels, features)
        torch.testing.assert_close(ls, F.cross_entropy(logits, labels, label_smoothing=0.1))
        mbls = build("fedlas_mbls", lambda_=0.2, margin=3.0, beta=0.0)(logits, labels, features)
        penalty = margin_excess(logits, 3.0).mean()
        torch.testing.assert_close(mbls, 0.8 * F.cross_entropy(logits, labels) + 0.2 * penalty)


class TestIndicator:
    @pytest.mark.parametrize(
        ("options", "constants"),
        [
            ({"momentum": 0.95}, True),
            ({"momentum": 0.5}, True),
            ({"momentum": 0.001}, False),
            ({"momentum": 0.001, "ema_start": "constants"}, True),
            ({"momentum": 0.95, "ema_start": "first_batch"}, False),
            ({"indicator": "maxprob"}, False),
            ({"indicator": "maxlogit"}, False),
        ],
    )
    def test_start_of_the_moving_averages(self, options, constants):
        indicator = build(**options).indicator
        assert indicator.started.item() is constants
        if constants:
            assert (indicator.mean.item(), indicator.std.item()) == (20.0, 100.0)

    def test_first_batch_start_takes_the_statistics_of_that_batch(self):
        logits, labels, features = batch_with_features()
        loss = build(momentum=0.001)
        loss(logits, labels, features)
        norms = features.abs().sum(1)
        torch.testing.assert_close(loss.indicator.mean, norms.mean())
        torch.testing.assert_close(loss.indicator.std, norms.std())

    @pytest.mark.parametrize("options", [{}, {"momentum": 0.001}, {"indicator": "maxprob"}])
    def test_batch_of_one_leaves_the_moving_averages_alone(self, options):
        loss = build(**options)
        before = copy.deepcopy(loss.indicator.state_dict())
        assert torch.isfinite(loss(*batch_with_features(n=1)))
        # without averages gamma is 0
        assert loss.indicator.started or loss.last_terms["smoothing"].item() == pytest.approx(
            loss.strength
        )
        assert all(
            torch.equal(value, before[key]) for key, value in loss.indicator.state_dict().items()
        )
        assert torch.isfinite(loss(*batch_with_features(n=N)))

    def test_evaluation_freezes_the_moving_averages_and_the_diagnostics(self):
        loss = build()
        loss(*batch_with_features(0))
        before = copy.deepcopy(loss.state_dict())
        loss.eval()(*batch_with_features(1))
        assert all(torch.equal(value, before[key]) for key, value in loss.state_dict().items())

    @pytest.mark.parametrize(
        ("name", "statistic"),
        [
            ("nci_l1", lambda logits, features: features.abs().sum(1)),
            ("maxprob", lambda logits, features: logits.softmax(1).amax(1)),
            ("maxlogit", lambda logits, features: logits.amax(1)),
        ],
    )
    def test_at_momentum_one_gamma_is_the_z_score_of_the_batch(self, name, statistic):
        logits, _, features = batch_with_features()
        values = statistic(logits, features)
        _, gamma = build(indicator=name, momentum=1.0).indicator(logits, features)
        torch.testing.assert_close(
            gamma, (values - values.mean()) / values.std(), rtol=1e-3, atol=1e-3
        )

    def test_constant_indicator_smooths_by_the_gate_alone(self):
        logits, _, features = batch_with_features()
        for gate, sign in (("positive", 1), ("negative", -1)):
            loss = build(indicator="const", gate=gate, alpha=0.05, beta=4.0)
            expected = torch.full((N,), 0.1 / (1 + math.exp(-4 * sign)))
            torch.testing.assert_close(loss.modulate(logits, features)["smoothing"], expected)

    def test_random_indicator_is_standard_normal_and_fresh_in_each_step(self):
        indicator = build(indicator="random").indicator
        first, second = (indicator(torch.zeros(4000, C), None)[1] for _ in range(2))
        assert not torch.equal(first, second)
        assert abs(first.mean().item()) < 0.06
        assert first.std().item() == pytest.approx(1.0, abs=0.05)

    def test_random_indicator_follows_the_seed_of_a_run_and_not_the_global_generator(self):
        one, same, other = (build(indicator="random", seed=seed).indicator for seed in (1, 1, 2))
        state = torch.get_rng_state()
        draws = [indicator(torch.zeros(N, C), None)[1] for indicator in (one, same, other)]
        assert torch.equal(draws[0], draws[1])
        assert not torch.equal(draws[0], draws[2])
        assert torch.equal(torch.get_rng_state(), state)

    @pytest.mark.parametrize("indicator", ["maxprob", "maxlogit", "const", "random"])
    def test_other_indicators_need_no_features(self, indicator):
        logits, labels, _ = batch_with_features()
        loss = build(indicator=indicator)
        assert loss.needs == ()
        assert torch.isfinite(loss(logits, labels))


class TestGate:
    def test_has_the_published_layers(self):
        shapes = [tuple(p.shape) for p in build_loss("fedlas_ls", 100).gate.parameters()]
        assert shapes == [(50, 100), (50,), (2, 50), (2,)]

    @pytest.mark.parametrize("gate", ["positive", "negative"])
    def test_fixed_gate_has_no_parameters_and_can_be_sent_to_another_process(self, gate):
        loss = pickle.loads(pickle.dumps(build(gate=gate)))
        assert list(loss.parameters()) == []
        assert loss.gate(torch.zeros(2, 3)).tolist() == [1.0 if gate == "positive" else -1.0] * 2

    def test_output_is_exactly_plus_or_minus_one(self):
        psi = build().gate(batch_with_features(n=200)[0])
        assert set(psi.tolist()) == {-1.0, 1.0}

    def test_sign_of_an_undecided_gate_is_zero_and_smooths_by_alpha(self):
        loss = build(alpha=0.05)
        torch.nn.init.zeros_(loss.gate.mlp[2].weight)
        torch.nn.init.zeros_(loss.gate.mlp[2].bias)
        logits, _, features = batch_with_features()
        torch.testing.assert_close(
            loss.modulate(logits, features)["smoothing"], torch.full((N,), 0.05)
        )

    @pytest.mark.parametrize("name", VARIANTS)
    def test_gradient_is_the_closed_form(self, name):
        logits, labels, features = batch_with_features(3)
        loss = build(name, momentum=0.5, beta=2.0)
        loss(logits, labels, features).backward()
        expected = self._closed_form(loss, logits, labels, features)
        for parameter, gradient in zip(loss.gate.parameters(), expected, strict=True):
            assert parameter.grad.norm() > 0
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-7)

    def _closed_form(self, loss, logits, labels, features):
        """``dL/dpsi = (1/N)(Reg - CE) 2 alpha beta gamma sigmoid'(beta psi gamma)``, psi = d."""
        ce = F.cross_entropy(logits, labels, reduction="none")
        regulariser = loss.regulariser(logits, logits.log_softmax(1))
        _, gamma = loss.eval().indicator(logits, features)
        pi = loss.gate.mlp(logits).softmax(1)
        d = pi[:, 1] - pi[:, 0]
        slope = torch.sigmoid(loss.beta * d.sign() * gamma)
        slope = slope * (1 - slope)
        upstream = (regulariser - ce) * 2 * loss.strength * loss.beta * gamma * slope / len(labels)
        return torch.autograd.grad(d, list(loss.gate.parameters()), grad_outputs=upstream.detach())

    @pytest.mark.parametrize("name", VARIANTS)
    def test_logits_get_no_gradient_through_gate_and_indicator(self, name):
        logits, labels, features = batch_with_features(5)
        loss = build(name, momentum=0.5)
        inputs = logits.clone().requires_grad_()
        features = features.requires_grad_()
        loss(inputs, labels, features).backward()
        amount = loss.eval().modulate(logits, features)["smoothing"].detach()
        fixed = logits.clone().requires_grad_()
        ce = F.cross_entropy(fixed, labels, reduction="none")
        (
            (1 - amount) * ce + amount * loss.regulariser(fixed, fixed.log_softmax(1))
        ).mean().backward()
        torch.testing.assert_close(inputs.grad, fixed.grad)
        assert features.grad is None


class TestState:
    @pytest.mark.parametrize(
        "options",
        [
            *({"indicator": "maxlogit"}, {"indicator": "random"}, {"momentum": 0.001}),
            {"beta": 0.0, "gate": "positive"},
        ],
    )
    def test_state_goes_through_a_file_in_the_middle_of_an_epoch(self, options):
        loss = build(**options)
        for seed in range(3):
            loss(*batch_with_features(seed), torch.arange(N))
        resumed = build(seed=7, **options)
        resumed.load_state_dict(load(save(loss.state_dict())))
        for seed in range(3, 6):
            index = torch.arange(N) + seed
            assert torch.equal(
                loss(*batch_with_features(seed), index), resumed(*batch_with_features(seed), index)
            )
        assert repr(loss.pop_diagnostics()) == repr(resumed.pop_diagnostics())
