"""Parallel map with threads or processes: ordered results, few in memory."""

import contextlib
import ctypes
import functools
import multiprocessing
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any, TypeVar

#: parameters of glibc (malloc.h): free bytes at the end of the heap above which they go back to the
#: system, and size above which an array is mapped on its own
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES, LARGEST_KEPT = 2**29, 2**26
#: results that each worker may compute ahead; more would fill the memory
AHEAD = 8
#: the same for processes, whose items are large
AHEAD_PROCESSES = 2

Item = TypeVar("Item")
Result = TypeVar("Result")
Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]


def in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], threads: int
) -> Iterator[Result]:
    """Return ``function(item)`` in the order of ``items``, computed ahead by threads.

    For functions that release the GIL, such as decoding and resizing in Pillow. ``items`` are
    consumed in the caller's thread. The result does not depend on the number of threads.
    """
    return (
        map(function, items) if threads == 1 else ahead(function, items, AHEAD * threads, threads)
    )


def ahead(
    function: Callable[[Item], Result], items: Iterable[Item], most: int, threads: int = 1
) -> Iterator[Result]:
    """Yield ``function(item)`` in the order of ``items``; threads compute up to ``most`` ahead."""
    pool = ThreadPoolExecutor(threads)
    try:
        yield from _ahead(pool, most, function, items)
    finally:
        # Without waiting: Python may collect an abandoned generator while it holds a lock that a
        # thread needs to end. Each thread ends after its current item.
        pool.shutdown(wait=False, cancel_futures=True)


@contextlib.contextmanager
def processes(count: int) -> Iterator[Map]:
    """Yield a ``map`` that runs ahead in ``count`` processes; the built-in ``map`` if ``count`` is
    one.

    Function, items and results are pickled between processes of this program. Results and
    exceptions come in the order of the items. Child processes end with the parent, even if it is
    killed.
    """
    if count == 1:
        yield map
        return
    # a fork would copy held locks of Arrow's and torch's threads
    pool = ProcessPoolExecutor(
        count, multiprocessing.get_context("spawn"), initializer=_begin_worker
    )
    try:
        yield functools.partial(_ahead, pool, AHEAD_PROCESSES * count)
    finally:
        pool.shutdown(cancel_futures=True)


def _ahead(
    pool: Executor, most: int, function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    pending: deque[Future[Result]] = deque()
    for item in items:
        pending.append(pool.submit(function, item))
        if len(pending) >= most:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def _begin_worker() -> None:
    """Keep freed memory, and end when the parent dies: workers of a killed process would wait
    forever, each keeping the pipe open.
    """
    keep_freed_memory()
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def keep_freed_memory() -> None:
    """Let glibc keep up to half a gigabyte of freed memory of this process for its next arrays.

    By default the activations of each training step go back to the system, and the page faults of
    the next step take up to a tenth of the processor time.
    """
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        with contextlib.suppress(AttributeError):  # another C library
            library.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
            library.mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)
