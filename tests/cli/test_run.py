"""``calgrid run``: stages from the events of Snakemake, and a real study in a log."""

import io
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from tests.conftest import environment

from calgrid.cli import run
from calgrid.cli.run import Screen, Stages
from calgrid.storage.locks import OwnerLock

PLUGIN = '''"""A calibrator that fails."""

from calgrid.calibrators import Calibrator
from calgrid.components.registry import register


@register(source="a test", keeps_argmax=True, parameters="0")
class Broken(Calibrator):
    """Fails."""

    def _fit(self, logits, labels, features, head):
        raise ValueError("no such fit")

    def _transform(self, logits, features):
        return logits
'''
CONFIG = """
study: files
data_root: .
plugins: [plugins]
external:
  net: {{val: val.npz, test: test.npz, kind: logits, calibrators: [{calibrators}]}}
statistics: {{bootstrap: 20}}
"""


def begun(job, rule, time=0.0, log="", output=""):
    files = {"log": [str(log)], "output": [str(output)]}
    return {"event": "job_info", "jobid": job, "rulename": rule, "time": time, **files}


def ended(job, time):
    return {"event": "job_finished", "jobid": job, "time": time}


@pytest.fixture
def stages():
    made = Stages()
    made.take({"event": "run_info", "stats": {"train": 6, "report": 1, "all": 1, "total": 8}})
    return made


def test_jobs_are_counted_by_stage_with_the_time_left(stages, tmp_path, monkeypatch):
    log = tmp_path / "train.log"
    log.write_text("=== calgrid train\n")
    monkeypatch.setattr(run.time, "time", lambda: 30.0)
    assert stages.lines() == ["  train   6 to do", "  report  1 to do"]
    stages.take(begun(1, "train", 0.0, log))
    stages.take(begun(2, "train", 0.0, log))
    assert stages.lines()[0] == "  train   0 of 6 done, 2 running"
    stages.take(ended(1, 20.0))
    stages.take(begun(3, "train", 20.0, tmp_path / "absent.log"))
    # a job takes 20 s: job 2 is late, job 3 needs 10 s, three wait; two at a time
    assert stages.lines()[0] == "  train   1 of 6 done, 1 running, 1 queued, 0:35 left"
    stages.take(begun(9, "all"))
    assert len(stages.lines()) == 2


def test_the_first_jobs_say_themselves_how_long_they_take(stages, tmp_path, monkeypatch):
    log = tmp_path / "train.log"
    log.write_text("=== calgrid train\ntrain ce: epoch 1/4, loss 1.2, 1:30 left\n")
    monkeypatch.setattr(run.time, "time", lambda: 30.0)
    stages.take(begun(1, "train", 0.0, log))
    # 120 s a job: 90 s of this one, five wait
    assert stages.lines()[0] == "  train   0 of 6 done, 1 running, 11:30 left"


def test_a_failure_is_one_sentence_and_another_attempt_takes_it_back(stages, tmp_path):
    log = tmp_path / "train.log"
    log.write_text("=== calgrid train\ncalgrid train: The loss is NaN.\n")
    stages.take(begun(1, "train", 0.0, log))
    failed = {"event": "job_error", "jobid": 1, "rulemsg": None, "log": [str(log)], "time": 1.0}
    assert stages.take(failed) == f"{log}: calgrid train: The loss is NaN."
    assert stages.lines()[0] == "  train   0 of 6 done, 1 failed"
    assert stages.take(begun(1, "train", 2.0, log)) == f"{log}: another attempt"
    assert stages.lines()[0] == "  train   0 of 6 done, 1 queued"
    log.write_text(f"{log.read_text()}=== calgrid train\nepoch 1/4\n")
    assert stages.lines()[0] == "  train   0 of 6 done, 1 running"


def test_a_job_that_slurm_starts_again_is_queued_until_it_holds_its_lock(stages, tmp_path):
    log, lock = tmp_path / "train.log", tmp_path / "train-1.lock"
    log.write_text("=== calgrid train\nepoch 1/4\n")
    stages.take(begun(1, "train", 0.0, log, tmp_path / "train-1" / "train.json"))
    with OwnerLock(lock, "result"):
        held = lock.read_text()
        assert stages.lines()[0] == "  train   0 of 6 done, 1 running"
    lock.write_text(held.replace(f'"pid": {os.getpid()}', '"pid": 0'))  # its node failed
    assert stages.lines()[0] == "  train   0 of 6 done, 1 queued"


def test_a_log_has_only_stages_that_changed_and_a_terminal_draws_in_place():
    log = io.StringIO()
    screen = Screen(log)
    assert screen.is_due()
    screen.draw(["a 1", "b 1"])
    assert not screen.is_due()
    screen.draw(["a 2", "b 1"], last=True)
    assert log.getvalue() == "a 1\nb 1\na 2\n"
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    screen = Screen(terminal)
    screen.draw(["a 1", "b 1"])
    screen.say("news")
    assert screen.is_due()
    screen.draw(["a 2", "b 1"], last=True)
    assert terminal.getvalue() == "a 1\nb 1\n\x1b[2A\x1b[Jnews\na 2\nb 1\n"


def test_the_run_ends_when_the_reader_of_its_output_has_gone(stages, tmp_path):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    (tmp_path / "events").touch()
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        with pytest.raises(BrokenPipeError):
            run._follow(process, tmp_path / "events", stages, Screen(Closed()))
        ended, _ = process.poll(), process.kill()
    assert ended == -signal.SIGTERM


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    (folder / "plugins/calibrators").mkdir(parents=True)
    (folder / "plugins/calibrators/broken.py").write_text(PLUGIN)
    generator = np.random.default_rng(0)
    for split in ("val", "test"):
        logits = generator.normal(size=(200, 4))
        labels = (logits + generator.gumbel(size=logits.shape)).argmax(axis=1)
        np.savez(folder / f"{split}.npz", logits=logits, labels=labels)
    return folder


@pytest.fixture
def run_study(folder, home):
    def run_it(calibrators, *further, study="study.yaml"):
        (folder / "study.yaml").write_text(CONFIG.format(calibrators=calibrators))
        command = [sys.executable, "-m", "calgrid", "run", study, *further]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=folder,
            env=environment(home / "src"),
            timeout=600,
            check=False,
        )

    return run_it


@pytest.mark.workflow
def test_stages_failures_and_the_report_are_all_that_is_printed(run_study, folder):
    planned = run_study("none, ts", "-n")
    assert planned.returncode == 0, planned.stdout + planned.stderr
    assert "calibrate        1 to do" in planned.stdout
    assert not (folder / "results").exists()

    failed = run_study("none, broken", "--cores", "1")
    assert failed.returncode != 0
    assert "broken.py, line 12, fails in its fit (ValueError: no such fit)" in failed.stdout
    assert "calibrate        0 of 1 done, 1 failed" in failed.stdout
    assert "Not made because of these failures" in failed.stdout
    assert "its messages: .snakemake/log/" in failed.stderr

    done = run_study("none, ts", "--cores", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    first, *lines = done.stdout.splitlines()
    log = first.split()[-1]
    assert "rule calibrate:" in (folder / log).read_text()
    assert "  report     1 of 1 done" in lines
    assert lines[-2:] == [
        f"Report:  {folder}/results/files/report.html",
        f"Numbers: {folder}/results/files/metrics.parquet",
    ]
    assert len(lines) < 40

    by_folder = run_study("none, tss", "-n", study="results/files")  # as it was run
    assert by_folder.returncode == 0, by_folder.stdout + by_folder.stderr
    assert "to do" not in by_folder.stdout
    assert "Nothing to be done." in by_folder.stdout


@pytest.mark.workflow
def test_errors_of_planning_are_said(run_study):
    refused = run_study("none, tss")
    assert refused.returncode != 0
    assert "Unknown calibrator 'tss'" in refused.stdout
    assert "Traceback" not in refused.stdout + refused.stderr
    unknown = run_study("none", "--corez", "1")
    assert unknown.returncode != 0
    assert "--corez" in unknown.stdout
