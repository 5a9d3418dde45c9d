"""Freed memory stays in the process."""

import subprocess
import sys

import pytest

#: frees and allocates ten arrays of 3 MB, a hundred times, and prints the page faults
CHURN = """
import resource
import numpy as np
from calgrid.memory import keep_freed_memory
{}
for _ in range(100):
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
