"""One results folder under several calls and studies: who computes, who waits, what is planned.

Training, prediction and calibration only copy (benchmarks/null_stages.py).
"""

from collections import Counter

import pandas as pd
import pytest
from tests.workflow.dag import AGGREGATION, IDENTITY, RUN, changed, null_repository

pytestmark = pytest.mark.workflow


@pytest.fixture
def null(finished_once, tmp_path):
    return null_repository(tmp_path / "null", finished_once)


def computed(repository):
    """How often the result of each job of each run was computed, by ``job method``."""
    counts = Counter()
    for folder in (repository.root / "template/computed.txt").read_text().splitlines():
        method, _, name = folder.removeprefix(f"{RUN}/").split("/")
        counts[f"{name.partition('-')[0]} {method}"] += 1
    return counts


def test_three_calls_of_two_studies_at_once_compute_each_result_once(null):
    studies = {"tiny": ("ce", "tst"), "other": ("ce", "mbls")}
    for study, methods in studies.items():
        null.configure(changed(study, methods=list(methods), shifts=[]), f"{study}.yaml")
    calls = ("tiny", "tiny", "other")
    started = [null.start(f"{study}.yaml", "aggregate", "--rerun-incomplete") for study in calls]
    output = [process.communicate(timeout=900)[0] for process in started]
    ended = [process.returncode for process in started]
    assert ended[2] == 0, output[2]
    assert 0 in ended[:2], output
    expected = {f"{job} {m}" for job in ("train", "predict") for m in ("ce", "tst", "mbls")}
    times = computed(null)
    assert {job: times[job] for job in expected} == dict.fromkeys(expected, 1)
    for study, methods in studies.items():
        assert null.plan(f"{study}.yaml", "aggregate", "--rerun-incomplete") == set()
        metrics = pd.read_parquet(null.root / f"results/{study}/metrics.parquet")
        assert not metrics.duplicated(IDENTITY).any()
        assert set(metrics["method"]) == set(methods)
    left = [path.suffix for path in (null.root / "results").rglob("*")]
    assert not {".partial", ".lock", ".old"} & set(left)


def test_shift_sets_one_by_one_in_one_study_and_in_studies_that_share_runs_train_once(null):
    both = ["ood/photos", "digits_c"]
    for shifts in (both[1:], both):
        null.configure(changed(methods=["ce"], shifts=shifts))
        null.run("tiny.yaml", "aggregate")
    assert null.plan("tiny.yaml", "aggregate") == set()
    times = computed(null)
    assert times["train ce"] == 1
    assert times["predict ce"] == 2
    null.configure(changed("other", methods=["ce"], shifts=both[1:]), "other.yaml")
    assert null.plan("other.yaml") == AGGREGATION
