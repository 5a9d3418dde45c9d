"""Runs whose weights are not trained here: what a grid may ask of them."""

from collections.abc import Mapping
from typing import Any

from calgrid.backbones._catalogue import describe
from calgrid.configuration.datasets import DatasetBook
from calgrid.configuration.methods import PLAIN
from calgrid.errors import ConfigError


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
