"""A study that takes a run of another one: it is planned when that is finished, and planned again
when that has made the run anew.
"""

import pandas as pd
import pytest
from tests.workflow.dag import AGGREGATION, changed

pytestmark = pytest.mark.workflow
IMPORTED = {"import_external ce/seed1", "calibrate ce/seed1", *AGGREGATION}


def test_a_run_of_another_study_gets_its_numbers_and_is_imported_again_when_it_is_made_anew(twin):
    entry = {
        "run": {"study": "tiny", "method": "ce"},
        "protocol": "quick",
        "calibrators": ["none", "ts"],
    }
    statistics = {"bootstrap": 20}
    taken = {"study": "taken", "external": {"its": entry}, "statistics": statistics}
    twin.configure(taken, "taken.yaml")
    assert twin.plan("taken.yaml") == IMPORTED
    twin.run("taken.yaml", "aggregate")

    def values(study):
        metrics = pd.read_parquet(twin.root / f"results/{study}/metrics.parquet")
        rows = metrics.query("method == 'ce' and checkpoint == 'last' and shift == ''")
        names = rows[["calibrator", "split", "metric"]].astype(str).agg("/".join, axis=1)
        return rows.set_index(names)["value"].sort_index()

    first = values("taken")
    pd.testing.assert_series_equal(first, values("tiny"))

    other = changed(methods=["ce"], shifts=[])
    other["protocols"]["quick"]["epochs"] = 1
    twin.configure(other)
    twin.run("tiny.yaml", "aggregate")
    assert twin.plan("taken.yaml") == IMPORTED
    twin.run("taken.yaml", "aggregate")
    assert not values("taken").equals(first)
    pd.testing.assert_series_equal(values("taken"), values("tiny"))
