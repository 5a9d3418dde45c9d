"""Records name the source code and the kind of machine, and nothing that is nobody's business."""

import getpass
import json
import shutil
import socket
import subprocess

import pytest

from calgrid.storage import provenance

GIT = ["git", "-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]


def git(folder, *arguments):
    done = subprocess.run(
        [*GIT, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository of its own that holds the module."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed here")
    file = tmp_path / "src/calgrid/storage/provenance.py"
    file.parent.mkdir(parents=True)
    file.write_text("")
    monkeypatch.setattr(provenance, "__file__", str(file))
    monkeypatch.delenv(provenance.COMMIT_VARIABLE, raising=False)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "all")
    return tmp_path


def test_the_commit_and_whether_files_differ_from_it(checkout):
    head = git(checkout, "rev-parse", "HEAD")
    assert provenance.commit() == head
    (checkout / "notes.txt").write_text("not tracked")
    assert provenance.commit() == head
    (checkout / "src/calgrid/storage/provenance.py").write_text("# changed\n")
    assert provenance.commit() == f"{head}+dirty"


def test_without_a_repository_or_below_somebody_elses_there_is_no_commit(checkout):
    shutil.rmtree(checkout / ".git")
    assert provenance.commit() == ""
    git(checkout, "init", "--quiet")
    (checkout / "other").write_text("other")
    git(checkout, "add", "other")
    git(checkout, "commit", "--quiet", "--message", "other")
    assert provenance.commit() == ""


def test_git_is_asked_once_for_all_jobs_of_a_workflow(monkeypatch):
    monkeypatch.setenv("CALGRID_COMMIT", "0123abcd+dirty")
    monkeypatch.setattr(subprocess, "run", None)
    assert provenance.describe()["commit"] == "0123abcd+dirty"


def test_nothing_secret_is_recorded(monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "hunter2-secret")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    record = provenance.describe("numpy", "no-such-package")
    text = json.dumps(record)
    assert record["slurm_job"] == "4711"
    assert record["no-such-package"] == ""
    assert "hunter2-secret" not in text
    assert socket.gethostname() not in record.values()
    assert getpass.getuser() not in record.values()
