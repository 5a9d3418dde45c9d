"""What a change makes Snakemake run again: exactly the branch that it touches."""

import copy
import re

import numpy as np
import pytest
from tests.workflow.dag import AGGREGATION, CONFIG, branch

pytestmark = pytest.mark.workflow
ALL = ("ce", "mbls", "tst", "tst+mbls")


def changed(**grid):
    config = copy.deepcopy(CONFIG)
    config["grids"][0].update(grid)
    return config


def test_nothing_to_do_after_a_finished_run(finished):
    assert finished.plan() == set()
    assert finished.plan("tiny.yaml", "--snakefile", "workflow/Snakefile") == set()


def test_a_first_stage_is_trained_once_for_all_second_stages(finished):
    plan = finished.plan("tiny.yaml", "--forceall")
    assert {job for job in plan if job.startswith("train")} == {f"train {method}/seed1" for method in ALL}


def test_all_second_stages_over_cross_entropy_share_one_training(finished):
    methods = ["ce", "tst", "vtst", "maccal", "maccal_linear"]
    config = changed(methods=methods)
    config["methods"] = {"maccal_linear": {"base": "maccal", "head": "linear", "sparsity": "fixed"}}
    finished.configure(config, "second.yaml")
    plan = finished.plan("second.yaml", "--forceall")
    assert sorted(job for job in plan if job.startswith("train")) == sorted(f"train {m}/seed1" for m in methods)
    planned = finished.plan("second.yaml")  # ce and tst are there
    new = {"vtst", "maccal", "maccal_linear"}
    assert {job for job in planned if job.startswith("train")} == {f"train {method}/seed1" for method in new}


def test_three_jobs_a_run(finished):
    plan = finished.plan("tiny.yaml", "--forceall")
    assert {job for job in plan if "/" in job} == branch(*ALL)


def test_a_hyper_parameter_plans_its_method_and_the_second_stages_on_it(finished):
    config = copy.deepcopy(CONFIG)
    config["overrides"] = [{"match": {"method": "mbls"}, "set": {"margin": 10.0}}]
    finished.configure(config, "margin.yaml")
    assert finished.plan("margin.yaml") == branch("mbls", "tst+mbls") | AGGREGATION


def test_the_source_of_a_loss_plans_its_method_and_the_second_stages_on_it(finished, edit):
    edit("src/calgrid/losses/mbls.py", "margin: float = 6.0", "margin: float = 7.0")
    assert finished.plan() == branch("mbls", "tst+mbls") | AGGREGATION


def test_the_source_of_a_procedure_plans_its_methods_only(finished, edit):
    edit("src/calgrid/procedures/tst.py", "hidden: int = 128", "hidden: int = 64")
    assert finished.plan() == branch("tst", "tst+mbls") | AGGREGATION


def test_a_comment_or_docstring_plans_nothing(finished, edit):
    edit("src/calgrid/losses/mbls.py", '"""', '"""Explained better. ')
    edit("src/calgrid/training/trainer.py", "import copy\n", "import copy  # for the best weights\n")
    assert finished.plan() == set()


def test_storage_and_command_line_plan_nothing(finished, edit):
    edit("src/calgrid/storage/locks.py", "HEARTBEAT_SECONDS = 15.0", "HEARTBEAT_SECONDS = 20.0")
    edit("src/calgrid/cli/main.py", "EXIT_USER = 2", "EXIT_USER = 3")
    assert finished.plan() == set()


def test_a_calibrator_plans_no_training_and_no_prediction(finished, edit):
    edit("src/calgrid/calibrators/ts.py", "\n@register", "\n_CHANGED = 1\n\n\n@register")
    assert finished.plan() == branch(*ALL, stages=("calibrate",)) | AGGREGATION


def test_a_calibrator_that_is_not_used_plans_nothing(finished, edit):
    edit("src/calgrid/calibrators/iso.py", "\n@register", "\n_CHANGED = 1\n\n\n@register")
    assert finished.plan() == set()


def test_a_metric_plans_calibration_only(finished, edit):
    edit("src/calgrid/metrics/smooth.py", "\ndef smce", "\n_CHANGED = 1\n\n\ndef smce")
    assert finished.plan() == branch(*ALL, stages=("calibrate",)) | AGGREGATION


def test_a_plot_plans_figures_and_report_only(finished, edit):
    edit("src/calgrid/reporting/figures/__init__.py", "\ndef write_figures", "\n_CHANGED = 1\n\n\ndef write_figures")
    assert finished.plan() == {"figures", "report"}


def test_the_template_of_the_report_plans_the_report_only(finished, edit):
    edit("src/calgrid/reporting/report.html.j2", "</body>", "<p>changed</p></body>")
    assert finished.plan() == {"report"}


def test_a_seed_plans_only_the_new_seed(finished):
    finished.configure(changed(seeds=[1, 2]), "seeds.yaml")
    assert finished.plan("seeds.yaml") == branch(*ALL, seed=2) | AGGREGATION


def test_a_calibrator_more_plans_no_training_and_no_prediction(finished):
    finished.configure(changed(calibrators=["none", "ts", "iso"]), "calibrators.yaml")
    assert finished.plan("calibrators.yaml") == branch(*ALL, stages=("calibrate",)) | AGGREGATION


def test_a_shift_family_more_plans_predictions_but_no_training(finished):
    finished.configure(changed(shifts=["digits_c", "ood/photos"]), "shifts.yaml")
    expected = branch(*ALL, stages=("predict", "calibrate")) | AGGREGATION | {"prepare_data digits_c"}
    assert finished.plan("shifts.yaml") == expected
    assert finished.plan() == set()


def test_a_method_more_plans_that_method_only(finished):
    finished.configure(changed(methods=[*ALL, "ls"]), "methods.yaml")
    assert finished.plan("methods.yaml") == branch("ls") | AGGREGATION


def test_a_method_less_plans_aggregation_only(finished):
    finished.configure(changed(methods=["ce", "mbls", "tst"]), "fewer.yaml")
    assert finished.plan("fewer.yaml") == AGGREGATION


def test_the_device_plans_nothing(finished):
    finished.configure({**CONFIG, "device": "auto"}, "device.yaml")
    assert finished.plan("device.yaml") == set()


def test_label_counts_plan_calibration_only(finished):
    np.save(finished.root / "counts.npy", np.ones((1200, 10)))
    finished.configure({**CONFIG, "label_counts": {"digits": "counts.npy"}}, "counted.yaml")
    assert finished.plan("counted.yaml") == branch(*ALL, stages=("calibrate",)) | AGGREGATION


def test_the_data_set_plans_everything(finished, edit):
    edit("src/calgrid/datasets/digits.py", "SPLIT_SEED = 1", "SPLIT_SEED = 2")
    assert finished.plan() == branch(*ALL) | AGGREGATION | {"prepare_data digits"}


def test_an_ood_set_plans_predictions_but_no_training(finished, edit):
    edit("src/calgrid/datasets/photos.py", "SHRINK = 2", "SHRINK = 3")
    expected = branch(*ALL, stages=("predict", "calibrate")) | AGGREGATION | {"prepare_data photos"}
    assert finished.plan() == expected


def test_one_method_is_run_again_by_the_documented_command(finished):
    files = [str(p) for p in finished.root.glob("results/runs/*/*/*/mbls/*/train.json")]
    relative = [path.removeprefix(f"{finished.root}/") for path in files]
    assert finished.plan("tiny.yaml", "--forcerun", *relative) == branch("mbls", "tst+mbls") | AGGREGATION - {
        "manifest"
    }


def test_a_backbone_with_a_slash_in_its_name_has_one_folder(finished):
    finished.configure(changed(backbones=["timm/test_vit.r160_in1k"], methods=["ce", "tst"]), "timm.yaml")
    done = finished.snakemake("--configfile", "timm.yaml", "-n", "--cores", "2")
    assert done.returncode == 0, done.stderr
    folder = "results/runs/quick/digits/timm+test_vit.r160_in1k"
    for name in ("ce/seed1/train.json", "ce/seed1/predict.json", "tst/seed1/predict.json"):
        assert f"{folder}/{name}" in done.stdout
    assert "timm/test_vit" not in "".join(re.findall(r"^ +(?:output|log): .*", done.stdout, re.MULTILINE))
    assert finished.plan("timm.yaml") == branch("ce", "tst") | AGGREGATION
