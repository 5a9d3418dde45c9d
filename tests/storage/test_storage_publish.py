"""Results of jobs are complete or absent, resume state survives, nothing is made twice."""

import json
import shutil
import time

import pytest
from tests.conftest import flip

from calgrid.errors import StateError
from calgrid.storage.publish import FORCED, Call, make_result, replace_files
from calgrid.storage.records import Record, summary_record

OUTPUTS = ("model", "logits/best/val")
RECORD = "train.json"
WRITER = """
import os, sys, time
from pathlib import Path
from calgrid.storage.publish import Call, make_result

result, what = Path(sys.argv[1]), sys.argv[2]

def produce(folder):
    with open(result.parent / "runs.log", "a") as log:
        log.write(f"{os.getpid()}\\n")
    (folder / "resume").write_text("epoch 3")
    print("producing", flush=True)
    if what == "hang":
        time.sleep(600)
    sys.stdin.readline()
    (folder / "model").write_text("weights")
    return {}

print(make_result(Call({"fingerprint": "f1"}, result), "train.json", ["model"], produce, {}))
"""


@pytest.fixture
def result(tmp_path):
    return tmp_path / "run" / "train-f1"


@pytest.fixture
def partial(result):
    return result.with_name("train-f1.partial")


def write_all(content="new"):
    def produce(folder):
        for name in OUTPUTS:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{content} {name}")
        return {"content": content}

    return produce


def call(out, fingerprint="f1"):
    return Call({"fingerprint": fingerprint}, out)


def replace(record, outputs, produce):
    return replace_files(call(record), outputs, produce, {})


def make(folder, produce=None, outputs=OUTPUTS, **options):
    return make_result(call(folder), RECORD, outputs, produce or write_all(), {}, **options)


def write(name, text):
    """What produces one file."""

    def produce(folder):
        (folder / name).write_text(text)
        return {}

    return produce


def contents(folder):
    return {name: (folder / name).read_text() for name in OUTPUTS if (folder / name).exists()}


def written(content):
    return {name: f"{content} {name}" for name in OUTPUTS}


def names_beside(folder):
    return sorted(path.name for path in folder.parent.iterdir())


def never(_):
    raise AssertionError("it must not be computed again")


def test_a_result_appears_when_it_is_complete_and_is_not_computed_again(result):
    def produce(folder):
        content = write_all()(folder)
        assert not result.exists()
        assert names_beside(result) == ["train-f1.lock", "train-f1.partial"]
        return content

    assert make(result, produce)
    assert names_beside(result) == ["train-f1"]
    assert contents(result) == written("new")
    record = Record.read(result, RECORD)
    assert record.content["fingerprint"] == "f1"
    assert record.content["content"] == "new"
    assert set(record.files) == set(OUTPUTS)
    assert not make(result, never)


def test_it_takes_the_place_of_the_empty_folder_that_snakemake_makes(result):
    (result / "logits").mkdir(parents=True)
    assert make(result)
    assert contents(result) == written("new")


def test_an_error_publishes_nothing_and_keeps_the_resume_state(result, partial):
    def fail(folder):
        write_all("half")(folder)
        (folder / "resume").write_text("epoch 3")
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        make(result, fail)
    assert names_beside(result) == ["train-f1.partial"]

    def proceed(folder):
        assert (folder / "resume").read_text() == "epoch 3"
        return write_all("new")(folder)

    assert make(result, proceed)
    assert contents(result) == written("new")
    assert names_beside(result) == ["train-f1"]
    assert not list(result.rglob("resume"))


def test_a_missing_output_is_an_error_and_publishes_nothing(result, refuses):
    with refuses(StateError, "did not write logits/best/val"):
        make(result, write("model", "weights"))
    assert not result.exists()


def test_an_optional_output_is_listed_if_it_was_written_and_other_files_are_removed(result):
    def produce(folder):
        (folder / "samples").write_text("s")
        (folder / "notes").write_text("n")
        return write_all()(folder)

    make(result, produce, optional=["samples", "head"])
    assert set(Record.read(result, RECORD).files) == {*OUTPUTS, "samples"}
    assert (result / "samples").read_text() == "s"
    assert not (result / "notes").exists()


def test_a_killed_process_is_continued_in_its_folder(result, start_python):
    process = start_python(WRITER, result, "hang")
    assert process.stdout.readline() == "producing\n"
    process.kill()
    process.wait()
    assert result.with_name("train-f1.lock").exists()

    def proceed(folder):
        assert (folder / "resume").read_text() == "epoch 3"
        return write("model", "weights")(folder)

    assert make(result, proceed, outputs=["model"])
    assert (result / "model").read_text() == "weights"
    assert names_beside(result) == ["runs.log", "train-f1"]


def test_killed_before_the_renaming_nothing_is_computed_again(result, partial, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("calgrid.storage.publish._rename", killed)
        with pytest.raises(KeyboardInterrupt):
            make(result)
    assert not result.exists()
    assert contents(partial) == written("new")
    assert not make(result, never)
    assert contents(result) == written("new")


@pytest.mark.parametrize("name", ["model", RECORD])
def test_a_damaged_result_is_computed_again(result, name):
    make(result, write_all("old"))
    flip(result / name)
    assert make(result, write_all("new"))
    assert contents(result) == written("new")
    assert names_beside(result) == ["train-f1"]


def test_a_result_without_its_record_or_with_that_of_another_is_computed_again(result):
    make_result(call(result, "f2"), RECORD, OUTPUTS, write_all("other"), {})
    assert make(result, write_all("old"))
    (result / RECORD).unlink()
    assert make(result, write_all("new"))
    assert contents(result) == written("new")


def test_a_forced_result_is_computed_again_once_and_is_there_until_then(result, monkeypatch):
    make(result, write_all("old"))
    monkeypatch.setenv(FORCED, str(time.time() + 1))

    def produce(folder):
        assert contents(result) == written("old")
        return write_all("new")(folder)

    assert make(result, produce)
    assert contents(result) == written("new")
    monkeypatch.setenv(FORCED, str(time.time() - 10))  # another job of the same call has made it
    assert not make(result, never)


def test_a_forced_result_that_fails_takes_nothing_away(result, monkeypatch):
    make(result, write_all("old"))
    monkeypatch.setenv(FORCED, str(time.time() + 1))

    def fail(_):
        raise RuntimeError

    with pytest.raises(RuntimeError):
        make(result, fail)
    assert contents(result) == written("old")
    assert Record.read(result, RECORD).damaged() == []


def test_of_two_processes_at_once_one_computes_and_both_end_well(result, start_python):
    first = start_python(WRITER, result, "wait")
    assert first.stdout.readline() == "producing\n"
    second = start_python(WRITER, result, "wait")
    assert "is being written by process" in second.stderr.readline()
    first.stdin.write("\n")
    first.stdin.flush()
    assert first.stdout.read() == "True\n"
    assert second.stdout.read() == "False\n"
    assert (first.wait(), second.wait()) == (0, 0)
    assert (result.parent / "runs.log").read_text() == f"{first.pid}\n"
    assert (result / "model").read_text() == "weights"


def test_a_late_writer_whose_lock_was_taken_over_publishes_nothing(result, refuses):
    """A node that was lost for hours comes back while another has gone on with the run."""
    lock = result.with_name("train-f1.lock")

    def overtaken(folder):
        content = write_all("late")(folder)
        other = {"token": "another", "host": "node17", "pid": 4711, "since": "then"}
        lock.write_text(json.dumps(other))
        return content

    with refuses(StateError, "process 4711 on node17", "stops writing"):
        make(result, overtaken)
    assert not result.exists()
    assert json.loads(lock.read_text())["host"] == "node17"


def test_a_full_disk_is_one_sentence_and_keeps_the_resume_state(full_disk, refuses):
    result = full_disk / "run" / "train-f1"

    def too_much(folder):
        (folder / "resume").write_text("epoch 3")
        (folder / "model").write_bytes(b"x" * 64 * 1024)

    with refuses(StateError, "The disk is full while writing", "free some space and run again"):
        make(result, too_much)
    assert not result.exists()
    assert (result.with_name("train-f1.partial") / "resume").read_text() == "epoch 3"


class TestFilesOfAStudy:
    """They have names without fingerprints and are replaced; their record has the fingerprint."""

    @pytest.fixture
    def record(self, tmp_path):
        return tmp_path / "study" / ".calgrid" / "tables-f1.json"

    @pytest.fixture
    def study(self, record):
        return record.parents[1]

    @staticmethod
    def tables(*names):
        def produce(folder):
            (folder / "tables").mkdir()
            for name in names:
                (folder / "tables" / name).write_text(name)
            return {"number": len(names)}

        return produce

    def test_a_folder_is_replaced_as_a_whole_and_a_copy_alone_has_no_record(self, study, record):
        replace(record, ["tables"], self.tables("a.csv", "b.csv"))
        replace(record, ["tables"], self.tables("c.csv"))
        assert [path.name for path in (study / "tables").iterdir()] == ["c.csv"]
        found = summary_record(study, "tables")
        assert found.content["number"] == 1
        assert list(found.files) == ["tables/c.csv"]
        assert [path.name for path in record.parent.iterdir()] == ["tables-f1.json"]
        shutil.rmtree(record.parent)
        assert summary_record(study, "tables") is None

    def test_only_the_record_of_the_last_version_remains(self, record):
        replace(record, ["tables"], self.tables("a.csv"))
        other = record.with_name("figures-f1.json")
        other.write_text("{}")
        newer = record.with_name("tables-f2.json")
        replace(newer, ["tables"], self.tables("a.csv"))
        assert set(record.parent.iterdir()) == {newer, other}

    def test_an_error_changes_nothing(self, study, record):
        replace(record, ["tables"], self.tables("a.csv"))

        def fail(folder):
            self.tables("b.csv")(folder)
            raise RuntimeError

        with pytest.raises(RuntimeError):
            replace(record.with_name("tables-f2.json"), ["tables"], fail)
        assert [path.name for path in (study / "tables").iterdir()] == ["a.csv"]
        assert summary_record(study, "tables").damaged() == []

    def test_killed_between_two_files_there_is_no_record(self, study, record, monkeypatch):
        """So the next call replaces all of them."""

        def produce(folder):
            for name in ("a", "b"):
                (folder / name).write_text(name)
            return {}

        replace(record, ["a", "b"], produce)
        rename, renamed = "calgrid.storage.publish._rename", []

        def killed(source, target):
            if renamed:
                raise KeyboardInterrupt
            renamed.append(source.replace(target))

        with monkeypatch.context() as patched:
            patched.setattr(rename, killed)
            with pytest.raises(KeyboardInterrupt):
                replace(record.with_name("tables-f2.json"), ["a", "b"], produce)
        assert summary_record(study, "tables") is None
        replace(record, ["a", "b"], produce)
        assert summary_record(study, "tables").damaged() == []
        assert not list(record.parent.glob("*.partial"))
