"""TST, two-stage training: retrain a small new head on frozen features.

Jordahn & Olmos, Decoupling Feature Extraction and Classification Layers for Calibrated Neural
Networks, ICML 2024 (official code MJordahn/Decoupled-Layers-for-Calibrated-NNs).
"""

from torch import nn

from calgrid.components.registry import register
from calgrid.procedures.second_stage import FACTS, SecondStage


@register(
    source="Jordahn & Olmos, ICML 2024, Sec. 3",
    **FACTS,
    dataset_defaults={"cifar100": {"hidden": 512}, "tiny_imagenet": {"hidden": 512}},
    averaged_weights=True,
    limits={"hidden": "[1, 16384]"},
)
class TwoStageTraining(SecondStage):
    """New MLP head on the frozen features of a first stage, trained with cross-entropy.

    The head is Linear(d, 3Z) - ReLU - Linear(3Z, Z) - Linear(Z, K), without an activation between
    the last two, as in the official code. Differences, for a common protocol: SGD at a constant
    rate as in the MaC-Cal paper's reruns (official: Adam 1e-4), and the frozen body stays in
    evaluation mode (the official loop updates BatchNorm statistics). Epochs and learning rate are
    those of the protocol's ``second_stage``.

    Parameters
    ----------
    hidden : Z; 128 (CIFAR-10) or 512 (CIFAR-100, Tiny-ImageNet) in the reproduction scripts.
    cached : compute the training features once, without augmentation (a faster variant).
    """

    hidden: int = 128

    def build_head(self, num_features: int, num_classes: int) -> nn.Module:
        """MLP from features (N, d) to logits (N, K)."""
        width = self.hidden
        return nn.Sequential(
            nn.Linear(num_features, 3 * width),
            nn.ReLU(),
            nn.Linear(3 * width, width),
            nn.Linear(width, num_classes),
        )
