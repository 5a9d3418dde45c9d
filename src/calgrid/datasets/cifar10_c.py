"""CIFAR-10-C: the test images of CIFAR-10 under the 15 standard corruptions at five severities each.

The four extra corruptions of the archive (speckle noise, Gaussian blur, spatter, saturate), which its authors keep for
validation, are left out. The images were made of the original files, whatever data set a network was trained on.
"""

from calgrid.datasets._cifar_c import CifarC
from calgrid.registry import register


@register(
    source="Hendrycks and Dietterich, Benchmarking Neural Network Robustness, ICLR 2019",
    role="shift",
    label="CIFAR-10-C",
    base="cifar10",
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
    n_classes=10,
    image_shape=(3, 32, 32),
    download=True,
    files=(
        {
            "name": "CIFAR-10-C.tar",
            "url": "https://zenodo.org/records/2535967/files/CIFAR-10-C.tar",
            "size": 2_918_471_680,
            "md5": "56bf5dcef84df0e2308c6dcbcbbd8499",
        },
    ),
)
class Cifar10C(CifarC):
    """Corrupted test images of CIFAR-10, in the order of the clean test split."""
