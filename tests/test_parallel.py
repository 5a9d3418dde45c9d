"""Items dealt to threads and processes: in order, few ahead, no process outlives its parent."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from calgrid.errors import DataError
from calgrid.parallel import AHEAD, AHEAD_PROCESSES, in_threads, processes
from calgrid.storage.locks import _process_start


def square(number):
    return number**2


def refuse_three(number):
    if number == 3:
        raise DataError("Three is refused.")
    return number


def drawing(drawn):
    for number in range(200):
        drawn.append(number)
        yield number


def test_threads_keep_the_order_and_are_only_a_little_ahead():
    drawn = []
    results = in_threads(square, drawing(drawn), threads=2)
    assert [next(results) for _ in range(5)] == [0, 1, 4, 9, 16]
    assert len(drawn) <= 5 + 2 * AHEAD
    assert list(results) == [number**2 for number in range(5, 200)]


def test_what_is_left_early_does_not_wait_for_its_threads():
    """A generator is collected at any moment, perhaps by a thread that another one waits for."""
    go_on, ended = threading.Event(), threading.Event()

    def wait(number):
        if number:
            go_on.wait(60)
            ended.set()
        return number

    results = in_threads(wait, range(100), threads=2)
    assert next(results) == 0
    results.close()
    assert not ended.is_set()
    go_on.set()
    assert ended.wait(60)


@pytest.mark.parametrize("count", [1, 2])
def test_processes_keep_the_order_and_are_only_a_little_ahead(count):
    drawn = []
    with processes(count) as in_processes:
        results = in_processes(square, drawing(drawn))
        assert [next(results) for _ in range(5)] == [0, 1, 4, 9, 16]
        assert len(drawn) <= 5 + 2 * AHEAD_PROCESSES
        assert list(results) == [number**2 for number in range(5, 200)]
        assert list(in_processes(square, [7])) == [49]


@pytest.mark.parametrize("count", [1, 2])
def test_an_error_comes_in_its_place(count):
    with processes(count) as in_processes:
        results = in_processes(refuse_three, range(10))
        assert [next(results) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(DataError, match=r"Three is refused\."):
            next(results)


WORKERS = """
import multiprocessing, os, time
from calgrid.parallel import processes
if __name__ == "__main__":
    with processes(2) as in_processes:
        list(in_processes(abs, range(8)))
        print(*(child.pid for child in multiprocessing.active_children()), flush=True)
        time.sleep(60)
"""


def test_workers_end_with_a_process_that_is_killed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(WORKERS)
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    children = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(children) == 2
    assert all(map(_process_start, children))
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 30
    while any(map(_process_start, children)):
        assert time.monotonic() < deadline, "workers go on"
        time.sleep(0.05)


#: frees and allocates ten arrays of 3 MB, ten times, and prints the page faults
CHURN = """
import resource
import numpy as np
from calgrid.parallel import keep_freed_memory
{}
for _ in range(10):
    arrays = [np.empty(3_000_000, np.uint8) for _ in range(10)]
    for array in arrays:
        array[::4096] = 1
    del arrays, array
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


def faults(first):
    command = [sys.executable, "-c", CHURN.format(first)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_arrays_get_the_memory_of_freed_ones_without_page_faults():
    fetched_again = faults("") - faults("keep_freed_memory()")
    assert fetched_again > 10_000
