"""Speeds of GPUs, for estimates of costs: one from publications, others measured (docs/gpu.md)."""

from collections.abc import Mapping
from dataclasses import dataclass

#: seconds of an A40 for a forward and backward pass over an image: minimum at 32x32 pixels, and per
#: multiply-add of the forward pass (training times in the papers on an A40 give 3e-13 to 7e-13)
PASS_SECONDS, PASS_SECONDS_A_MULTIPLY_ADD = 2e-5, 7e-13


@dataclass(frozen=True)
class Card:
    """Speeds in bf16, for images of at most 32x32 pixels in batches of at least 256.

    Attributes
    ----------
    name : for messages.
    steps : backbone -> images per second in training steps, one by one and as a CUDA graph.
    share : images per second of a whole training, as a share of those in its steps.
    predicted : most images per second of a prediction.
    """

    name: str
    steps: Mapping[str, tuple[float, float]]
    share: float
    predicted: float


PIXELS, BATCH = 32 * 32, 256
CARDS = {
    "h100": Card(
        "H100",
        {
            "resnet18": (17_934, 42_764),
            "resnet50": (8_162, 12_310),
            "resnet110": (4_766, 7_233),
            "airbench64": (26_236, 56_538),
            "resnet9": (25_968, 48_887),
            "resnet20": (17_001, 33_398),
        },
        share=33_000 / 42_764,  # resnet18, 30 epochs with validation
        predicted=4_500,  # resnet18, 15,000 images
    )
}
