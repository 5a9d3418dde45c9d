"""Inputs of jobs: a result is of the content that it names, or is not made."""

import hashlib
import json
import os

import pytest

from calgrid.cli.maintenance import inputs_now
from calgrid.components import copies, fingerprint, plugins
from calgrid.errors import ConfigError, StateError
from calgrid.storage.publish import Call, make_result, replace_files
from calgrid.storage.records import COMPARED, Record, listing, record_content, write_record

ABOVE, BELOW = "predict-aaaaaaaaaa", "calibrate-bbbbbbbbbb"


def sha256(content):
    return hashlib.sha256(content.encode()).hexdigest()


def call(out, fingerprint="b", **given):
    return Call({"fingerprint": fingerprint}, out, **given)


def make(folder, content, results=(), **given):
    """Make a result with one file; returns whether there was something to do."""

    def produce(work):
        (work / "file").write_text(content)
        return {}

    job, _, id = folder.name.partition("-")
    results = dict(results)
    return make_result(call(folder, id, **given), f"{job}.json", ["file"], produce, results)


def never(_):
    raise AssertionError("it must not be computed")


@pytest.fixture
def above(tmp_path):
    folder = tmp_path / ABOVE
    make(folder, "logits")
    return folder


@pytest.fixture
def inputs(above, tmp_path):
    """Inputs of a result from one result above it and one file, as :func:`make` takes them."""
    (tmp_path / "labels.csv").write_text("labels")
    files = {str(tmp_path / "labels.csv"): sha256("labels")}
    read = {above: {"file": sha256("logits")}}
    code = {"calgrid.errors": "e"}
    return {"results": read, "files": files, "code": code, "root": str(tmp_path)}


@pytest.fixture
def known_code(monkeypatch):
    monkeypatch.setattr(fingerprint, "changed", lambda code, sources: [])


def test_a_record_names_what_was_read_wherever_it_lies(tmp_path, inputs, known_code):
    make(tmp_path / BELOW, "metrics", **inputs)
    assert Record.read(tmp_path / BELOW, "calibrate.json").content["inputs"] == {
        "results": {f"../{ABOVE}": {"file": sha256("logits")}},
        "files": {"labels.csv": sha256("labels")},
        "code": {"calgrid.errors": "e"},
        "plugins": "",
    }


def test_a_result_of_equal_inputs_is_taken_others_made_again(tmp_path, above, inputs, known_code):
    below = tmp_path / BELOW
    assert make(below, "metrics", **inputs)
    assert not make(below, "others", **inputs)
    again = {above: {"file": sha256("other logits")}}
    (above / "predict.json").unlink()
    make(above, "other logits")
    assert make(below, "others", again, files=inputs["files"])
    assert (below / "file").read_text() == "others"


def test_resume_state_of_other_inputs_is_not_continued(tmp_path, above):
    below, seen = tmp_path / BELOW, []

    def stopped(work):
        seen.append((work / "resume").exists())
        (work / "resume").write_text("epoch 3")
        raise KeyboardInterrupt

    for content in ("a", "a", "b"):
        read = {tmp_path / "elsewhere": {"file": content}}
        with pytest.raises(KeyboardInterrupt):
            make_result(call(below), "calibrate.json", ["file"], stopped, read)
    assert seen == [False, True, False]


class TestWhatChangesAfterPlanning:
    """One sentence and no result, before the computation and after it."""

    @pytest.fixture(params=["before", "after"])
    def said(self, request, tmp_path, inputs):
        """What is said of a change before or during the computation, which makes no result."""

        def of(change):
            def produce(work):
                (work / "file").write_text("metrics")
                change()
                return {}

            folder, given = tmp_path / BELOW, dict(inputs)
            results = given.pop("results")
            if request.param == "before":
                change()
                produce = never
            with pytest.raises(StateError) as error:
                make_result(call(folder, **given), "calibrate.json", ["file"], produce, results)
            assert not folder.exists()
            assert not folder.with_name(f"{folder.name}.partial").exists()
            return str(error.value)

        return of

    def test_a_file(self, said, tmp_path, known_code):
        path = tmp_path / "labels.csv"
        message = f"{path} was changed after the study was planned; run again."
        assert said(lambda: path.write_text("other")) == message

    def test_a_result_above(self, said, above, known_code):
        def change():
            (above / "predict.json").unlink()
            make(above, "others")

        message = f"{above}/file was made anew while it was read; run again."
        assert said(change) == message

    def test_code(self, said, monkeypatch):
        found = []
        monkeypatch.setattr(fingerprint, "changed", lambda code, sources: found)
        message = "losses/mine.py was edited after the study was planned; run again."
        assert said(lambda: found.append("losses/mine.py")) == message


def test_files_of_a_study_follow_their_inputs(tmp_path, above):
    record = tmp_path / "study/.calgrid/tables-c.json"

    def write(content):
        def produce(work):
            (work / "table").write_text(content)
            return {}

        return produce

    read = {above: {"file": sha256("logits")}}
    assert replace_files(call(record), ["table"], write("1"), read)
    assert not replace_files(call(record), ["table"], never, read)
    (tmp_path / "study/table").write_text("damaged")
    assert replace_files(call(record), ["table"], write("1"), read)
    (above / "predict.json").unlink()
    make(above, "others")
    read = {above: {"file": sha256("others")}}
    assert replace_files(call(record), ["table"], write("2"), read)
    assert (tmp_path / "study/table").read_text() == "2"
    assert listing(tmp_path / "study")["table"] == sha256("2")


def test_of_a_record_that_is_cut_off_or_missing_nothing_is_known(tmp_path):
    path = tmp_path / "record.json"
    write_record(path, {"files": {}, "spec": {"text": "x"}, "fingerprint": "f"})
    whole = json.loads(path.read_text())
    assert record_content(path) == {key: whole[key] for key in COMPARED if key in whole}
    os.truncate(path, path.stat().st_size - 3)
    assert record_content(path) == record_content(tmp_path / "no.json") == {}


def test_inputs_of_now_are_the_same_others_or_gone(tmp_path, above, inputs, known_code):
    make(tmp_path / BELOW, "metrics", **inputs)
    content = Record.read(tmp_path / BELOW, "calibrate.json").content
    logits, labels = sha256("logits"), sha256("labels")
    found = list(inputs_now(content, tmp_path / BELOW, tmp_path))
    assert found == [(str(above / "file"), logits, logits), ("labels.csv", labels, labels)]
    (above / "predict.json").unlink()
    make(above, "others")
    (tmp_path / "labels.csv").unlink()
    found = list(inputs_now(content, tmp_path / BELOW, tmp_path))
    assert found == [(str(above / "file"), logits, sha256("others")), ("labels.csv", labels, None)]
    assert list(inputs_now(content, tmp_path / BELOW, None))[1] == ("labels.csv", labels, None)


class TestPlugins:
    """A job imports plugins from a copy of what its fingerprint names."""

    @pytest.fixture
    def plugin(self, tmp_path, monkeypatch):
        """A plugin with modules, files of data, and files that no fingerprint covers."""
        empty = ("calibrators/other.py", "tools/__init__.py", "tools/inner.py", "a.md", "b.md")
        files = {"beside.py": "", **{f"own/{name}": "" for name in (*empty, ".hidden")}}
        text = "import own.tools.inner\nFILES = ['../a.md']\nX = 1\n"
        files |= {"own/calibrators/own_ts.py": text, "own/table.csv": "1"}
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        monkeypatch.setenv(plugins.VARIABLE, "")
        plugins.use([tmp_path / "own"])
        yield tmp_path
        plugins.use([])

    def published(self, root):
        code = fingerprint.code_digests(["own.calibrators.own_ts"])
        folder = root / "copies" / copies.name_of(code)
        copies.publish(folder, code)
        return folder

    def test_it_holds_what_the_fingerprint_names(self, plugin):
        assert {*copies.files_of(self.published(plugin))} == {
            "own/calibrators/own_ts.py",
            "own/tools/__init__.py",
            "own/tools/inner.py",
            "own/table.csv",
            "own/a.md",
            plugins.PACKAGES,
        }

    @pytest.mark.parametrize("name", ["own/tools/inner.py", "own/table.csv", "own/a.md"])
    def test_another_content_has_another_copy(self, plugin, name):
        before = self.published(plugin)
        (plugin / name).write_text("# other\n")
        plugins.use([plugin / "own"])
        assert self.published(plugin) != before
        assert copies.is_intact(before)

    def test_a_damaged_copy_is_refused_by_a_job_and_made_again_by_planning(self, plugin, refuses):
        folder = self.published(plugin)
        given = call(plugin / "out", plugins=str(folder))
        given.check()
        (folder / "own/tools/inner.py").write_text("Y = 2\n")
        with refuses(StateError, f"The copy of plugins {folder} was changed; run again."):
            given.check()
        assert self.published(plugin) == folder
        given.check()

    def test_an_edit_between_planning_and_the_copy_is_refused(self, plugin, refuses):
        code = fingerprint.code_digests(["own.calibrators.own_ts"])
        folder = plugin / "copies" / copies.name_of(code)
        (plugin / "own/tools/inner.py").write_text("Y = 2\n")
        with refuses(StateError, "A plugin was edited while the study was planned; run again."):
            copies.publish(folder, code)
        assert list(folder.parent.iterdir()) == []

    @pytest.mark.parametrize("files", ["['no.md']", "['../../beside.py']", "[1]"])
    def test_a_list_of_files_that_are_not_there_is_refused(self, plugin, refuses, files):
        (plugin / "own/calibrators/own_ts.py").write_text(f"FILES = {files}\n")
        with refuses(ConfigError, "own/calibrators/own_ts.py: FILES lists '"):
            fingerprint.code_digests(["own.calibrators.own_ts"])


def test_a_job_reads_several_files_of_one_result(tmp_path):
    contents = {"a.npz": b"one", "b.npz": b"two"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    read = Call({}, tmp_path / "out", tuple(tmp_path / name for name in contents)).digests()
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    assert read == {tmp_path: digests}
