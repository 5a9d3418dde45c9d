"""Start of a command in several processes, as ``torchrun`` does it."""

import logging
import os
import signal
import sys

from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import parse_args, run

from calgrid.cli.terminal import EXIT_STOPPED
from calgrid.errors import StateError
from calgrid.forkserver import ADDRESS


def start(processes: int, threads: int) -> None:
    """Run this command in several processes with ``threads`` each, and wait for all.

    Stop signals are passed on to the child processes. If some fail, this process ends with the exit
    code of the first, which has printed the reason; StateError: it was killed.
    """
    os.environ.pop(ADDRESS, None)  # they are no forks of one process: each starts CUDA for itself
    logging.disable()  # of torchrun, which would write after the reason of a failure
    # torchrun passes on SIGTERM, SIGINT and SIGHUP; only newer ones can be told of others
    signal.signal(signal.SIGUSR1, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    options = [
        "--standalone",
        f"--nproc-per-node={processes}",
        "--module",
        "--",  # of what follows nothing is an option of torchrun
        *("calgrid", *sys.argv[1:], "--threads", str(threads)),
    ]
    try:
        run(parse_args(options))
    except SignalException:
        sys.exit(EXIT_STOPPED)
    except ChildFailedError as error:
        codes = {number: failure.exitcode for number, failure in error.failures.items()}
        # killed by somebody, before failed because of it, before ended by torchrun
        process = min(codes, key=lambda number: (codes[number] == -signal.SIGTERM, codes[number]))
        if codes[process] > 0:
            sys.exit(codes[process])
        name = signal.Signals(-codes[process]).name
        raise StateError(
            f"Process {process + 1} of {processes} was killed by {name}; run again, and the "
            "training continues from its last saved state."
        ) from None
