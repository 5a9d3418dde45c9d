"""Real Snakemake plans the whole grid of each paper in less than a minute, on a machine with
neither data nor GPU.
"""

import re
import time

import pytest

pytestmark = pytest.mark.workflow
#: aggregate, tables, figures, report, all
AT_THE_END = 5
FEDLAS_DATA = (
    "cifar10",
    "cifar100",
    "svhn",
    "tiny_imagenet",
    "cub200",
    "cub200_448",
    "aircraft",
    "aircraft_448",
    # CIFAR with validation images drawn by each of three seeds, beside the fixed ones
    *("cifar10", "cifar100") * 3,
    # Tiny-ImageNet is drawn by three seeds alone
    *("tiny_imagenet",) * 2,
)
MACCAL_DATA = ("cifar10", "cifar100", "svhn", "tiny_imagenet", "cifar10_c", "cifar100_c")
SMART_DATA = ("cifar10", "cifar100", "imagenet", "imagenet_c", "imagenet_lt", "imagenet_sketch")


@pytest.mark.parametrize(
    ("name", "trained", "tested_again", "probes", "data"),
    [
        # 15 methods x 6 columns x 3 seeds of Table 1, 9 methods x 4 columns of Table 2, 3 with
        # dropout; CIFAR is tested with two pairs of constants
        ("fedlas", 15 * 6 * 3 + 9 * 4 + 3, 15 * 4 * 3, 3, FEDLAS_DATA),
        # 16 methods and 10 with MaC-Cal on top x 9 columns; Table 5; other widths; Figures 1, 6 and
        # 7; masks on one network, t-SNE and angles of three
        (
            "maccal",
            (16 + 10) * 9 + 4 * 2 + 2 * 2 + 5 + 3 * 3 + 6 * 2,
            26 * 8,
            1 + 2 * 3,
            MACCAL_DATA,
        ),
        # eight cells of six losses; six networks on ImageNet and -LT, five on -Sketch; six with
        # variants of calibrators; Figure 1a
        ("smart", 8 * 6 + 6 + 6 + 5, 6, 1, SMART_DATA),
    ],
)
def test_the_grid_of_a_paper_plans_completely(fresh, name, trained, tested_again, probes, data):
    (fresh.root / "data").mkdir()
    begin = time.monotonic()
    asked = (
        "--configfile",
        f"config/papers/{name}/study.yaml",
        "--config",
        "data_root=data",
        "-n",
        "--quiet",
        "rules",
    )
    result = fresh.snakemake(*asked)
    assert result.returncode == 0, result.stdout + result.stderr
    assert time.monotonic() - begin < 60
    counts = {
        job: int(count)
        for job, count in re.findall(r"^(\w+) +(\d+)$", result.stdout + result.stderr, re.M)
    }
    tested = trained + tested_again
    assert counts["train"] == trained
    assert counts["predict"] == counts["calibrate"] == tested
    assert counts["prepare_data"] == len(data)
    assert counts["probe"] == probes
    assert counts["total"] == trained + 2 * tested + probes + len(data) + AT_THE_END
