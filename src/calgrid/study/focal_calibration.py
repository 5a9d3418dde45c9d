"""Checkpoints of torrvision/focal_calibration, named as in its evaluation scripts."""

from collections.abc import Mapping

from calgrid.errors import ConfigError
from calgrid.storage.specs import CheckpointFile
from calgrid.study.protocols import FOCAL_CALIBRATION
from calgrid.study.runs import STANDARD, Method

#: address of the checkpoints; our names -> folders and networks there
ADDRESS = "https://www.robots.ox.ac.uk/~viveka/focal_calibration"
FOLDERS = {"cifar10": "CIFAR10", "cifar100": "CIFAR100"}
NETWORKS = {
    "resnet50": "resnet50",
    "resnet110": "resnet110",
    "wrn26_10": "wide_resnet",
    "densenet121": "densenet121",
}
#: our losses -> hyper-parameters of the checkpoints, and the loss in their file names
LOSSES: Mapping[str, tuple[Mapping[str, float], str]] = {
    "ce": ({}, "cross_entropy"),
    "brier": ({}, "brier_score"),
    "mmce_w": ({"lambda_": 2.0}, "mmce_weighted_lamda_2.0"),
    "ls": ({"alpha": 0.05}, "cross_entropy_smoothed_smoothing_0.05"),
    "flsd53": ({"gamma": 3.0, "gamma_hard": 5.0}, "focal_loss_adaptive_53"),
    "fl3": ({"gamma": 3.0}, "focal_loss_gamma_3.0"),
}
#: epochs in the file names, and the exceptions (dataset, backbone, loss) in the evaluation scripts
EPOCHS = 350
OTHER_EPOCHS = {("cifar10", "wrn26_10", "brier"): 550, ("cifar100", "resnet110", "brier"): 430}


def checkpoint_file(dataset: str, backbone: str, method: Method, where: str) -> CheckpointFile:
    """Return name, folder and URL of the checkpoint for a run.

    Raises
    ------
    ConfigError : there is none.
    """
    options, loss = LOSSES.get(method.loss, ({}, None))
    plain = method.procedure == STANDARD and method.first_stage is None
    same = all(method.loss_options[name] == value for name, value in options.items())
    if dataset not in FOLDERS or backbone not in NETWORKS or loss is None or not plain or not same:
        losses = []
        for id, (hyper_parameters, _) in LOSSES.items():
            values = [f"{name}={value}" for name, value in hyper_parameters.items()]
            losses.append(" ".join([id, *values]))
        raise ConfigError(
            f"{where}: torrvision/focal_calibration published no checkpoint of '{method.id}' with "
            f"'{backbone}' on '{dataset}'; available: {', '.join(losses)} with "
            f"{', '.join(NETWORKS)} on {', '.join(FOLDERS)}."
        )
    epochs = OTHER_EPOCHS.get((dataset, backbone, method.loss), EPOCHS)
    name, folder = f"{NETWORKS[backbone]}_{loss}_{epochs}.model", FOLDERS[dataset]
    return {
        "name": name,
        "folder": f"{FOCAL_CALIBRATION}/{folder}",
        "url": f"{ADDRESS}/{folder}/{name}",
    }
