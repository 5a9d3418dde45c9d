"""CIFAR-100-C: the test images of CIFAR-100 under the 15 standard corruptions at five severities each.

The four extra corruptions of the archive (speckle noise, Gaussian blur, spatter, saturate), which its authors keep for
validation, are left out. The images were made of the original files, whatever data set a network was trained on.
"""

from calgrid.datasets._cifar_c import CifarC
from calgrid.registry import register


@register(
    source="Hendrycks and Dietterich, Benchmarking Neural Network Robustness, ICLR 2019",
    role="shift",
    label="CIFAR-100-C",
    base="cifar100",
    shifts=(
        "gaussian_noise",
        "shot_noise",
        "impulse_noise",
        "defocus_blur",
        "glass_blur",
        "motion_blur",
        "zoom_blur",
        "snow",
        "frost",
        "fog",
        "brightness",
        "contrast",
        "elastic_transform",
        "pixelate",
        "jpeg_compression",
    ),
    severities=(1, 2, 3, 4, 5),
    n_classes=100,
    image_shape=(3, 32, 32),
    download=True,
    files=(
        {
            "name": "CIFAR-100-C.tar",
            "url": "https://zenodo.org/records/3555552/files/CIFAR-100-C.tar",
            "size": 2_918_473_216,
            "md5": "11f0ed0f1191edbf9fa23466ae6021d3",
        },
    ),
)
class Cifar100C(CifarC):
    """Corrupted test images of CIFAR-100, in the order of the clean test split."""
