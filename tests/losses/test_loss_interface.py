"""What every training loss promises, whatever its formula."""

import copy
import re

import pytest
import torch
from safetensors.torch import load, save

from calgrid.components import registry
from calgrid.errors import ConfigError, DataError
from calgrid.losses import build_loss
from calgrid.losses.base import PerSample

IDS = list(registry.descriptions("loss"))
N, C, D = 12, 5, 7


def make_batch(seed=0, n=N, c=C, scale=3.0):
    generator = torch.Generator().manual_seed(seed)
    return {
        "logits": scale * torch.randn(n, c, generator=generator),
        "labels": torch.randint(c, (n,), generator=generator),
        "features": torch.rand(n, D, generator=generator) * 4,
        "index": torch.randperm(n, generator=generator),
    }


def build(name, **options):
    torch.manual_seed(0)
    return build_loss(name, C, **options)


def gradient(loss, batch):
    logits = batch["logits"].clone().requires_grad_()
    total = loss(**{**batch, "logits": logits})
    total.backward()
    return total.detach(), logits.grad


@pytest.mark.parametrize("name", IDS)
class TestEveryLoss:
    def test_is_a_finite_float32_scalar_with_detached_parts_and_leaves_its_inputs(self, name):
        loss, batch = build(name), make_batch()
        before = copy.deepcopy(batch)
        total = loss(**batch)
        assert (total.shape, total.dtype) == ((), torch.float32)
        assert torch.isfinite(total)
        assert loss.last_terms
        assert all(part.shape == () and not part.requires_grad for part in loss.last_terms.values())
        assert all(torch.equal(batch[key], before[key]) for key in batch)

    @pytest.mark.parametrize(
        "logits",
        [
            torch.full((N, C), 2.0),
            1e4 * make_batch()["logits"].sign(),
            1e4 * torch.eye(C).repeat(3, 1)[:N],
            -1e4 * torch.eye(C).repeat(3, 1)[:N],
            torch.zeros(N, C),
        ],
        ids=["identical", "random signs at 1e4", "one-hot at 1e4", "one-cold at 1e4", "zero"],
    )
    def test_stays_finite_with_its_gradients_on_degenerate_logits(self, name, logits):
        loss = build(name)
        for labels in (logits.argmax(dim=1), logits.argmin(dim=1)):
            total, grad = gradient(loss, {**make_batch(), "logits": logits, "labels": labels})
            assert torch.isfinite(total)
            assert torch.isfinite(grad).all()
        assert all(p.grad is None or torch.isfinite(p.grad).all() for p in loss.parameters())

    @pytest.mark.parametrize(("n", "c"), [(1, C), (N, 2)])
    def test_takes_a_batch_of_one_and_two_classes(self, name, n, c):
        total, grad = gradient(build_loss(name, c), make_batch(n=n, c=c))
        assert torch.isfinite(total)
        assert torch.isfinite(grad).all()

    def test_does_not_depend_on_the_order_of_the_batch(self, name):
        for seed, n, scale in ((1, 2, 0.1), (2, 20, 3.0), (3, 11, 30.0)):
            batch = make_batch(seed, n, scale=scale)
            order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
            total, grad = gradient(build(name), batch)
            shuffled, shuffled_grad = gradient(
                build(name), {key: value[order] for key, value in batch.items()}
            )
            torch.testing.assert_close(shuffled, total, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(shuffled_grad, grad[order], rtol=1e-3, atol=1e-5)

    def test_sum_is_batch_size_times_mean(self, name):
        mean, mean_grad = gradient(build(name), make_batch())
        total, total_grad = gradient(build(name, reduction="sum"), make_batch())
        torch.testing.assert_close(total, N * mean)
        torch.testing.assert_close(total_grad, N * mean_grad)

    def test_computes_in_float32_whatever_the_logits_and_the_autocast(self, name):
        batch = make_batch()
        low = {key: batch[key].bfloat16() for key in ("logits", "features")}
        high = {key: value.float() for key, value in low.items()}
        expected = build(name)(**{**batch, **high})
        with torch.autocast("cpu", dtype=torch.bfloat16):
            total = build(name)(**{**batch, **low})
        assert total.dtype == torch.float32
        assert torch.equal(total, expected)

    def test_continues_across_the_end_of_epochs_whatever_was_seen_or_reserved(self, name):
        keeps = any(isinstance(each, PerSample) for each in build(name).modules())
        for reserved in (0, 2 * C, 3 * N) if keeps else (0,):
            loss = build(name)
            for seed in range(3):
                self._step(loss, seed)
            loss.end_epoch(0, make_batch(7)["logits"], make_batch(7)["labels"])
            loss.end_epoch(1, make_batch(8)["logits"], make_batch(8)["labels"])
            self._step(loss, 3)
            torch.manual_seed(99)
            resumed = build_loss(name, C)
            if 0 < reserved <= N:  # equally many labels of each class, as before a training
                resumed.begin_training(torch.arange(reserved) % C)
            if reserved > N:  # a loss that has already seen more samples than the state knows
                self._step(resumed, 0, reserved)
            resumed.load_state_dict(load(save(loss.state_dict())))
            for seed in range(4, 6):
                assert torch.equal(self._step(loss, seed), self._step(resumed, seed))
            assert repr(loss.pop_diagnostics()) == repr(resumed.pop_diagnostics())
            left, right = loss.state_dict(), resumed.state_dict()
            assert left.keys() == right.keys()
            assert all(torch.equal(left[key], right[key]) for key in left)
            assert repr(loss.sample_table(2)) == repr(resumed.sample_table(2))

    def _step(self, loss, seed, n=N):
        batch = make_batch(seed, n)
        total, _ = gradient(loss, batch)
        loss.after_step(batch["logits"], batch["labels"], batch["index"])
        return total

    def test_says_whether_it_sees_the_validation_split_and_asks_for_it(self, name):
        loss, sees = build(name), registry.describe("loss", name).info["sees_validation"]
        assert loss.pop_diagnostics().get("sees_validation") == (1.0 if sees else None)
        if sees:
            with pytest.raises(DataError, match=f"loss '{name}' reads the validation split"):
                loss.end_epoch(0, None, None)
        else:
            assert loss.end_epoch(0, None, None) is None

    def test_gradient_is_the_derivative_in_double_precision(self, name):
        if name.endswith("_gra"):
            pytest.skip("its weight has no gradient")
        batch = make_batch(3, scale=2.0)
        logits = batch["logits"].double().requires_grad_()
        # the official form of acls stops the gradient of its largest logit
        loss = build(name, **({"pos_gap": "maxmin"} if name == "acls" else {}))
        self._step(loss, 4)
        loss.double().eval()

        def value(x):
            return loss.compute(x, batch["labels"], batch["features"].double(), batch["index"])[0]

        assert torch.autograd.gradcheck(value, [logits])

    def test_has_state_exactly_when_it_says_so(self, name):
        stateful = registry.describe("loss", name).info["state"] != "none"
        assert bool(build(name).state_dict()) == stateful

    def test_builds_with_the_defaults_of_each_data_set_and_backbone(self, name):
        for place in ["digits", *registry.describe("loss", name).dataset_defaults]:
            dataset, _, backbone = place.partition("/")
            loss = build(name, dataset=dataset, backbone=backbone or None)
            assert torch.isfinite(loss(**make_batch())), place

    def test_misses_a_declared_input_with_a_clear_error(self, name):
        loss = build(name)
        for need in loss.needs:
            with pytest.raises(DataError, match=f"loss '{name}' needs {need}; pass {need}="):
                loss(**{**make_batch(), need: None})
        assert set(loss.needs) <= set(registry.describe("loss", name).info["needs"])


# what the base class does for all, on one of them


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": torch.zeros(N, C + 1)}, rf"floating \(N, {C}\), got .*\({N}, {C + 1}\)"),
        ({"logits": torch.zeros(N)}, "logits must be floating"),
        ({"logits": torch.zeros(N, C, dtype=torch.long)}, "logits must be floating"),
        ({"labels": torch.zeros(N - 1, dtype=torch.long)}, rf"labels must be integers \({N},\)"),
        ({"labels": torch.zeros(N)}, "labels must be integers"),
        ({"labels": torch.zeros(N, C, dtype=torch.long)}, "labels must be integers"),
        ({"labels": torch.full((N,), C)}, rf"labels must lie in \[0, {C - 1}\], got {C}"),
        ({"labels": torch.full((N,), -1)}, "labels must lie in .* got -1"),
        ({"features": torch.zeros(N + 1, D)}, rf"features must be \({N}, d\)"),
        ({"index": torch.zeros(N)}, "index must be integers"),
        ({"logits": torch.zeros(0, C), "labels": torch.zeros(0).long()}, "the batch is empty"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(change, message):
    with pytest.raises(DataError, match=message):
        build("fedlas_ls")(**{**make_batch(), **change})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_logits_that_are_not_finite_are_refused_and_leave_the_state(value):
    batch, loss = make_batch(), build("fedlas_ls")
    before = copy.deepcopy(loss.state_dict())
    batch["logits"][[4, 2, 7], 1] = value
    message = (
        f"loss 'fedlas_ls': logits of 3 of {N} rows of the batch are not finite, "
        "first row 2 (counted from 0): training diverged or the input is damaged; "
        "lower the learning rate or clip gradients."
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        loss(**batch)
    assert all(torch.equal(state, before[key]) for key, state in loss.state_dict().items())


def test_an_overflowing_sum_of_finite_logits_is_no_divergence():
    loss = build("ce")
    loss.compute = lambda logits, *_: (logits[0, 0], {})
    assert loss(**{**make_batch(), "logits": torch.full((N, C), 3e38)}) == 3e38


def test_fewer_than_two_classes_are_refused():
    with pytest.raises(ConfigError, match="loss 'ce': num_classes must be at least 2, got 1"):
        build_loss("ce", 1)


def test_reduction_is_an_option_of_every_loss():
    assert build_loss("ce", C, reduction="sum").reduction == "sum"
    with pytest.raises(ConfigError, match="reduction must be one of"):
        build_loss("ce", C, reduction="none")


def test_overrides_win_over_the_data_set_and_the_data_set_over_the_file():
    assert build_loss("ls", C).alpha == 0.05
    assert build_loss("ls", C, dataset="cifar100").alpha == 0.1
    assert build_loss("ls", C, dataset="cifar100", alpha=0.2).alpha == 0.2


def test_any_integer_type_of_labels_will_do():
    batch = make_batch()
    small = {**batch, "labels": batch["labels"].to(torch.int16)}
    assert torch.equal(build("ce")(**batch), build("ce")(**small))


@pytest.mark.parametrize(
    "returned", [torch.zeros(()), (torch.zeros(4), {})], ids=["a bare tensor", "a value a sample"]
)
def test_what_compute_must_return_is_said(monkeypatch, returned):
    loss = build_loss("ce", 3)
    monkeypatch.setattr(type(loss), "compute", lambda *arguments: returned)
    with pytest.raises(ConfigError, match=r"calgrid\.losses\.\w+: compute\(\) of a loss returns"):
        loss(torch.zeros(4, 3), torch.zeros(4, dtype=torch.long))
