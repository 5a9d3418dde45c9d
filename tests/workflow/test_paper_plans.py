"""Real Snakemake plans the whole grid of each paper in less than a minute, on a machine with
neither data nor GPU.
"""

import re
import time

import pytest

pytestmark = pytest.mark.workflow
#: aggregate, tables, figures, report, all
AT_THE_END = 5
#: eight data sets; CIFAR also with validation images drawn by each of three seeds; Tiny-ImageNet is
#: drawn by three seeds alone
FEDLAS_DATA = 8 + 2 * 3 + 2
#: four data sets and two families of corruptions
MACCAL_DATA = 4 + 2
#: four data sets, corruptions and sketches
SMART_DATA = 4 + 2


@pytest.mark.parametrize(
    ("name", "trained", "tested_again", "probes", "data"),
    [
        # 15 methods x 6 columns x 3 seeds of Table 1, 9 methods x 4 columns of Table 2, 3 with
        # dropout; CIFAR is tested with two pairs of constants
        ("fedlas", 15 * 6 * 3 + 9 * 4 + 3, 15 * 4 * 3, 3, FEDLAS_DATA),
        # 16 methods and 10 with MaC-Cal on top x 9 columns; Table 5; other widths; Figures 1, 6 and
        # 7; masks on one network, t-SNE and angles of three
        ("maccal", 26 * 9 + 4 * 2 + 2 * 2 + 5 + 3 * 3 + 6 * 2, 26 * 8, 1 + 2 * 3, MACCAL_DATA),
        # eight cells of six losses; six networks on ImageNet and -LT, five on -Sketch; six with
        # variants of calibrators; Figure 1a
        ("smart", 8 * 6 + 6 + 6 + 5, 6, 1, SMART_DATA),
    ],
)
def test_the_grid_of_a_paper_plans_completely(fresh, name, trained, tested_again, probes, data):
    (fresh.root / "data").mkdir()
    begin = time.monotonic()
    asked = f"--configfile config/papers/{name}/study.yaml --config data_root=data -n --quiet rules"
    result = fresh.snakemake(*asked.split())
    assert result.returncode == 0, result.stdout + result.stderr
    assert time.monotonic() - begin < 60
    counts = {
        job: int(count)
        for job, count in re.findall(r"^(\w+) +(\d+)$", result.stdout + result.stderr, re.M)
    }
    tested = trained + tested_again
    assert counts["train"] == trained
    assert counts["predict"] == counts["calibrate"] == tested
    assert counts["prepare_data"] == data
    assert counts["probe"] == probes
    assert counts["total"] == trained + 2 * tested + probes + data + AT_THE_END
