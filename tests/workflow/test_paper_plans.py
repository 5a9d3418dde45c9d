"""Real Snakemake plans the largest grid of a paper in less than a minute, on a machine with neither
data nor GPU; the runs of each paper are counted in tests/study/test_shipped_configurations.py.
"""

import re
import time

import pytest

pytestmark = pytest.mark.workflow
#: aggregate, tables, figures, report, all
AT_THE_END = 5
#: eight data sets; CIFAR also with validation images drawn by each of three seeds; Tiny-ImageNet is
#: drawn by three seeds alone
DATA = 8 + 2 * 3 + 2
#: 15 methods x 6 columns x 3 seeds of Table 1, 9 methods x 4 columns of Table 2, 3 with dropout
TRAINED = 15 * 6 * 3 + 9 * 4 + 3
#: CIFAR is tested with two pairs of constants
TESTED = TRAINED + 15 * 4 * 3
PROBES = 3


def test_the_grid_of_a_paper_plans_completely(fresh):
    (fresh.root / "data").mkdir()
    begin = time.monotonic()
    asked = "--configfile config/papers/fedlas/study.yaml --config data_root=data -n --quiet rules"
    result = fresh.snakemake(*asked.split())
    assert result.returncode == 0, result.stdout + result.stderr
    assert time.monotonic() - begin < 60
    counts = {
        job: int(count)
        for job, count in re.findall(r"^(\w+) +(\d+)$", result.stdout + result.stderr, re.M)
    }
    assert counts["train"] == TRAINED
    assert counts["predict"] == counts["calibrate"] == TESTED
    assert counts["prepare_data"] == DATA
    assert counts["probe"] == PROBES
    assert counts["total"] == TRAINED + 2 * TESTED + PROBES + DATA + AT_THE_END
