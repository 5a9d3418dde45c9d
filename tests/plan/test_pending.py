"""Which results must be made, from hand-written records of a plan."""

import hashlib
import os
from pathlib import Path

import pytest

from calgrid.plan import pending as states
from calgrid.plan.pending import pending
from calgrid.plan.plan import KINDS, Plan
from calgrid.storage.records import MADE_FROM, MODEL, STUDY_STAGES, listing, write_record
from calgrid.study.study import Study

GRID = {"methods": ["ce", "tst"], "shifts": ["digits_c"]}


class Results:
    """Records of all results of a plan, each with the inputs that are there when it is written."""

    def __init__(self, plan):
        self.plan = plan
        for job in plan.jobs:
            self.write(job)
        for stage in STUDY_STAGES:
            self.write_stage(stage)

    def write(self, job, content="first"):
        folder = Path(job.folder)
        folder.mkdir(parents=True, exist_ok=True)
        names = ["logits/last/test.parquet", *KINDS[job.kind].files.values()]
        names += [MODEL] if job.kind == "train" else []
        files = {}
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)
            files[name] = {"bytes": 1, "sha256": hashlib.sha256(content.encode()).hexdigest()}
        read = {}
        for above in job.above:
            read[os.path.relpath(above.folder, folder)] = listing(Path(above.folder))
        content = {"fingerprint": job.fingerprint, "files": files, "inputs": {"results": read}}
        write_record(Path(job.result), content)

    def write_stage(self, stage):
        record = Path(self.plan.stage(stage).result)
        study, read = record.parents[1], {}
        if stage == "aggregate":
            for job in self.plan.jobs:
                if job.kind != "data":
                    name = Path(job.result).name
                    digest = listing(Path(job.folder))[name]
                    read[os.path.relpath(job.folder, study)] = {name: digest}
        else:
            read["."] = listing(study, MADE_FROM[stage])
        record.parent.mkdir(parents=True, exist_ok=True)
        write_record(record, {"files": {stage: {"sha256": stage}}, "inputs": {"results": read}})

    def job(self, rule, method="ce"):
        for job in self.plan.jobs:
            if job.kind == rule and (rule == "data" or job.spec["key"]["method"] == method):
                return job
        raise LookupError(rule)

    def pending(self, **options):
        """Stages and rules with methods of what must be made -> why."""
        names = {self.plan.stage(stage).result: stage for stage in STUDY_STAGES}
        for job in self.plan.jobs:
            about = job.about if job.kind == "data" else job.spec["key"]["method"]
            names[job.result] = f"{job.kind} {about}"
        return {names[record]: must.why for record, must in pending(self.plan, **options).items()}


@pytest.fixture
def results(tmp_path, monkeypatch, make_config, home):
    monkeypatch.chdir(tmp_path)
    return Results(Plan(Study(make_config(GRID), home)))


def test_nothing_is_pending_where_all_inputs_are_the_same(results):
    assert results.pending() == {}


def test_all_of_a_new_study_is_missing_but_its_data_for_a_job(tmp_path, results, monkeypatch):
    (tmp_path / "new").mkdir()
    monkeypatch.chdir(tmp_path / "new")
    found = results.pending()
    assert set(found.values()) <= {states.MISSING, states.FOLLOWS}
    assert {name for name in found if name.startswith("data")} == {"data digits", "data digits_c"}


@pytest.mark.parametrize(
    ("rule", "own"),
    [("train", {"predict ce", "train tst"}), ("predict", {"calibrate ce"}), ("calibrate", set())],
)
def test_other_bits_of_a_result_reach_what_reads_it(results, rule, own):
    results.write(results.job(rule), "second")
    found = results.pending()
    direct = {name for name, why in found.items() if why == states.OTHER_INPUTS}
    assert direct == own | {"aggregate"}
    assert {"aggregate", "tables", "figures", "report"} <= set(found)
    assert f"{rule} ce" not in found


def test_other_images_reach_all_that_read_them(results):
    results.write(results.job("data"), "second")
    found = results.pending()
    direct = {"data digits_c", "train ce", "train tst", "predict ce", "predict tst"}
    assert {name for name, why in found.items() if why == states.OTHER_INPUTS} >= {"train ce"}
    assert direct <= set(found)


def test_data_that_are_gone_are_made_only_for_a_job_that_reads_them(results):
    for name in results.job("data").files_of_result:
        Path(name).unlink()
    assert results.pending() == {}
    Path(results.job("calibrate").result).unlink()
    assert "data digits" not in results.pending()
    Path(results.job("train").result).unlink()
    assert results.pending()["data digits"] == states.MISSING


def test_a_network_is_made_again_if_it_must_be_kept_or_is_needed(results, monkeypatch):
    (Path(results.job("train").folder) / MODEL).unlink()
    assert results.pending()["train ce"] == states.MISSING
    config = results.plan.study.config.model_copy(update={"keep_models": False})
    monkeypatch.setattr(results.plan.study, "config", config)
    assert results.pending() == {}
    Path(results.job("predict").result).unlink()
    found = results.pending()
    assert (found["train ce"], found["train tst"]) == (states.MISSING, states.FOLLOWS)


def test_what_is_forced_and_what_follows_it(results):
    found = results.pending(forced={results.job("predict", "tst").result})
    assert found == {
        "predict tst": states.FORCED,
        "calibrate tst": states.FOLLOWS,
        **dict.fromkeys(STUDY_STAGES, states.FOLLOWS),
    }


def test_files_of_a_study_with_records_of_two_versions_are_made_again(results):
    record = Path(results.plan.stage("tables").result)
    write_record(record.with_name("tables-0123456789.json"), {})
    assert results.pending() == {"tables": states.SEVERAL, "report": states.FOLLOWS}


def test_a_folder_with_the_result_of_another_name_is_made_again(results):
    one, other = Path(results.job("train").folder), Path(results.job("train", "tst").folder)
    (other / "train.json").write_bytes((one / "train.json").read_bytes())
    assert results.pending()["train tst"] == states.OTHER_NAME


def test_a_damaged_record_is_made_again(results):
    Path(results.job("calibrate").result).write_text("{")
    found = results.pending()
    assert found["calibrate ce"] == states.DAMAGED
    assert found["aggregate"] == states.FOLLOWS
