"""A function over many items by several threads or processes: results in the order of the items, few in memory."""

import contextlib
import functools
import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any, TypeVar

#: results that each worker may have computed before they are taken: more would fill the memory
AHEAD = 8
#: the same for processes, whose items are large
AHEAD_PROCESSES = 2

Item = TypeVar("Item")
Result = TypeVar("Result")
Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]


def in_threads(function: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """Yield ``function(item)`` in the order of ``items``, computed ahead by some threads.

    For functions that work without Python's lock (Pillow decodes and scales so), which makes threads as good as
    processes. ``items`` are drawn by the caller's thread. The result does not depend on the number of threads.
    """
    if threads == 1:
        yield from map(function, items)
        return
    yield from ahead(function, items, AHEAD * threads, threads)


def ahead(function: Callable[[Item], Result], items: Iterable[Item], most: int, threads: int = 1) -> Iterator[Result]:
    """Yield ``function(item)`` in the order of ``items``: threads compute up to ``most`` in advance."""
    pool = ThreadPoolExecutor(threads)
    try:
        yield from _ahead(pool, most, function, items)
    finally:
        # Without waiting: Python may collect an abandoned generator anywhere, even where it holds the lock that a
        # thread needs to end. A thread ends after the item that it works on.
        pool.shutdown(wait=False, cancel_futures=True)


@contextlib.contextmanager
def processes(count: int) -> Iterator[Map]:
    """Yield a ``map`` whose function runs in ``count`` processes, ahead of what is taken; the built-in one for one.

    Function, items and results are pickled between processes of this program; results come in the order of the items,
    and so does what the function raises. The processes end with this one, however it ends.
    """
    if count == 1:
        yield map
        return
    # a fork would copy the threads' locks of Arrow and torch, held or not
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), initializer=_end_with_parent)
    try:
        yield functools.partial(_ahead, pool, AHEAD_PROCESSES * count)
    finally:
        pool.shutdown(cancel_futures=True)


def _ahead(pool: Executor, most: int, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    pending: deque[Future[Result]] = deque()
    for item in items:
        pending.append(pool.submit(function, item))
        if len(pending) >= most:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def _end_with_parent() -> None:
    """Without this, workers of a killed process wait for ever: each holds the pipe open that the others wait on."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
