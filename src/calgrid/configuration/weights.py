"""Runs whose weights are not trained here: what a grid may ask of them, and the files of published checkpoints."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from calgrid.backbones._catalogue import describe
from calgrid.configuration.datasets import DatasetBook
from calgrid.configuration.methods import PLAIN, Method
from calgrid.errors import ConfigError

FOCAL_CALIBRATION = "focal_calibration"
#: folder of a data set at the address, and below data_root
ADDRESS = "https://www.robots.ox.ac.uk/~viveka/focal_calibration"
FOLDERS = MappingProxyType({"cifar10": "CIFAR10", "cifar100": "CIFAR100"})
#: our names of networks -> theirs
NETWORKS = MappingProxyType(
    {"resnet50": "resnet50", "resnet110": "resnet110", "wrn26_10": "wide_resnet", "densenet121": "densenet121"}
)
#: our losses -> hyper-parameters with which they were trained, as far as their files name them, and their name
LOSSES = MappingProxyType(
    {
        "ce": ({}, "cross_entropy"),
        "brier": ({}, "brier_score"),
        "mmce_w": ({"lambda_": 2.0}, "mmce_weighted_lamda_2.0"),
        "ls": ({"alpha": 0.05}, "cross_entropy_smoothed_smoothing_0.05"),
        "flsd53": ({"gamma": 3.0, "gamma_hard": 5.0}, "focal_loss_adaptive_53"),
        "fl3": ({"gamma": 3.0}, "focal_loss_gamma_3.0"),
    }
)
#: epochs after which the published checkpoints were saved, and the exceptions of the scripts that evaluate them
EPOCHS = 350
OTHER_EPOCHS = MappingProxyType({("cifar10", "wrn26_10", "brier"): 550, ("cifar100", "resnet110", "brier"): 430})


def check_ready(grid: Mapping[str, Any], protocol: Mapping[str, Any], datasets: DatasetBook, where: str) -> None:
    """Check a grid whose protocol trains nothing.

    Raises
    ------
    ConfigError : there are no such weights for one of its methods, seeds, backbones or data sets.
    """
    named = f"protocol '{grid['protocol']}'"
    if len(grid["seeds"]) > 1:
        raise ConfigError(
            f"{where}.seeds: {named} takes weights as they are, one network for all seeds; name one seed, and several "
            "calibrator_seeds."
        )
    if protocol["weights"] != FOCAL_CALIBRATION:
        _check_published(grid, datasets, named, where)


def checkpoint_file(dataset: str, backbone: str, method: Method, where: str) -> dict[str, str]:
    """Name, folder and address of the checkpoint of torrvision/focal_calibration for a run.

    The names are those of its scripts (``evaluate_scripts``).

    Raises
    ------
    ConfigError : there is none.
    """
    options, loss = LOSSES.get(method.loss, ({}, None))
    plain = method.procedure == "standard" and method.first_stage is None
    same = all(method.loss_options[name] == value for name, value in options.items())
    if dataset not in FOLDERS or backbone not in NETWORKS or loss is None or not plain or not same:
        trained = ", ".join(" ".join([id, *(f"{k}={v}" for k, v in own.items())]) for id, (own, _) in LOSSES.items())
        raise ConfigError(
            f"{where}: torrvision/focal_calibration published no checkpoint of '{method.id}' with '{backbone}' on "
            f"'{dataset}'; there are those of {trained} with {', '.join(NETWORKS)} on {', '.join(FOLDERS)}."
        )
    epochs = OTHER_EPOCHS.get((dataset, backbone, method.loss), EPOCHS)
    name = f"{NETWORKS[backbone]}_{loss}_{epochs}.model"
    folder = FOLDERS[dataset]
    return {"name": name, "folder": f"{FOCAL_CALIBRATION}/{folder}", "url": f"{ADDRESS}/{folder}/{name}"}


def _check_published(grid: Mapping[str, Any], datasets: DatasetBook, named: str, where: str) -> None:
    """Check that backbones have weights of their own for the data sets."""
    for method in grid["methods"]:
        if method != PLAIN:
            raise ConfigError(
                f"{where}.methods: {named} trains nothing, and the published weights of a backbone count as '{PLAIN}', "
                f"not as '{method}'; leave it out."
            )
    for backbone in grid["backbones"]:
        spec = describe(backbone, f"{where}.backbones")
        if not spec.info["pretrained"] or spec.info.get("library", False):
            raise ConfigError(
                f"{where}.backbones: no published weights of '{backbone}' are known, which {named} takes; use another "
                "backbone (calgrid list backbones)."
            )
        for dataset in grid["datasets"]:
            classes = datasets.spec(dataset, f"{where}.datasets").info.get("n_classes")
            if classes not in (None, *spec.info["parameters"]):
                raise ConfigError(
                    f"{where}.datasets: '{dataset}' has {classes} classes, the published weights of '{backbone}' "
                    f"{', '.join(map(str, spec.info['parameters']))}; fine-tune them (pretrained: true)."
                )
