"""Lost, changed, misplaced and killed: one plain call makes a study whole again, to the same bytes,
or one sentence names what is wrong; times and Snakemake's own files decide nothing.
"""

import base64
import contextlib
import functools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from tests.conftest import flip
from tests.workflow.dag import AGGREGATION, CONFIG, METHODS, METRICS, RUN, branch, changed

pytestmark = pytest.mark.workflow
BRANCH = ("train", "predict", "calibrate")
OTHERS = METHODS[1:]
#: files that say when and where something ran
WITH_TIMES = ("report.html", "runs.json", "index.json")
WITH_TIMES_IN_STUDY = ("costs.", "training_time.", "pareto_")


def contents(repository):
    """Bytes of all results but those that hold times."""
    root = repository.root / "results"
    found = {}
    for path in root.rglob("*"):
        parts = path.relative_to(root).parts
        hidden = ".calgrid" in parts or parts[0] == "logs" or path.name.startswith(".")
        timed = path.name in WITH_TIMES or path.name.startswith(WITH_TIMES_IN_STUDY)
        record = path.suffix == ".json" and path.name != "manifest.json"
        if path.is_file() and not (hidden or timed or record):
            found[str(path.relative_to(repository.root))] = path.read_bytes()
    return found


def contents_and_records(repository):
    """Bytes and times of everything below the results."""
    files = [path for path in (repository.root / "results").rglob("*") if path.is_file()]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def flip_a_bit(path):
    """Change a file and keep its time."""
    before = path.stat()
    flip(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def started(repository, *arguments):
    """``calgrid`` in the folder of a repository, in a process group of its own that Ctrl-C ends."""
    return subprocess.Popen(
        [sys.executable, "-m", "calgrid", *arguments],
        cwd=repository.root,
        env={**os.environ, "PYTHONPATH": str(repository.root / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # a background process of a shell ignores it, and so would its children
        preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )


def calgrid(repository, *arguments):
    """Run ``calgrid`` in the folder of a repository; returns the process."""
    process = started(repository, *arguments)
    output, _ = process.communicate()
    return subprocess.CompletedProcess(arguments, process.returncode, output)


def refused(repository, *arguments):
    """Output of a call that fails, without a traceback."""
    result = repository.snakemake("--configfile", "tiny.yaml", "--cores", "2", *arguments)
    output = result.stdout + result.stderr
    assert result.returncode != 0, output
    assert "Traceback" not in output
    return output


class TestWhatDecides:
    """Names of folders, not times, not Snakemake's files, not other files."""

    def test_lost_records_of_snakemake_other_times_and_further_files_plan_nothing(self, twin):
        shutil.rmtree(twin.root / ".snakemake")
        for moment in (0, time.time() + 2 * 86400):
            for path in (twin.root / "results").rglob("*"):
                os.utime(path, (moment, moment), follow_symlinks=False)
            (twin.result("ce", "train") / "notes.txt").write_text("mine")
            assert twin.plan() == set()

    def test_results_whose_times_are_ahead_are_read_by_new_jobs_and_replaced_by_force(self, twin):
        changes = {"methods": ["ce", "mbls"], "calibrators": ["none", "ts", "iso"]}
        twin.configure(changed(**changes), "more.yaml")
        ahead = time.time() + 2 * 86400
        for path in (twin.root / "results").rglob("*"):
            os.utime(path, (ahead, ahead), follow_symlinks=False)
        new = branch("ce", "mbls", stages=("calibrate",)) | {"aggregate"}
        assert twin.plan("more.yaml", "aggregate") == new
        record = twin.result("mbls", "predict") / "predict.json"
        before = record.stat().st_ino
        forced = str(record.relative_to(twin.root))
        twin.run("more.yaml", "aggregate", "--forcerun", forced)
        assert set(pd.read_parquet(twin.root / METRICS)["calibrator"]) == {"none", "ts", "iso"}
        assert record.stat().st_ino != before

    def test_fewer_methods_and_a_question_plan_the_files_of_the_study_alone(self, bare):
        config = changed(methods=list(METHODS[:2]))
        question = {"question": "?", "method": "mbls", "against": "ce"}
        config["statistics"] = {**CONFIG["statistics"], "comparisons": [question]}
        bare.configure(config, "fewer.yaml")
        assert bare.plan("fewer.yaml") == AGGREGATION


@pytest.fixture(scope="module")
def bare(finished_once, tmp_path_factory):
    """The finished study without Snakemake's own files; tests only plan."""
    repository = finished_once.copy(tmp_path_factory.mktemp("bare") / "repository")
    shutil.rmtree(repository.root / ".snakemake")
    return repository


def test_two_configurations_in_turn_get_their_own_numbers_and_train_once(twin):
    """Of one study name, from two working folders: without Snakemake's files."""
    before = contents(twin)
    config = changed(methods=["ce"], shifts=[])
    config["protocols"]["quick"]["epochs"] = 1
    twin.configure(config, "short.yaml")
    shutil.rmtree(twin.root / ".snakemake")
    twin.run("short.yaml", "aggregate")
    costs = pd.read_parquet(twin.root / "results/tiny/costs.parquet")
    assert costs.loc[costs["stage"] == "train", "epochs"].tolist() == [1]
    assert set(pd.read_parquet(twin.root / METRICS)["method"]) == {"ce"}
    backup = shutil.copytree(twin.root / "results/tiny", twin.root / "backup")

    shutil.rmtree(twin.root / ".snakemake")
    assert twin.plan() == AGGREGATION
    twin.run("tiny.yaml", "aggregate")
    again = contents(twin)
    assert {path: again[path] for path in before} == before

    # files of the study from a backup: those of the other configuration, with their records
    shutil.copytree(backup, twin.root / "results/tiny", dirs_exist_ok=True)
    before = contents_and_records(twin)
    assert twin.plan() == AGGREGATION
    assert contents_and_records(twin) == before


def test_what_is_damaged_or_missing_is_made_again_to_the_same_bytes(twin):
    """Twenty flipped bits are listed; records stand for their folders: of a first stage, of data,
    of scores, of the study.
    """
    before = contents(twin)
    kept = ("/fits/", "/data/", "/tst+mbls/seed1/train-")  # the log of the last is read below
    files = [path for path in before if not any(name in path for name in kept)]
    rng = np.random.default_rng(0)
    chosen = [twin.root / files[place] for place in rng.permutation(len(files))[:20]]
    lost = [twin.result("mbls", "train"), twin.result("mbls", "predict")]
    lost += [twin.result("ce", "predict"), twin.result("tst+mbls", "calibrate")]
    model = twin.result("ce", "train") / "model.safetensors"
    for path in chosen:
        flip_a_bit(path)
    listed = calgrid(twin, "verify")
    assert listed.returncode == 2
    assert all(path.name in listed.stdout for path in chosen)
    assert calgrid(twin, "verify", "--delete").returncode == 0

    for folder in (twin.data("photos"), twin.root / "results/tiny/tables", *lost[:2]):
        shutil.rmtree(folder, ignore_errors=True)
    for record in (lost[2] / "predict.json", lost[3] / "calibrate.json", twin.root / METRICS):
        record.unlink(missing_ok=True)
    model.unlink(missing_ok=True)
    model.parent.mkdir(exist_ok=True)
    model.symlink_to("nowhere")
    # what depends on it is planned too, and finds its results
    assert twin.plan() == {"prepare_data photos"} | branch(*METHODS) | AGGREGATION
    twin.run()
    assert contents(twin) == before
    (log,) = twin.root.glob("results/logs/train/**/tst+mbls/seed1-*.log")
    text = log.read_text()
    assert (text.count("=== calgrid train, "), text.count("epoch 1/1")) == (2, 1)
    assert twin.plan() == set()


def test_a_first_stage_that_was_deleted_is_trained_again_when_anything_runs(bare):
    shutil.rmtree(bare.root / RUN / "mbls")
    config = changed(methods=["ce", "tst+mbls"])
    config["statistics"] = {"bootstrap": 25}
    bare.configure(config, "first.yaml")
    expected = {"train mbls/seed1", "calibrate ce/seed1"} | branch("tst+mbls") | AGGREGATION
    assert bare.plan("first.yaml") - {"predict tst+mbls/seed1"} == expected - {
        "predict tst+mbls/seed1"
    }


def test_models_that_may_be_deleted_are_trained_again_only_for_a_prediction(twin):
    for path in twin.root.glob(f"{RUN}/*/seed1/train-*/model.safetensors"):
        path.unlink()
    config = twin.configure({**CONFIG, "keep_models": False}, "lean.yaml")
    assert twin.plan(config.name) == set()
    shutil.rmtree(twin.result("ce", "calibrate"))
    assert twin.plan(config.name) == branch("ce", stages=("calibrate",)) | AGGREGATION
    shutil.rmtree(twin.result("ce", "predict"))
    assert twin.plan(config.name) == branch("ce") | AGGREGATION


def test_the_advice_of_a_job_that_finds_damage_works_and_nothing_else_is_lost(twin):
    """A disk goes bad: no time of the file tells; then folders are exchanged by hand, so that their
    names no longer say what they hold.
    """
    before = contents(twin)
    logits = twin.result("ce", "predict") / "logits/last/test.parquet"
    flip_a_bit(logits)
    assert twin.plan() == set()
    shutil.rmtree(twin.result("ce", "calibrate"))
    output = refused(twin)
    assert f"The logits file {logits.relative_to(twin.root)} is damaged" in output
    assert "remove it with 'calgrid verify STUDY --delete' and run again" in output
    lost = set(before) - set(contents(twin))
    assert {path.split("/")[5] for path in lost} == {"ce"}
    assert {path.split("/")[7].split("-")[0] for path in lost} == {"calibrate"}
    assert calgrid(twin, "verify", "--delete").returncode == 0
    assert twin.plan() == branch("ce", stages=("predict", "calibrate")) | AGGREGATION
    jobs = [[twin.result(method, job) for method in OTHERS] for job in BRANCH]
    fits = [twin.root.glob(f"{RUN}/{method}/seed1/fits/last/ts-*") for method in OTHERS]
    for one, other in [*jobs, *zip(*map(sorted, fits), strict=True)]:
        assert one.suffix == other.suffix
        exchange(one, other)
    twin.run("tiny.yaml", METRICS)
    assert contents(twin) == before


@pytest.mark.slow
def test_damaged_data_are_prepared_before_a_forced_training_reads_them(twin):
    before = contents(twin)
    for path in twin.data("digits").rglob("*.npy"):
        flip_a_bit(path)
    model = twin.result("ce", "train") / "model.safetensors"
    twin.run("tiny.yaml", str(model.relative_to(twin.root)), "--forceall")
    made = contents(twin)
    assert {path: made[path] for path in before} == before


def exchange(one, other):
    third = one.with_name("third")
    one.rename(third)
    other.rename(one)
    third.rename(other)


def test_a_record_that_is_a_folder_is_refused(bare):
    record = bare.result("tst+mbls", "train") / "train.json"
    content = record.read_bytes()
    record.unlink()
    record.mkdir()
    output = refused(bare, "-n")
    assert f"The file {record.relative_to(bare.root)} is a folder; remove it with" in output
    record.rmdir()
    record.write_bytes(content)


def test_a_model_that_is_a_folder_is_refused_and_removed_by_verify(twin):
    model = twin.result("ce", "train") / "model.safetensors"
    model.unlink()
    model.mkdir()
    assert f"The model {model.relative_to(twin.root)} " in refused(twin)
    assert calgrid(twin, "verify", "--delete").returncode == 0
    assert twin.plan() == branch("ce") | AGGREGATION


@pytest.mark.parametrize(
    "forced", [True, False], ids=["forced", "made meanwhile by another process"]
)
def test_a_training_that_is_killed_takes_no_finished_result_away(twin, forced):
    before = contents(twin)
    folder = twin.result("tst+mbls", "train")
    record = str((folder / "train.json").relative_to(twin.root))
    finished = shutil.copytree(folder, twin.root / "finished")
    if not forced:
        shutil.rmtree(folder)
    arguments = ("--forcerun", record) if forced else ()
    process = twin.start("tiny.yaml", record, *arguments)
    lock = folder.with_name(f"{folder.name}.lock")
    while not lock.exists() and process.poll() is None:
        time.sleep(0.02)
    if not forced:
        shutil.copytree(finished, folder, dirs_exist_ok=True)
    os.kill(json.loads(lock.read_text())["pid"], signal.SIGKILL)
    assert process.wait(300) != 0
    made = contents(twin)
    assert {path: made[path] for path in before} == before
    assert twin.plan() == set()


def test_a_killed_grid_ends_with_the_same_bytes(twin):
    whole = contents(twin)
    scores = str((twin.result("ce", "calibrate") / "calibrate.json").relative_to(twin.root))
    for folder in ("runs", "tiny", "logs"):
        shutil.rmtree(twin.root / "results" / folder)
    process = twin.start("tiny.yaml", scores)
    deadline = time.monotonic() + 300
    while not list(twin.root.glob(f"{RUN}/*/seed1/train-*.lock")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)  # controller and jobs at once, as a node that goes down
    process.wait()
    twin.run("tiny.yaml", scores, "--nolock", "--rerun-incomplete")
    assert twin.plan("tiny.yaml", scores) == set()
    logs = [path.read_text() for path in twin.root.glob("results/logs/train/**/*.log")]
    assert max(log.count("=== calgrid train, ") for log in logs) == 2, (
        "the killed attempt's log is kept"
    )
    made = contents(twin)
    assert scores.replace("calibrate.json", "metrics.parquet") in made
    assert not list(twin.root.glob("results/runs/**/*.partial"))
    assert not list(twin.root.glob("results/**/*.lock"))
    assert made == {path: whole[path] for path in made}


def test_after_ctrl_c_in_the_last_stages_a_call_gives_the_files_of_an_undisturbed_run(twin):
    before = contents(twin)
    shutil.rmtree(twin.root / "results/tiny")
    moments = []
    for stage in ("aggregate", "figures"):
        log = twin.root / f"results/logs/tiny/{stage}.log"
        log.unlink(missing_ok=True)
        process = started(twin, "run", "tiny.yaml", "--cores", "2")
        while not log.exists() and process.poll() is None:
            time.sleep(0.01)
        moments.append((stage, random.uniform(0, 5)))
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(moments[-1][1])
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate()
        assert "Traceback" not in output, moments
        assert process.returncode != 0 or contents(twin) == before, moments
    again = calgrid(twin, "run", "tiny.yaml", "--cores", "2")
    assert again.returncode == 0, again.stdout
    assert contents(twin) == before, moments
    verified = calgrid(twin, "verify")
    assert verified.returncode == 0, verified.stdout


def test_a_read_only_data_root_is_enough(finished, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a read-only disk needs root")
    try:
        rng = np.random.default_rng(0)
        for name in ("val", "test"):
            np.savez(
                folder / f"{name}.npz",
                logits=rng.normal(size=(200, 3)),
                label=rng.integers(0, 3, 200),
            )
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        files = {
            "val": "val.npz",
            "test": "test.npz",
            "kind": "logits",
            "calibrators": ["none", "ts"],
        }
        finished.configure(
            {"study": "readonly", "data_root": str(folder), "external": {"mine": files}},
            "readonly.yaml",
        )
        finished.run("readonly.yaml", "--until", "import_external")
        assert list(finished.root.glob("results/runs/external/mine/*/*/*/predict-*/predict.json"))
        assert sorted(path.name for path in folder.iterdir()) == ["test.npz", "val.npz"]
    finally:
        subprocess.run(["umount", folder], check=True)


def test_marks_of_incomplete_figures_hide_no_missing_tables_and_report(twin):
    """As after Ctrl-C when figures had just been finished."""
    study = twin.root / "results/tiny"
    shutil.rmtree(study / "tables")
    (study / "report.html").unlink()
    for stage in ("tables", "report"):
        for record in study.glob(f".calgrid/{stage}-*.json"):
            record.unlink()
    marks = twin.root / ".snakemake/incomplete"
    marks.mkdir(parents=True, exist_ok=True)
    (marks / base64.b64encode(b"results/tiny/figures").decode()).touch()
    assert twin.plan() == {"tables", "figures", "report"}
