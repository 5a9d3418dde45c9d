"""What the C library does with memory that this process frees."""

import contextlib
import ctypes
import sys

#: parameters of glibc (malloc.h): free bytes at the end of the heap above which they go back to the
#: system, and size above which an array is mapped on its own
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_BYTES, LARGEST_KEPT = 2**29, 2**26


def keep_freed_memory() -> None:
    """Let glibc keep up to half a gigabyte of what this process frees, for its next arrays.

    By default the activations of each training step go back to the system, and the page faults of
    the next step take up to a tenth of the processor time.
    """
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        with contextlib.suppress(AttributeError):  # another C library
            library.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
            library.mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)
