"""The hyper-parameters that the papers used, by data set."""

import pytest

from calgrid.components import registry

TINY = ("tiny_imagenet", "cub200", "fgvc_aircraft")
CIFAR, SMALL = ("cifar10", "cifar100"), ("digits", "cifar10")
TABLE = [
    ("ls", ("digits", "cifar10", *TINY), {"alpha": 0.05}),
    ("ls", ("cifar100",), {"alpha": 0.1}),
    ("mbls", ("digits", "cifar10", "cifar100"), {"margin": 6.0, "lambda_": 0.1}),
    ("mbls", TINY, {"margin": 10.0, "lambda_": 0.05}),
    ("fl3", ("cifar10",), {"gamma": 3.0}),
    ("fedlas_ls", ("digits", "cifar10"), {"alpha": 0.05, "beta": 4.0, "momentum": 0.95}),
    ("fedlas_ls", ("cifar100",), {"alpha": 0.1, "beta": 4.0, "momentum": 0.5}),
    ("fedlas_ls", TINY, {"alpha": 0.05, "beta": 4.0, "momentum": 0.5}),
    ("fedlas_mbls", SMALL, {"lambda_": 0.1, "beta": 0.5, "margin": 6.0, "momentum": 0.95}),
    ("fedlas_mbls", ("cifar100",), {"lambda_": 0.1, "beta": 1.0, "margin": 6.0, "momentum": 0.5}),
    ("fedlas_mbls", TINY, {"lambda_": 0.05, "beta": 0.5, "margin": 10.0, "momentum": 0.5}),
    ("ecp", ("cifar10",), {"beta": 0.1, "entropy_reduction": "sum"}),
    ("mmce", ("cifar10",), {"lambda_": 1.0}),
    ("mmce_w", ("cifar10",), {"lambda_": 2.0, "norm": "code"}),
    ("flsd53", ("cifar10",), {"gamma": 3.0, "gamma_hard": 5.0, "threshold": 0.2}),
    ("dfl", ("digits", "cifar10", "cifar100"), {"gamma": 5.0}),
    ("dfl", TINY, {"gamma": 2.3}),
    ("mdca", ("cifar10",), {"gamma": 1.0, "beta": 1.0}),
    ("mdca_nll", ("cifar10",), {"beta": 1.0}),
    ("cpc", ("cifar10",), {"lambda_d": 0.1, "lambda_e": 1.0}),
    ("logitnorm", CIFAR, {"tau": 0.04}),
    ("bsce_gra", ("cifar10",), {"gamma": 1.0, "norm": 1}),
    ("acls", CIFAR, {"margin": 6.0, "alpha": 0.1, "lambda_pos": 1.0, "lambda_neg": 0.1}),
    ("acls", TINY, {"margin": 10.0, "alpha": 0.1, "lambda_pos": 1.0, "lambda_neg": 0.1}),
    ("adafocal", (*CIFAR, *TINY), {"lambda_": 1.0, "gamma_init": 1.0, "num_bins": 15}),
    ("adafocal", (*CIFAR, *TINY), {"switch": 0.2, "gamma_max": 20.0, "inverse_max": 2.0}),
    ("crl", (*CIFAR, *TINY), {"lambda_": 1.0, "indicator": "maxprob"}),
    ("cals_alm", (*CIFAR, *TINY), {"margin": 10.0, "lambda_init": 1e-6, "period": 10}),
    ("cals_alm", (*CIFAR, *TINY), {"rho_init": 1.0, "rho_max": 10.0, "growth": 1.2}),
    ("cals_alm", (*CIFAR, *TINY), {"tolerance": 0.9}),
]
ROWS = [(name, dataset, values) for name, datasets, values in TABLE for dataset in datasets]
DUAL_FOCAL = [
    ("cifar10", "resnet50", 5.0),
    ("cifar10", "resnet110", 4.5),
    ("cifar10", "wrn26_10", 2.6),
    ("cifar10", "densenet121", 5.0),
    ("cifar100", "resnet50", 5.0),
    ("cifar100", "resnet110", 6.1),
    ("cifar100", "wrn26_10", 3.9),
    ("cifar100", "densenet121", 3.4),
    ("tiny_imagenet", "resnet50", 2.3),
]


@pytest.mark.parametrize(("name", "dataset", "values"), ROWS)
def test_hyper_parameters_are_the_published_ones(name, dataset, values):
    resolved = registry.describe("loss", name).resolve(dataset=dataset)
    assert {key: resolved[key] for key in values} == values


@pytest.mark.parametrize(("dataset", "backbone", "gamma"), DUAL_FOCAL)
def test_dual_focal_exponent_depends_on_the_backbone(dataset, backbone, gamma):
    assert (
        registry.describe("loss", "dfl").resolve(dataset=dataset, backbone=backbone)["gamma"]
        == gamma
    )
