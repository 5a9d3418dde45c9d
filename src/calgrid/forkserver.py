"""Fork jobs on this machine from one process that imports the libraries once for all.

``import torch`` takes longer than many jobs of a small study. So one server runs beside Snakemake;
``python -m calgrid job ...`` sends it its arguments, environment and open files, passes signals
on to the fork, and ends as the fork does. Results of a job do not depend on the server. An
environment variable leads to it, and is unset on a cluster, where each job has a machine of its
own.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

from calgrid import threads

#: environment variable with the path of the server's socket
ADDRESS = "CALGRID_FORKSERVER"
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Request(TypedDict):
    """Command line, environment and working folder of a command."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str


def possible() -> bool:
    """Whether jobs can be forks here: on Linux, whose kernel has file descriptors of processes.

    Libraries of macOS may not be used after a fork.
    """
    if sys.platform != "linux":
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


def start(modules: Mapping[str, str]) -> None:
    """Start a fork server that ends with this process; jobs find it by the environment.

    ``modules``: the one that each kind of job runs, by the kind.
    """
    if ADDRESS in os.environ or not possible():
        return
    folder = tempfile.mkdtemp(prefix="calgrid-")  # nobody else may connect
    address = f"{folder}/socket"
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(address)
        except OSError:  # a folder for temporary files with a long name: jobs start on their own
            return
        listener.listen(socket.SOMAXCONN)
        number = str(listener.fileno())
        ends, _ = os.pipe()  # the other end stays open until this process ends, however it ends
        subprocess.Popen(
            [sys.executable, "-m", "calgrid.forkserver", number, json.dumps(modules)],
            stdin=ends,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # signals reach jobs through their commands alone
            pass_fds=[listener.fileno()],
            env=os.environ | dict.fromkeys(threads.VARIABLES, "1"),
        )
    os.close(ends)
    os.environ[ADDRESS] = address


def run() -> int | None:
    """Run the command of this process in a fork of the server; return the exit code, or None
    without a server for it.
    """
    address = os.environ.get(ADDRESS)
    # libraries read these once, when they are imported: jobs of other values run without the server
    one_thread = all(os.environ.get(name) == "1" for name in threads.VARIABLES)
    if not address or not one_thread or sys.argv[1:2] != ["job"]:
        return None
    request: Request = {
        "arguments": sys.argv,
        "environment": dict(os.environ),
        "folder": str(Path.cwd()),
    }
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(address)
        except OSError:
            return None
        signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)  # until they can be passed on
        socket.send_fds(server, [b"\0"], [0, 1, 2])
        server.sendall(json.dumps(request).encode() + b"\n")
        with server.makefile("rb") as answers:
            job = int(answers.readline() or 0)
            for number in FORWARDED if job else ():
                signal.signal(number, lambda received, _: _send(job, received))
            signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
            code = answers.readline()
    if not code:
        sys.stderr.write("calgrid: the process that forks for jobs was killed; run again.\n")
        return 1
    if int(code) < 0:  # this process ends by the same signal
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-int(code), signal.SIG_DFL)
        os.kill(os.getpid(), -int(code))
    return int(code)


def _send(job: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        os.kill(job, number)


def _serve(listener: socket.socket, modules: Mapping[str, str]) -> None:
    """Fork for each job until the parent ends; return in each fork, as the process of its job."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the keepers
    while True:
        ready, _, _ = select.select([0, listener.fileno()], [], [])
        if 0 in ready:  # the parent has ended
            shutil.rmtree(Path(listener.getsockname()).parent)
            os._exit(0)
        client, _ = listener.accept()
        files = socket.recv_fds(client, 1, 3)[1]
        with client.makefile("rb") as messages:
            request: Request | None = json.loads(messages.readline() or "null")
        if request is not None:  # its command was not killed meanwhile
            with contextlib.suppress(Exception):  # the job says what cannot be imported
                importlib.import_module(modules[request["arguments"][2]])
            gc.freeze()  # what no collection writes to stays shared
            if not os.fork():
                listener.close()
                _keep(client)
                client.close()
                _become(request, files)
                return
        client.close()
        for file in files:
            os.close(file)


def _keep(client: socket.socket) -> None:
    """Fork for one job, tell its command how the fork ends, and exit; return in the fork."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    job = os.fork()
    if not job:
        return
    with contextlib.suppress(OSError):  # the command may be killed at any time
        client.sendall(b"%d\n" % job)
    ended = os.pidfd_open(job)
    ready, _, _ = select.select([client.fileno(), ended], [], [])
    if ended not in ready:
        os.kill(job, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(job, 0)[1])
    with contextlib.suppress(OSError):
        client.sendall(b"%d\n" % code)
    os._exit(0)


def _become(request: Request, files: list[int]) -> None:
    """Take over the arguments, environment, folder and open files of a command."""
    for target, file in enumerate(files):
        os.dup2(file, target)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["arguments"]


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])), json.loads(sys.argv[2]))
    from calgrid.cli.main import main

    code = main()
    sys.stdout.flush()
    # to free all that the server imported, object by object, takes longer than many jobs
    os._exit(code)
