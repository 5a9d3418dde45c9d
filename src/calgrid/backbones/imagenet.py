"""ImageNet networks with the first published weights of torchvision; top-1 accuracies are under
their own presets.

Images of ``min_size`` pixels and more are taken; the published weights saw 224 pixels. A vision
transformer takes the size of its position embedding alone.

Weights have a fixed version (``IMAGENET1K_V1``), never ``DEFAULT``. The file is in the cache of
torch.hub or is downloaded to it, and verified by the SHA-256 prefix at the end of its name. Only
tensors are read from it.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import torch
import torchvision
from torch import Tensor, nn

from calgrid.backbones._resnet import global_pool
from calgrid.backbones.base import Backbone
from calgrid.components.options import Options
from calgrid.components.registry import register
from calgrid.datasets.downloads import PublishedFile, download
from calgrid.errors import DataError
from calgrid.storage.sources import record

#: number of classes of the published heads
PUBLISHED_CLASSES = 1000
VERSION = "IMAGENET1K_V1"
#: layers of dense blocks in old files, whose module names contain a dot
OLD_DENSE_LAYER = re.compile(r"(denselayer\d+\.(?:norm|relu|conv))\.(?=[12]\.)")
#: encoder blocks of a vision transformer in one stage: four stages of 12 blocks, as many as
#: convolutional networks have
BLOCKS_A_STAGE = 3

CONVOLUTIONAL: Options = {"pretrained": True, "min_size": 32}
TRANSFORMER: Options = {"pretrained": True, "min_size": 224, "max_size": 224}


class TorchvisionBackbone(Backbone):
    """Base of networks of ``torchvision.models``.

    ``model`` is the name of the builder. With published weights and another number of classes than
    ImageNet's, the head is new, with torchvision's initialisation, for fine-tuning.
    """

    model: str

    def __init__(self, num_classes: int, pretrained: bool = False) -> None:
        network = getattr(torchvision.models, self.model)(num_classes=num_classes)
        if pretrained:
            path = download(self.weights_file(), weights_folder())
            load_published(network, path, num_classes)
        stages, pool, head = take_apart(network)
        super().__init__(stages, pool, head.in_features, num_classes, head)
        self.keep_names(network.state_dict(keep_vars=True))

    def published(self) -> Mapping[str, object]:
        """Return name, address, size and SHA-256 of the file with the weights; see
        :class:`Backbone`.
        """
        file = self.weights_file()
        return {"url": file["url"], **record(weights_folder() / file["name"], file["name"])}

    @classmethod
    def weights_file(cls) -> PublishedFile:
        """Name, address and beginning of the SHA-256 of the published weights."""
        url = torchvision.models.get_model_weights(cls.model)[VERSION].url
        name = PurePosixPath(urlsplit(url).path).name
        return {"name": name, "url": url, "sha256": Path(name).stem.rpartition("-")[2]}


def weights_folder() -> Path:
    """Folder in which torch.hub keeps weights; the environment variable TORCH_HOME moves it."""
    return Path(torch.hub.get_dir(), "checkpoints")


def load_published(network: Any, path: Path, num_classes: int) -> None:
    """Load a file of published weights; a head for another number of classes stays random.

    Raises
    ------
    DataError : the file cannot be read, or does not fit the network.
    """
    try:
        theirs = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a file of the right checksum that this torch cannot read
        raise DataError(
            f"The weights in {path} cannot be read ({type(error).__name__}); update torch."
        ) from error
    state = {OLD_DENSE_LAYER.sub(r"\1", name): tensor for name, tensor in theirs.items()}
    if num_classes != PUBLISHED_CLASSES:
        head = head_of(network)
        for name, tensor in network.state_dict(keep_vars=True).items():
            if tensor is head.weight or tensor is head.bias:
                state[name] = tensor
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise DataError(
            f"The published weights do not fit {type(network).__name__} of torchvision: {reason}"
        ) from None


def head_of(network: Any) -> nn.Linear:
    """Return the last linear layer, which families name differently."""
    for name in ("fc", "classifier", "head"):
        if hasattr(network, name):
            return getattr(network, name)
    return network.heads.head


def take_apart(network: Any) -> tuple[list[nn.Module], nn.Module, nn.Linear]:
    """Return stages, pool and head of a network; composed they are its forward pass."""
    stages, pool = FAMILIES[type(network).__name__](network)
    return stages, pool, head_of(network)


def _resnet(network: Any) -> tuple[list[nn.Module], nn.Module]:
    stem = nn.Sequential(network.conv1, network.bn1, network.relu, network.maxpool)
    return [stem, network.layer1, network.layer2, network.layer3, network.layer4], global_pool()


def _densenet(network: Any) -> tuple[list[nn.Module], nn.Module]:
    parts = dict(network.features.named_children())
    stem = nn.Sequential(*(parts[name] for name in ("conv0", "norm0", "relu0", "pool0")))
    stages: list[nn.Module] = [stem, nn.Sequential(parts["denseblock1"])]
    for k in (1, 2, 3):
        stages.append(nn.Sequential(parts[f"transition{k}"], parts[f"denseblock{k + 1}"]))
    stages[-1] = nn.Sequential(*stages[-1].children(), parts["norm5"], nn.ReLU())
    return stages, global_pool()


def _swin(network: Any) -> tuple[list[nn.Module], nn.Module]:
    patches, first, *rest = network.features
    stages = [patches, first]
    for merging, blocks in zip(rest[::2], rest[1::2], strict=True):
        stages.append(nn.Sequential(merging, *blocks))
    return stages, nn.Sequential(network.norm, network.permute, global_pool())


def _vision_transformer(network: Any) -> tuple[list[nn.Module], nn.Module]:
    blocks = list(network.encoder.layers)
    stages: list[nn.Module] = [PatchTokens(network)]
    for begin in range(0, len(blocks), BLOCKS_A_STAGE):
        stages.append(nn.Sequential(*blocks[begin : begin + BLOCKS_A_STAGE]))
    return stages, nn.Sequential(network.encoder.ln, ClassToken())


FAMILIES: dict[str, Callable[[Any], tuple[list[nn.Module], nn.Module]]] = {
    "ResNet": _resnet,
    "DenseNet": _densenet,
    "SwinTransformer": _swin,
    "VisionTransformer": _vision_transformer,
}


class PatchTokens(nn.Module):
    """Stem of a vision transformer: a class token and one token a patch, with their positions."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.class_token = network.class_token
        self.projection = network.conv_proj
        self.positions = network.encoder.pos_embedding
        self.dropout = network.encoder.dropout

    def forward(self, x: Tensor) -> Tensor:
        """Map images ``(N, 3, H, W)`` to tokens ``(N, 1 + patches, d)``."""
        patches = self.projection(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_token.expand(len(x), -1, -1), patches], dim=1)
        return self.dropout(tokens + self.positions)


class ClassToken(nn.Module):
    """The first token: ``(N, S, d)`` to ``(N, d)``."""

    def forward(self, tokens: Tensor) -> Tensor:
        """Return it in memory of its own."""
        return tokens[:, 0].contiguous()


@register(
    id="imagenet_densenet121",
    source="Huang et al., Densely Connected Convolutional Networks, CVPR 2017; "
    "weights torchvision DenseNet121_Weights.IMAGENET1K_V1",
    label="DenseNet-121 (ImageNet)",
    parameters={1000: 7_978_856},
    **CONVOLUTIONAL,
)
class ImageNetDenseNet121(TorchvisionBackbone):
    """The network ``densenet121`` of torchvision; 74.434 % top-1."""

    model = "densenet121"


@register(
    id="imagenet_resnet50",
    source=(
        "He et al., Deep Residual Learning, CVPR 2016; weights torchvision "
        "ResNet50_Weights.IMAGENET1K_V1"
    ),
    label="ResNet-50 (ImageNet)",
    parameters={1000: 25_557_032},
    **CONVOLUTIONAL,
)
class ImageNetResNet50(TorchvisionBackbone):
    """The network ``resnet50`` of torchvision; 76.130 % top-1."""

    model = "resnet50"


@register(
    id="imagenet_resnet101",
    source=(
        "He et al., Deep Residual Learning, CVPR 2016; weights torchvision "
        "ResNet101_Weights.IMAGENET1K_V1"
    ),
    label="ResNet-101 (ImageNet)",
    parameters={1000: 44_549_160},
    **CONVOLUTIONAL,
)
class ImageNetResNet101(TorchvisionBackbone):
    """The network ``resnet101`` of torchvision; 77.374 % top-1."""

    model = "resnet101"


@register(
    id="imagenet_wide_resnet50",
    source="Zagoruyko & Komodakis, Wide Residual Networks, BMVC 2016; "
    "weights torchvision Wide_ResNet50_2_Weights.IMAGENET1K_V1",
    label="WRN-50-2 (ImageNet)",
    parameters={1000: 68_883_240},
    **CONVOLUTIONAL,
)
class ImageNetWideResNet50(TorchvisionBackbone):
    """The network ``wide_resnet50_2`` of torchvision; 78.468 % top-1."""

    model = "wide_resnet50_2"


@register(
    id="imagenet_swin_b",
    source=(
        "Liu et al., Swin Transformer, ICCV 2021; weights torchvision Swin_B_Weights.IMAGENET1K_V1"
    ),
    label="Swin-B (ImageNet)",
    parameters={1000: 87_768_224},
    **CONVOLUTIONAL,
)
class ImageNetSwinB(TorchvisionBackbone):
    """The network ``swin_b`` of torchvision; 83.582 % top-1."""

    model = "swin_b"


@register(
    id="imagenet_vit_b16",
    source="Dosovitskiy et al., An Image is Worth 16x16 Words, ICLR 2021; "
    "weights torchvision ViT_B_16_Weights.IMAGENET1K_V1",
    label="ViT-B/16 (ImageNet)",
    parameters={1000: 86_567_656},
    **TRANSFORMER,
)
class ImageNetViTB16(TorchvisionBackbone):
    """The network ``vit_b_16`` of torchvision; 81.072 % top-1."""

    model = "vit_b_16"


@register(
    id="imagenet_vit_b32",
    source="Dosovitskiy et al., An Image is Worth 16x16 Words, ICLR 2021; "
    "weights torchvision ViT_B_32_Weights.IMAGENET1K_V1",
    label="ViT-B/32 (ImageNet)",
    parameters={1000: 88_224_232},
    **TRANSFORMER,
)
class ImageNetViTB32(TorchvisionBackbone):
    """The network ``vit_b_32`` of torchvision; 75.912 % top-1."""

    model = "vit_b_32"
