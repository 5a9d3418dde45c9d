"""Logs of jobs: each attempt has a first line, the last failure one sentence."""

import os
import re
import socket
import subprocess
import sys

import pytest

from calgrid.cli import joblogs
from calgrid.cli.main import main
from calgrid.errors import ConfigError

SENTENCE = "calgrid train: The checkpoint model.safetensors is damaged; delete it and run again."
STOPPED = "calgrid train: Stopped by SIGTERM: the state is saved; run again to continue."
CANCELLED = "slurmstepd-n1: error: *** JOB 93 ON n1 CANCELLED AT 2026-11-22T07:43:54"
FAILED = "SLURM-job '93' failed, SLURM status is: 'FAILED'. Detailed failure reason unavailable"


def attempt(*lines):
    return "\n".join([joblogs.first_line("train", 1), *lines, ""])


def test_a_stage_begins_its_log_with_where_it_runs_and_a_command_of_users_does_not(
    monkeypatch, capsys
):
    monkeypatch.setenv("SLURM_JOB_ID", "93")
    main(["job", "import", "--plan", "no.json", "--out", "run"])
    first, last = capsys.readouterr().err.splitlines()
    where = f"process {os.getpid()} on {socket.gethostname()}, SLURM job 93"
    assert re.fullmatch(
        r"=== calgrid import, attempt 1, \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00, "
        + re.escape(where),
        first,
    )
    assert last.startswith("calgrid import: ")
    main(["metrics", "no.parquet"])
    assert "===" not in capsys.readouterr().err


def test_the_log_has_the_traceback_of_the_cause_below_the_sentence(monkeypatch, capsys, tmp_path):
    def fail(_):
        try:
            {}["a"]
        except KeyError as error:
            raise ConfigError("The loss 'mine' fails.") from error

    monkeypatch.setattr("calgrid.cli.job.job", fail)
    log = tmp_path / "train.log"
    main(["job", "train", "--plan", "p", "--out", "o", "--log", str(log)])
    log.write_text(text := capsys.readouterr().err)
    _, said, *below = text.splitlines()
    assert said == "calgrid train: The loss 'mine' fails." == joblogs.why([str(log)])
    assert (below[0], below[-1]) == ("Traceback (most recent call last):", "KeyError: 'a'")


def test_an_attempt_continues_the_log_of_those_before_which_snakemake_deletes(tmp_path):
    log = tmp_path / "seed1.log"
    arguments = ["job", "import", "--plan", "p", "--out", "o", "--log", str(log)]
    command = [sys.executable, "-m", "calgrid", *arguments]
    for attempt in (1, 2):
        log.unlink(missing_ok=True)
        with log.open("a") as stream:
            stream.write(f"warning {attempt}\n")
            stream.flush()
            subprocess.run(command, stdout=stream, stderr=stream, check=False)
    lines = log.read_text().splitlines()
    begins = [line for line in lines if line.startswith(joblogs.MARK)]
    assert [begin.split(", ")[1] for begin in begins] == ["attempt 1", "attempt 2"]
    warnings = [line for line in lines if line.startswith("warning")]
    assert warnings == ["warning 1", "warning 2"]
    assert sum("The plan p does not exist" in line for line in lines) == 2


#: the job's log, and how the reason begins
LOGS = {
    "sentence": (attempt("epoch 1/9", SENTENCE), SENTENCE),
    "only the last attempt": (attempt(SENTENCE) + attempt("epoch 5/9"), "killed, or ended without"),
    "traceback": (attempt("Traceback (most recent call last):", "KeyError: 'a'"), "KeyError: 'a'"),
    "error of CUDA in one of several processes": (
        attempt(
            "[rank1]: Traceback (most recent call last):",
            '[rank1]:   File "x.py", line 1, in <module>',
            "[rank1]: torch.AcceleratorError: CUDA error: an illegal memory access",
            "[rank1]: Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
        ),
        "torch.AcceleratorError: CUDA error",
    ),
    "no interpreter": (
        "python: not found",
        "killed, or ended without a message; the log ends with: python: ",
    ),
    "no log": (None, "no log"),
}
#: SLURM's log of a job that was stopped, what the executor says, and how the reason begins
ENDS = {
    "time limit": (f"{CANCELLED} DUE TO TIME LIMIT ***", FAILED, "time limit"),
    "cancelled": (f"{CANCELLED} ***", FAILED, "cancelled"),
    "node": (f"{CANCELLED} DUE TO NODE FAILURE, SEE SLURMCTLD LOG ***", FAILED, "its node"),
    "memory, polled": ("error: Job 93 exceeded memory limit (300 > 250)", FAILED, "out of memory"),
    "memory, cgroup": ("error: Detected 1 oom_kill event in StepId=93.0.", FAILED, "out of memory"),
    "memory, sacct": (None, "SLURM status is: 'OUT_OF_MEMORY'. Reason: None.", "out of memory"),
    "error on a node": ("srun: error: n1: task 0: Exited with exit code 1", FAILED, STOPPED),
}


def reason(folder, log, slurm, message=""):
    paths = [folder / "seed1.log", folder / "93.log"]
    for path, text in zip(paths, (log, slurm), strict=True):
        if text is not None:
            path.write_text(text)
    return joblogs.why([str(path) for path in paths], message)


@pytest.mark.parametrize("case", LOGS)
def test_the_reason_is_the_last_sentence(case, tmp_path):
    log, expected = LOGS[case]
    assert reason(tmp_path, log, "").startswith(expected)


@pytest.mark.parametrize("case", ENDS)
def test_the_reason_is_slurms_where_slurm_ended_the_job(case, tmp_path):
    slurm, message, expected = ENDS[case]
    assert reason(tmp_path, attempt(STOPPED), slurm, message).startswith(expected)


def test_a_job_that_slurm_refuses_has_no_log(tmp_path):
    message = (
        "SLURM sbatch failed. The error message was 'sbatch: error: invalid partition specified: "
        "nosuch\nsbatch: error: Batch job submission failed'.\n    sbatch call:"
    )
    said = "SLURM refused the job (invalid partition specified: nosuch); correct slurm_partition"
    assert reason(tmp_path, None, None, message).startswith(said)


def test_a_report_stays_short_however_many_jobs_failed():
    failed = {}
    for n in range(60):
        failed[f"logs/train/seed{n}.log"] = joblogs.Failed("out of memory", f"seed{n}/train.json")
    for n in range(40):
        failed[f"logs/predict/seed{n}.log"] = joblogs.Failed(f"seed {n} is damaged", "a file")
    options = ["--profile", "slurm", "--configfile", "my.yaml"]
    text = joblogs.report(failed, {"calibrate": 100, "report": 1}, 7, options)
    assert len(text.splitlines()) <= 24
    assert text.startswith(
        "100 jobs failed:\n  logs/train/seed0.log\n  and 59 more\n    out of memory\n"
    )
    again = (
        "Try the first of them alone: snakemake seed0/train.json --profile slurm "
        "--configfile my.yaml\n"
    )
    assert f"out of memory\n    {again}" in text
    assert "Try it alone: snakemake 'a file' --profile" in text
    assert "  and 37 more for other reasons" in text
    assert "Not made because of these failures: calibrate (100), report.\n" in text
    assert "\n7 other jobs were not started" in text


def test_few_failures_are_all_named():
    failed = {
        f"logs/train/seed{n}.log": joblogs.Failed("out of memory", "train.json") for n in range(6)
    }
    text = joblogs.report(failed, {}, 0, [])
    assert all(log in text for log in failed)
    assert " more" not in text


def test_of_a_call_that_was_stopped_it_is_said_that_nothing_is_lost():
    assert joblogs.report({}, {}, 12, []).startswith("Stopped: finished results are kept")
