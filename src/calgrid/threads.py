"""The number of threads of linear algebra."""

import os

#: numpy and torch read these once, when they are imported
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def set_threads(count: int) -> None:
    """Set the threads of libraries that this process has not imported yet."""
    for variable in VARIABLES:
        os.environ[variable] = str(count)
