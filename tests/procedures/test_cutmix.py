"""CutMix: which pixels are pasted, and how often. Its loss is tested with that of mixup."""

import pytest
import torch
from tests.procedures.cases import images_batch

from calgrid.procedures import build_procedure, mixup


@pytest.fixture
def batch():
    return images_batch(12, 4)


def test_a_rectangle_of_the_partner_is_pasted_and_the_weight_is_the_rest(batch):
    procedure = build_procedure("cutmix", probability=1.0)
    before = batch.images.clone()
    weights = set()
    for seed in range(30):
        torch.manual_seed(seed)
        images, weight, partners = procedure.mixture(batch)
        pasted = (images == before[partners]).all(1)
        kept = (images == before).all(1)
        assert (pasted | kept).all()
        others = partners != torch.arange(12)
        for each in pasted[others]:
            rows, columns = each.any(1).sum(), each.any(0).sum()
            assert each.sum() == rows * columns  # a rectangle
            assert 1 - int(each.sum()) / 64 == weight
        weights.add(weight)
    assert len(weights) > 10
    assert torch.equal(batch.images, before)


def test_a_rectangle_ends_at_the_border(monkeypatch):
    places = iter([0, 7, 4])
    monkeypatch.setattr(mixup.torch, "randint", lambda *_: torch.tensor(next(places)))
    # int(0.65 * 8) // 2 = 2 pixels on each side
    sections = [mixup._section(8, 0.65) for _ in range(3)]
    assert sections == [slice(0, 2), slice(5, 8), slice(2, 6)]


def test_a_share_of_the_batches_is_mixed(batch):
    procedure = build_procedure("cutmix", probability=0.3)
    torch.manual_seed(0)
    mixed = [procedure.mixture(batch) is not None for _ in range(400)]
    assert sum(mixed) == pytest.approx(120, abs=35)
