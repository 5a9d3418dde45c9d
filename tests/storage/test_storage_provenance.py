"""Records name the source code and the kind of machine, and nothing that is nobody's business."""

import getpass
import json
import shutil
import socket
import subprocess
import sys

import pytest

from calgrid.storage import provenance

GIT = ["git", "-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]


def git(folder, *arguments):
    done = subprocess.run(
        [*GIT, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path, home):
    """A repository of its own that holds the package."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed here")
    shutil.copytree(
        home / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "all")
    return tmp_path


def ask(checkout):
    script = "from calgrid.storage import provenance; print(provenance.commit())"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(checkout / "src"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_the_commit_and_whether_files_differ_from_it(checkout):
    head = git(checkout, "rev-parse", "HEAD")
    assert ask(checkout) == head
    (checkout / "notes.txt").write_text("not tracked")
    assert ask(checkout) == head
    with (checkout / "src/calgrid/errors.py").open("a") as file:
        file.write("# changed\n")
    assert ask(checkout) == f"{head}+dirty"


def test_without_a_repository_or_below_somebody_elses_there_is_no_commit(checkout):
    shutil.rmtree(checkout / ".git")
    assert ask(checkout) == ""
    git(checkout, "init", "--quiet")
    (checkout / "other").write_text("other")
    git(checkout, "add", "other")
    git(checkout, "commit", "--quiet", "--message", "other")
    assert ask(checkout) == ""


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
