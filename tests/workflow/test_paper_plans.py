"""Real Snakemake plans the whole grid of each paper, on a machine with neither data nor GPU."""

import re

import pytest
from tests.workflow.dag import Repository

pytestmark = pytest.mark.workflow
#: manifest, aggregate, tables, figures, report, all
AT_THE_END = 6
STAGES = 3
FEDLAS_DATA = ("cifar10", "cifar100", "svhn", "tiny_imagenet", "cub200", "cub200_448", "aircraft", "aircraft_448")
MACCAL_DATA = ("cifar10", "cifar100", "svhn", "tiny_imagenet", "cifar10_c", "cifar100_c")


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    return Repository(tmp_path_factory.mktemp("papers"))


@pytest.mark.parametrize(
    ("name", "runs", "probes", "data"),
    [
        # 15 methods x 6 columns x 3 seeds of Table 1, 9 methods x 4 columns of Table 2
        ("fedlas", 15 * 6 * 3 + 9 * 4, 3, FEDLAS_DATA),
        # 16 methods and 10 with MaC-Cal on top x 9 columns; Table 5; Figures 1, 6 and 7; masks on one network, t-SNE
        # and angles of three
        ("maccal", (16 + 10) * 9 + 4 * 2 + 5 + 3 * 3 + 6 * 2, 1 + 2 * 3, MACCAL_DATA),
    ],
)
def test_the_grid_of_a_paper_plans_completely(fresh, name, runs, probes, data):
    result = fresh.snakemake("--configfile", f"config/papers/{name}.yaml", "-n", "--quiet", "rules")
    assert result.returncode == 0, result.stdout + result.stderr
    counts = {job: int(count) for job, count in re.findall(r"^(\w+) +(\d+)$", result.stdout + result.stderr, re.M)}
    assert counts["train"] == counts["calibrate"] == runs
    assert sum(count for job, count in counts.items() if job.startswith("predict_")) == runs
    assert counts["prepare_data"] == len(data)
    assert counts["probe"] == probes
    assert counts["total"] == STAGES * runs + probes + len(data) + AT_THE_END
