"""Make the result of a job of a plan."""

import argparse
import os

from calgrid.cli.options import DEVICES, count, device, path, seconds
from calgrid.storage.kinds import KINDS

RUN = "job:job"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", choices=KINDS, metavar="KIND", help=", ".join(KINDS))
    path(parser, "--plan", None, "plan of the study", required=True)
    out = "folder of the result; of a stage of the study, the record to write"
    path(parser, "--out", None, out, required=True)
    path(parser, "--log", None, "log file of the job; earlier attempts in it are kept")
    threads = "CPU threads of this process, or processes (1)"
    parser.add_argument("--threads", dest="cores", type=count, default=1, help=threads)
    # The device is not part of a fingerprint, so the workflow passes it through the environment.
    # argparse checks a default that is text like an option.
    where = os.environ.get("CALGRID_DEVICE", "auto")
    parser.add_argument("--device", type=device, metavar="|".join(DEVICES), default=where)
    default = os.environ.get("CALGRID_RESUME_SECONDS", "60")
    every = "seconds between resume states of a training (60)"
    parser.add_argument("--resume-every", type=seconds, default=default, help=every)
