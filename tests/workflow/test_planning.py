"""What a change makes Snakemake run again: exactly the branch that it touches.

Which fingerprints a change of the configuration or an edit of the source changes is tested in
tests/study and tests/test_fingerprint.py; here that Snakemake plans by them.
"""

import os
import re

import pytest
from tests.workflow.dag import AGGREGATION, METHODS, branch, changed

pytestmark = pytest.mark.workflow


def test_all_second_stages_over_a_method_share_one_training_of_it(finished):
    methods = ["ce", "tst", "vtst", "maccal", "maccal_linear"]
    config = changed(methods=methods)
    config["methods"] = {"maccal_linear": {"base": "maccal", "head": "linear", "sparsity": "fixed"}}
    finished.configure(config, "second.yaml")
    plan = finished.plan("second.yaml", "--forceall")
    assert {job for job in plan if "/" in job} == branch(*methods)


def test_a_seed_and_a_shift_family_more_train_only_the_new_seed(finished):
    finished.configure(changed(shifts=["digits_c", "ood/photos"], seeds=[1, 2]), "more.yaml")
    old = branch(*METHODS, stages=("predict", "calibrate"))
    new = branch(*METHODS, seed=2) | {"prepare_data digits_c"}
    assert finished.plan("more.yaml") == new | old | AGGREGATION


def test_an_ood_set_and_a_template_plan_predictions_and_no_training(finished, edit):
    edit("src/calgrid/report/report.html.j2", "</body>", "<p>changed</p></body>")
    assert finished.plan() == {"report"}
    edit("src/calgrid/datasets/photos.py", "SHRINK = 2", "SHRINK = 3")
    expected = (
        branch(*METHODS, stages=("predict", "calibrate")) | AGGREGATION | {"prepare_data photos"}
    )
    assert finished.plan() == expected


def test_a_forced_job_plans_what_is_made_from_it(finished):
    """Its result has the same name, and may have other bits."""
    record = finished.result("mbls", "train").relative_to(finished.root) / "train.json"
    plan = finished.plan("tiny.yaml", "--forcerun", str(record))
    assert plan == branch("mbls", "tst+mbls") | AGGREGATION


def test_a_file_of_the_study_is_made_again_by_its_name_if_another_configuration_made_it(finished):
    page = "results/tiny/report.html"
    config = changed()
    config["statistics"]["baseline"] = "mbls"
    finished.configure(config, "baseline.yaml")
    assert finished.plan("baseline.yaml", "--", page) == AGGREGATION
    assert finished.plan("baseline.yaml", "--", "results/tiny/summary.parquet") == {"aggregate"}
    assert finished.plan("tiny.yaml", "--", page) == set()


def test_the_profile_of_the_call_says_where_jobs_run_also_in_a_dry_run(fresh):
    pytest.importorskip("snakemake_executor_plugin_slurm")
    fresh.configure({**changed(methods=["ce"]), "device": "cuda"})
    # --directory: the profile's place is relative to where Snakemake is called
    call = "--profile slurm --configfile tiny.yaml -n --cores 2 --directory elsewhere"
    result = fresh.snakemake(*call.split())
    assert result.returncode == 0, result.stdout + result.stderr
    asked = re.findall(
        r"^rule (\w+):$.*?^ +resources: (.*?)$",
        result.stdout + result.stderr,
        re.MULTILINE | re.DOTALL,
    )
    assert {rule for rule, resources in asked if "gpu=1" in resources} == {"train", "predict"}
    if any(map(os.path.exists, ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg"))):
        pytest.skip("this machine has a GPU")
    here = fresh.snakemake("--configfile", "tiny.yaml", "-n", "--cores", "2")
    assert "needs a GPU and this machine has none" in here.stdout + here.stderr


def test_a_run_of_a_bank_is_imported_beside_trained_runs_of_its_protocol_and_method(twin):
    twin.shell("calgrid pack results/tiny data/tiny.zip --creator A --licence CC0-1.0")
    taken = {"base": "bank", "file": "tiny.zip", "methods": ["ce"], "calibrators": ["none", "ts"]}
    own = changed("own", methods=["ce"], seeds=[2], shifts=[])
    twin.configure({**own, "external": {"baseline": taken}}, "own.yaml")
    imported = {"import_external ce/seed1", "calibrate ce/seed1"}
    assert twin.plan("own.yaml") == {*branch("ce", seed=2), *imported, *AGGREGATION}
