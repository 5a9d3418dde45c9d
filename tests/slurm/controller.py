"""``python -m snakemake`` that asks SLURM for the state of its jobs every second.

The executor asks ever less often (after 1, 11, 21, ... seconds), which is right on a site and would
make tests wait.
"""

import sys

from snakemake.cli import main
from snakemake_executor_plugin_slurm import Executor

POLL_SECONDS = 1

Executor.next_seconds_between_status_checks = property(lambda _: POLL_SECONDS, lambda _, __: None)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
