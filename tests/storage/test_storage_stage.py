"""Published stages: outputs appear together or not at all, resume state survives, nothing is
computed twice.
"""

import errno
import json
import os
import shutil
import time
from pathlib import Path

import pytest

from calgrid.errors import StateError
from calgrid.storage.stage import republish, run_stage

OUTPUTS = ("model", "logits/best/val")
WRITER = """
import os, sys, time
from pathlib import Path
from calgrid.storage.stage import run_stage

root, what = Path(sys.argv[1]), sys.argv[2]

def produce(folder):
    with open(root.parent / "runs.log", "a") as log:
        log.write(f"{os.getpid()}\\n")
    (folder / "resume").write_text("epoch 3")
    print("producing", flush=True)
    if what == "hang":
        time.sleep(600)
    sys.stdin.readline()
    (folder / "model").write_text("weights")
    return {}

print(run_stage(root, "train", "f1", ["model"], produce, record="train.json"))
"""


@pytest.fixture
def root(tmp_path):
    return tmp_path / "run"


def write_all(content="new"):
    def produce(folder):
        for name in OUTPUTS:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{content} {name}")
        return {"said": content}

    return produce


def run(root, fingerprint="f1", produce=None, outputs=OUTPUTS, **options):
    return run_stage(
        root, "train", fingerprint, outputs, produce or write_all(), record="train.json", **options
    )


def write(name, text):
    """What produces one file."""

    def produce(folder):
        (folder / name).write_text(text)
        return {}

    return produce


def contents(root):
    return {name: (root / name).read_text() for name in OUTPUTS if (root / name).exists()}


def written(content):
    return {name: f"{content} {name}" for name in OUTPUTS}


def hidden(root):
    return sorted(path.name for path in (root / ".calgrid" / "train").iterdir())


def replace(path, text):
    """Put another file in the place of a link."""
    path.unlink()
    path.write_text(text)


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def never(_):
    raise AssertionError("it must not be computed again")


def test_outputs_appear_and_are_replaced_together_at_the_end(root):
    before = {}
    for content in ("old", "new"):  # outside a grid every call computes

        def produce(folder, content=content):
            found = write_all(content)(folder)
            assert contents(root) == before
            assert (root / ".calgrid" / "train.lock").exists()
            return found

        assert run(root, produce=produce)
        before.update(written(content))
        assert contents(root) == before
        assert hidden(root) == ["f1"]
        assert not (root / ".calgrid" / "train.lock").exists()


def test_an_error_leaves_declared_outputs_and_keeps_the_resume_state(root):
    run(root, "f0", write_all("old"))

    def fail(folder):
        write_all("half")(folder)
        (folder / "resume").write_text("epoch 3")
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        run(root, "f1", fail)
    assert contents(root) == written("old")
    assert hidden(root) == ["f0", "f1.partial"]
    assert not (root / ".calgrid" / "train.lock").exists()

    def proceed(folder):
        assert (folder / "resume").read_text() == "epoch 3"
        return write_all("new")(folder)

    assert run(root, "f1", proceed)
    assert contents(root) == written("new")
    assert hidden(root) == [
        "f1"
    ]  # with its resume state, and with what an older configuration left
    assert not list(root.rglob("resume"))


def test_resume_state_of_another_fingerprint_is_never_seen(root):
    def fail(folder):
        (folder / "resume").write_text("of f1")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        run(root, "f1", fail)
    with pytest.raises(FileNotFoundError):  # errors of the file system stay what they are
        run(root, "f2", lambda folder: (folder / "resume").read_text())
    assert (root / ".calgrid/train/f1.partial/resume").read_text() == "of f1"


def test_a_missing_output_is_an_error_and_publishes_nothing(root, refuses):
    with refuses(StateError, "did not write logits/best/val"):
        run(root, produce=write("model", "weights"))
    assert contents(root) == {}


def test_an_optional_output_is_published_with_the_run_that_wrote_it(root):
    def with_samples(folder):
        write_all("one")(folder)
        (folder / "samples").write_text("s")
        return {}

    def stage(fingerprint, produce):
        return run(root, fingerprint, produce, optional=["samples"])

    stage("f1", with_samples)
    assert (root / "samples").read_text() == "s"
    stage("f2", write_all("two"))
    assert not (root / "samples").exists()  # it would be taken for the new run's
    assert contents(root) == written("two")


def test_two_stages_of_a_run_do_not_touch_each_other(root):
    run(root, "f1", write("model", "m"), ["model"])
    run_stage(root, "predict", "f2", ["val"], write("val", "v"), record="predict.json")
    assert hidden(root) == ["f1"]
    assert ((root / "model").read_text(), (root / "val").read_text()) == ("m", "v")


def test_a_killed_process_is_continued_in_its_folder(root, start_python):
    process = start_python(WRITER, root, "hang")
    assert process.stdout.readline() == "producing\n"
    process.kill()
    process.wait()
    assert (root / ".calgrid" / "train.lock").exists()

    def proceed(folder):
        assert (folder / "resume").read_text() == "epoch 3"
        return write("model", "weights")(folder)

    assert run(root, produce=proceed, outputs=["model"])
    assert (root / "model").read_text() == "weights"
    assert sorted(path.name for path in (root / ".calgrid").iterdir()) == ["train"]


class TestPlanned:
    """Snakemake deletes declared outputs before a job, also those that another process has just
    written.
    """

    @pytest.fixture
    def planned(self, monkeypatch):
        def set_to(seconds):
            monkeypatch.setenv("CALGRID_PLANNED_AT", str(time.time() + seconds))

        set_to(-10)
        return set_to

    def test_what_was_completed_after_planning_is_published_again(self, root, planned):
        run(root)
        for name in OUTPUTS:
            (root / name).unlink()
        shutil.rmtree(root / "logits")
        assert not run(root, produce=never)
        assert contents(root) == written("new")

    def test_what_was_completed_before_planning_is_computed_again(self, root, planned):
        """Whoever plans a run wants it: a forced rerun, or one whose input changed."""
        run(root, produce=write_all("old"))
        planned(10)
        assert run(root, produce=write_all("new"))
        assert contents(root) == written("new")

    def test_outputs_that_the_other_process_did_not_want_are_computed(self, root, planned):
        """Two studies share a prediction, but one of them wants a shift family more."""
        run(root, "f1", write("model", "m"), ["model"])
        assert run(root)
        assert len(contents(root)) == 2
        assert not run(root, outputs=["model"], produce=never)
        assert len(contents(root)) == 2

    def test_what_is_complete_with_the_same_inputs_is_published_again(
        self, root, planned, monkeypatch
    ):
        """The job of repaired data runs, and so do those behind it: they find that nothing has
        changed for them.
        """
        run(root, produce=write_all("old"), inputs={"data": "d1"})
        planned(10)
        assert not run(root, produce=never, inputs={"data": "d1"})
        assert run(root, produce=write_all("new"), inputs={"data": "d2"})
        monkeypatch.setenv("CALGRID_FORCED", "1")
        assert run(root, produce=write_all("forced"), inputs={"data": "d2"})
        assert contents(root) == written("forced")

    @pytest.mark.parametrize("name", ["model", "train.json"])
    def test_what_is_damaged_is_computed_again(self, root, planned, name):
        run(root, produce=write_all("old"), inputs={})
        flip_a_bit(root / ".calgrid/train/f1" / name)  # and in the published file: they are one
        assert run(root, produce=write_all("new"), inputs={})
        assert contents(root) == written("new")

    def test_killed_while_publishing_the_next_call_publishes_the_rest(
        self, root, planned, monkeypatch
    ):
        run(root, "f0", write_all("old"))
        link, calls = os.link, []

        def killed_at_the_second(source, target):
            if str(target).endswith(".link"):
                calls.append(target)
                if len(calls) == 2:
                    raise KeyboardInterrupt
            link(source, target)

        monkeypatch.setattr(os, "link", killed_at_the_second)
        with pytest.raises(KeyboardInterrupt):
            run(root, "f1", write_all("new"))
        assert not run(root, "f1", never)
        assert contents(root) == written("new")
        assert hidden(root) == ["f1"]


@pytest.mark.parametrize("planned", [True, False])
def test_of_two_processes_at_once_one_computes_and_both_end_well(root, start_python, planned):
    environment = {"CALGRID_PLANNED_AT": str(time.time() - 10)} if planned else {}
    first = start_python(WRITER, root, "wait", **environment)
    assert first.stdout.readline() == "producing\n"
    second = start_python(WRITER, root, "wait", **environment)
    assert "is being written by process" in second.stderr.readline()
    first.stdin.write("\n")
    first.stdin.flush()
    assert first.stdout.read() == "True\n"
    assert second.stdout.read() == "False\n"
    assert (first.wait(), second.wait()) == (0, 0)
    assert (root.parent / "runs.log").read_text() == f"{first.pid}\n"
    assert (root / "model").read_text() == "weights"


def test_a_late_writer_whose_lock_was_taken_over_publishes_nothing(root, refuses):
    """A node that was lost for hours comes back while another has gone on with the run."""
    run(root, "f0", write_all("old"))
    lock = root / ".calgrid/train.lock"

    def overtaken(folder):
        write_all("late")(folder)
        lock.write_text(
            json.dumps({"token": "another", "host": "node17", "pid": 4711, "since": "then"})
        )

    with refuses(StateError, "process 4711 on node17", "stops writing"):
        run(root, "f1", overtaken)
    assert contents(root) == written("old")
    assert json.loads(lock.read_text())["host"] == "node17"


def test_a_full_disk_is_one_sentence_and_keeps_what_was_there(full_disk, refuses):
    root = full_disk / "run"
    run(root, "f0", write_all("old"))

    def too_much(folder):
        (folder / "resume").write_text("epoch 3")
        (folder / "model").write_bytes(b"x" * 64 * 1024)

    with refuses(StateError, "The disk is full while writing", "free some space and run again"):
        run(root, "f1", too_much)
    assert contents(root) == written("old")
    assert (root / ".calgrid/train/f1.partial/resume").read_text() == "epoch 3"


def test_it_works_on_a_file_system_without_hard_links(root, monkeypatch):
    def link(*_):
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", link)
    assert run(root)
    assert contents(root) == written("new")
    assert not [path for path in root.rglob("*") if path.name.endswith((".link", ".tmp", ".lock"))]


def test_published_outputs_take_no_second_copy_of_the_disk(root, monkeypatch):
    monkeypatch.setenv("CALGRID_PLANNED_AT", str(time.time() - 10))
    run(root)
    assert not run(root, produce=never)  # links onto themselves
    assert (root / "model").samefile(root / ".calgrid/train/f1/model")
    assert not list(root.rglob("*.link"))


class TestRepublish:
    """What the workflow does, before it plans, for files that are missing or damaged below a root."""

    @pytest.mark.parametrize("spoil", [Path.unlink, lambda path: replace(path, "other")])
    def test_files_of_which_a_right_one_is_kept_are_linked_again(self, root, spoil):
        run(root)
        time_of_model = (root / "model").stat().st_mtime_ns
        spoil(root / "model")
        (root / "train.json").unlink()
        assert republish(root, "train", "f1", "train.json")
        assert contents(root) == written("new")
        assert (root / "model").stat().st_mtime_ns == time_of_model, (
            "all that is made of it would be made again"
        )

    def test_a_file_that_was_changed_in_place_cannot_be(self, root):
        run(root)
        flip_a_bit(root / "model")
        assert not republish(root, "train", "f1", "train.json")
        assert not republish(root, "train", "another", "train.json")

    def test_files_that_may_be_missing_stay_so(self, root):
        run(root)
        (root / "model").unlink()
        assert republish(root, "train", "f1", "train.json", without={"model"})
        assert not (root / "model").exists()


def test_killed_between_the_last_file_and_the_rename_nothing_is_computed_again(root, monkeypatch):
    def killed(*_args, **_options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("calgrid.storage.stage.shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            run(root, "f1", write("model", "weights"), ["model"])
    assert not (root / "model").exists()
    run(root, "f1", never, ["model"])
    assert (root / "model").read_text() == "weights"
