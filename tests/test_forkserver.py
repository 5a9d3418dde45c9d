"""Jobs as forks of one process: the same arguments, files, signals and exit codes as without it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from calgrid import threads
from calgrid.forkserver import ADDRESS, possible

pytestmark = pytest.mark.skipif(not possible(), reason="no forks of jobs on this system")

#: takes the place of the command line in every process here: says what it is and executes a text
COMMAND_LINE = """
import os, signal, sys, time, types

def main():
    print(os.getpid(), os.getcwd(), os.environ.get("COLOUR"), sys.argv[1], flush=True)
    exec(sys.argv[2])
    return 7

fake = types.ModuleType("fake")
fake.main = main
sys.modules |= dict.fromkeys(["calgrid.cli", "calgrid.cli.main", "calgrid.jobs.train"], fake)
"""
#: starts a server, prints where it is, and waits for a line
SERVER = """
import os
from calgrid import forkserver
forkserver.start({})
input(os.environ[forkserver.ADDRESS] + "\\n")
"""


class Calls:
    """A server, and commands in its environment."""

    def __init__(self, folder: Path) -> None:
        (folder / "sitecustomize.py").write_text(COMMAND_LINE)
        path = os.pathsep.join([str(folder), *sys.path])
        self.environment = os.environ | dict.fromkeys(threads.VARIABLES, "1") | {"PYTHONPATH": path}
        self.parent = self._start("-c", SERVER, stdin=subprocess.PIPE)
        self.environment[ADDRESS] = self.parent.stdout.readline().strip()

    def _start(self, *arguments: str, **options) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
            **options,
        )

    def job(self, text: str, command: str = "job", **options) -> tuple[subprocess.Popen, list[str]]:
        """Start a job that executes a text; return its command and what it says it is."""
        process = self._start("-m", "calgrid", command, text, **options)
        return process, process.stdout.readline().split()


@pytest.fixture
def calls(tmp_path):
    calls = Calls(tmp_path)
    yield calls
    calls.parent.communicate("\n")


def ended(pid: int) -> bool:
    """Whether a process that is no child of this one ends within seconds."""
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists():
            return True
        time.sleep(0.05)
    return False


def test_a_fork_takes_over_arguments_environment_folder_files_and_returns_its_code(calls, tmp_path):
    calls.environment["COLOUR"] = "blue"
    process, said = calls.job("print(sys.stdin.read())", cwd=tmp_path, stdin=subprocess.PIPE)
    assert process.communicate("given")[0] == "given\n"
    assert process.returncode == 7
    assert said[0] != str(process.pid)
    assert said[1:] == [str(tmp_path), "blue", "job"]


@pytest.mark.parametrize(
    ("command", "change"),
    [("show", {}), ("job", {"OMP_NUM_THREADS": "2"}), ("job", {ADDRESS: "/nowhere"})],
    ids=["no job", "two threads", "no server"],
)
def test_other_commands_run_in_their_own_process(calls, command, change):
    calls.environment.update(change)
    process, said = calls.job("", command)
    assert process.wait() == 7
    assert said[0] == str(process.pid)


def test_signals_to_the_command_reach_the_job(calls):
    handler = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(75)); print(); time.sleep(60)"
    process, _ = calls.job(handler)
    process.stdout.readline()
    process.terminate()
    assert process.wait() == 75


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_job_kills_its_command_in_the_same_way(calls, number):
    process, said = calls.job("time.sleep(60)")
    os.kill(int(said[0]), number)
    assert process.wait() == -number


def test_a_killed_command_takes_its_job_along(calls):
    process, said = calls.job("time.sleep(60)")
    process.kill()
    assert ended(int(said[0]))


def test_jobs_outlive_a_killed_snakemake_and_nothing_else_does(calls):
    process, _ = calls.job("print(sys.stdin.readline())", stdin=subprocess.PIPE)
    server = int(Path(f"/proc/{calls.parent.pid}/task/{calls.parent.pid}/children").read_text())
    calls.parent.kill()
    assert ended(server)
    assert not Path(calls.environment[ADDRESS]).parent.exists()
    assert process.communicate("still here\n")[0] == "still here\n\n"
    assert process.returncode == 7


def test_nothing_that_the_server_imports_starts_cuda(run_python):
    """A fork of a process that has started it could not use a GPU."""
    program = """
import importlib, torch
from calgrid.plan.plan import KINDS
asked = []
for name in ("_cuda_getDeviceCount", "_cuda_init"):
    setattr(torch._C, name, lambda: asked.append(1) or 0)
for kind in KINDS.values():
    importlib.import_module(kind.module)
print(len(asked))
torch.cuda.is_available()
print(len(asked) == torch.backends.cuda.is_built())
"""
    assert run_python(program).split() == ["0", "True"]
