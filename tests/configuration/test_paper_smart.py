"""The configuration of SMART fills the tables of the paper, where there are no data and no weights."""

import pytest
import yaml
from tests.conftest import HOME

from calgrid.configuration.papers import cell_key
from calgrid.configuration.plan import Plan
from calgrid.configuration.study import Study

CONFIG = HOME / "config" / "papers" / "smart.yaml"
UNITS = {"cifar10", "cifar100", "imagenet", "imagenet_c", "imagenet_lt", "imagenet_sketch"}
#: eight cells of six losses; six networks on ImageNet and -LT, five on -Sketch; six with variants of calibrators
RUNS = 8 * 6 + 6 + 6 + 5 + 6


@pytest.fixture
def study(tmp_path):
    return Study({**yaml.safe_load(CONFIG.read_text()), "data_root": str(tmp_path)}, HOME)


def test_every_cell_of_its_tables_is_filled_by_some_run(study):
    (paper,) = study.papers
    asked = 0
    # Figure 5 has a study of its own
    for table in [table for table in paper["tables"] if table["id"] != "smart_figure5"]:
        for row in table["rows"]:
            for column in table["columns"]:
                place = cell_key(table, row, column)
                wanted = [
                    evaluation
                    for key, evaluation in study.evaluations.items()
                    if all(getattr(key, axis) == place[axis] for axis in ("dataset", "backbone", "method"))
                    and place["calibrator"] in evaluation.calibrators
                    and place["fit_on"] in evaluation.fit_on
                    and (place["shift"] == "" or "imagenet_c" in evaluation.families)
                ]
                assert wanted, f"{table['id']}: {place}"
                assert all(evaluation.calibrator_seeds == [1, 2, 3, 4, 5] for evaluation in wanted)
                asked += 1
    assert asked > 1000
    assert len(study.runs) == RUNS
    assert set(study.data_units()) == UNITS
    shifted = {key.backbone for key in study.runs if study.families(key) == ["imagenet_c"]}
    assert shifted == {key.backbone for key in study.runs if "imagenet" in key.backbone} - {"imagenet_wide_resnet50"}
    assert all(run["fingerprint"] for run in Plan(study).manifest()["runs"])
