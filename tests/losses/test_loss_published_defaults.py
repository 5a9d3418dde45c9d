"""The hyper-parameters that the papers used, by data set.

Those of the runs of a paper's study are compared with its `hyperparameters.yaml` in
tests/study/test_shipped_configurations.py.
"""

import pytest

from calgrid.components import registry

TINY = ("tiny_imagenet", "cub200", "fgvc_aircraft")
CIFAR = ("cifar10", "cifar100")
TABLE = [
    ("ecp", ("cifar10",), {"beta": 0.1, "entropy_reduction": "sum"}),
    ("mdca_nll", ("cifar10",), {"beta": 1.0}),
    ("logitnorm", CIFAR, {"tau": 0.04}),
    ("bsce_gra", ("cifar10",), {"gamma": 1.0, "norm": 1}),
    ("acls", ("cub200", "fgvc_aircraft"), {"margin": 10.0, "alpha": 0.1}),
    ("cals_alm", (*CIFAR, *TINY), {"margin": 10.0, "lambda_init": 1e-6, "period": 10}),
    ("cals_alm", (*CIFAR, *TINY), {"rho_init": 1.0, "rho_max": 10.0, "growth": 1.2}),
    ("cals_alm", (*CIFAR, *TINY), {"tolerance": 0.9}),
]
ROWS = [(name, dataset, values) for name, datasets, values in TABLE for dataset in datasets]


@pytest.mark.parametrize(("name", "dataset", "values"), ROWS)
def test_hyper_parameters_are_the_published_ones(name, dataset, values):
    resolved = registry.describe("loss", name).resolve(dataset=dataset)
    assert {key: resolved[key] for key in values} == values
