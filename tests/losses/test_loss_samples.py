"""What losses keep of each sample: growing buffers, associations, and the record of FeDLaS."""

import math

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.losses.cases import GivenGate, batch_with_features

from calgrid.errors import DataError
from calgrid.losses import build_loss
from calgrid.losses._samples import auroc, pearson, spearman
from calgrid.losses.base import PerSample

values = st.lists(st.integers(-3, 3), min_size=2, max_size=40)


class TestPerSample:
    def write(self, buffer, index, value):
        index = buffer.cover(torch.tensor(index))
        buffer.rows[index] = value

    def test_grows_with_the_largest_index_seen_and_keeps_what_it_holds(self):
        buffer = PerSample(dtype=torch.int32)
        assert len(buffer.rows) == 0
        self.write(buffer, [3, 1], 7)
        self.write(buffer, [5], 9)
        self.write(buffer, [0], 1)
        assert buffer.rows.tolist() == [1, 7, 0, 7, 0, 9]

    def test_reserved_rows_are_there_from_the_start_and_come_back_after_clearing(self):
        buffer = PerSample(2, dtype=torch.float32)
        buffer.reserve(4)
        assert buffer.rows.tolist() == [[0.0, 0.0]] * 4
        self.write(buffer, [1], 5.0)
        buffer.clear()
        assert buffer.rows.shape == (0, 2)
        self.write(buffer, [0], 1.0)
        assert buffer.rows.shape == (4, 2)
        assert buffer.rows.sum() == 2.0

    def test_rows_of_another_shape_are_refused(self):
        with pytest.raises(RuntimeError, match="size mismatch"):
            PerSample(2, dtype=torch.int8).load_state_dict(
                {"rows": torch.zeros(5, 3, dtype=torch.int8)}
            )

    def test_refuses_a_negative_index(self):
        with pytest.raises(DataError, match="positions in the training split, from 0 on, got -1"):
            PerSample(dtype=torch.int8).cover(torch.tensor([3, -1]))


class TestAssociations:
    @settings(deadline=None, max_examples=50)
    @given(x=values, seed=st.integers(0, 1000))
    def test_equal_those_of_scipy_and_scikit_learn(self, x, seed):
        x = np.array(x, dtype=np.float32)
        rng = np.random.default_rng(seed)
        y, positive = rng.integers(-2, 3, len(x)), rng.random(len(x)) < 0.5
        if np.ptp(x) > 0 and np.ptp(y) > 0:
            assert pearson(x, y) == pytest.approx(scipy.stats.pearsonr(x, y).statistic, abs=1e-12)
            assert spearman(x, y) == pytest.approx(scipy.stats.spearmanr(x, y).statistic, abs=1e-12)
        if positive.any() and not positive.all():
            assert auroc(x, positive) == pytest.approx(
                sklearn.metrics.roc_auc_score(positive, x), abs=1e-12
            )

    @pytest.mark.parametrize("constant", [0.0, 0.1, 1e-30, 1e30])
    def test_are_undefined_for_a_constant(self, constant):
        x, y = np.full(7, constant), np.arange(7)
        assert all(
            math.isnan(measure(a, b))
            for measure in (pearson, spearman)
            for a, b in ((x, y), (y, x))
        )
        assert auroc(x, y > 3) == 0.5

    def test_are_undefined_without_samples_or_with_one_kind(self):
        assert math.isnan(pearson([], []))
        assert math.isnan(spearman([], []))
        assert math.isnan(auroc([1.0, 2.0], [True, True]))
        assert math.isnan(auroc([], []))

    @pytest.mark.parametrize("scale", [1e-30, 1e30])
    def test_do_not_depend_on_the_scale(self, scale):
        assert pearson(np.arange(5) * scale, -np.arange(5)) == pytest.approx(-1.0)


C, D = 4, 3
NAMES = [
    "positive_share",
    "mean_smoothing",
    *(f"smoothing_q{q}" for q in ("05", "25", "50", "75", "95")),
    "flip_rate",
    *("nci_correct_pearson", "nci_correct_spearman", "nci_correct_auroc"),
    *("nci_confidence_pearson", "nci_confidence_spearman"),
]


def build(name="fedlas_ls", **options):
    torch.manual_seed(0)
    return build_loss(name, C, **options)


def batch(index, seed=0):
    return *batch_with_features(seed, len(index), C, D, scale=3), torch.tensor(index)


@pytest.mark.parametrize("name", ["fedlas_ls", "fedlas_mbls"])
class TestRecord:
    def test_table_holds_the_epoch_by_index(self, name):
        loss = build(name)
        logits, labels, features, index = batch([4, 0, 2])
        loss(logits, labels, features, index)
        table = loss.sample_table(0)
        order = [1, 2, 0]
        modulation = loss.eval().modulate(logits, features)
        assert table["index"].tolist() == [0, 2, 4]
        assert torch.equal(table["label"], labels[order].int())
        assert torch.equal(table["correct"], (logits.argmax(1) == labels)[order])
        torch.testing.assert_close(table["confidence"], logits.softmax(1).amax(1)[order])
        torch.testing.assert_close(table["norm"], features.abs().sum(1)[order])
        torch.testing.assert_close(table["nci"], modulation["nci"][order])
        assert torch.equal(table["gate"], modulation["gate"][order].to(torch.int8))
        torch.testing.assert_close(table["smoothing"], modulation["smoothing"].detach()[order])
        assert " ".join(table) == "index label correct confidence norm nci gate smoothing"

    def test_the_last_pass_of_a_sample_in_the_epoch_counts(self, name):
        loss = build(name)
        for seed in (1, 2):
            loss(*batch([0, 1, 2], seed))
        assert torch.equal(loss.sample_table(0)["label"], batch([0, 1, 2], 2)[1].int())

    def test_evaluation_and_calls_without_an_index_record_nothing(self, name):
        loss = build(name)
        loss.eval()(*batch([0, 1]))
        loss.train()(*batch([0, 1])[:3])
        assert len(loss.sample_table(0)["index"]) == 0

    def test_a_new_epoch_begins_empty(self, name):
        loss = build(name)
        loss(*batch([0, 1]))
        loss.pop_diagnostics()
        assert len(loss.sample_table(1)["index"]) == 0
        assert loss.state_dict()["samples.running.rows"].numel() == 0


class TestStatistics:
    def test_names(self):
        assert list(build().pop_diagnostics()) == NAMES

    def test_by_hand(self):
        loss = build(alpha=0.2, beta=1.0)
        loss.gate = GivenGate(1.0, -1.0, 1.0, 1.0)
        data = batch([0, 1, 2, 3])
        loss(*data)
        popped, nci = loss.pop_diagnostics(), loss.eval().indicator(data[0], data[2])[1]
        amounts = (0.4 * torch.sigmoid(nci * loss.gate.psi)).double().numpy()
        correct = (data[0].argmax(1) == data[1]).numpy()
        confidence = data[0].softmax(1).amax(1).numpy()
        assert popped["positive_share"] == 0.75
        assert popped["mean_smoothing"] == pytest.approx(amounts.mean(), rel=1e-6)
        for quantile in ("05", "25", "50", "75", "95"):
            expected = np.quantile(amounts, int(quantile) / 100)
            assert popped[f"smoothing_q{quantile}"] == pytest.approx(expected, rel=1e-6)
        for name, measure, other in (
            ("nci_confidence_pearson", pearson, confidence),
            ("nci_confidence_spearman", spearman, confidence),
            ("nci_correct_pearson", pearson, correct),
            ("nci_correct_auroc", auroc, correct),
        ):
            assert popped[name] == pytest.approx(measure(nci.numpy(), other), abs=1e-6)

    def test_flip_rate_is_over_samples_seen_in_both_epochs(self):
        loss = build()
        rates = []
        for index, psi in [
            ([0, 1, 2, 3], [1.0, 1.0, -1.0, -1.0]),
            ([0, 1, 2, 4], [1.0, -1.0, 1.0, 1.0]),  # of 0, 1, 2 two flip; 4 is new
            ([0, 3], [1.0, 1.0]),  # 3 was not seen in the epoch before
            ([5], [1.0]),
            ([0, 5], [-1.0, 0.0]),  # undecided is a third mode
        ]:
            loss.gate = GivenGate(*psi)
            loss(*batch(index))
            rates.append(loss.pop_diagnostics()["flip_rate"])
        assert math.isnan(rates[0])
        assert rates[1:3] == [pytest.approx(2 / 3), 0.0]
        assert math.isnan(rates[3])
        assert rates[4] == 1.0

    def test_other_losses_record_nothing(self):
        assert build_loss("ls", C).sample_table(0) is None
