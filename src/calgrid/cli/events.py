"""Events of Snakemake's jobs, as lines of JSON, from its process to ``calgrid run``."""

import json
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path

#: environment variable with the file of the lines
VARIABLE = "CALGRID_EVENTS"
#: events of Snakemake (its ``LogEvent``) that are written
RUN_INFO, JOB_INFO, JOB_FINISHED, JOB_ERROR = "run_info", "job_info", "job_finished", "job_error"
#: event of :func:`say`
SAID = "said"
#: attributes of events
ATTRIBUTES = {
    RUN_INFO: ("stats",),
    JOB_INFO: ("jobid", "rule_name", "output", "log"),
    JOB_FINISHED: ("job_id",),
    JOB_ERROR: ("jobid", "rule_msg", "log"),
}


class Writer(logging.Handler):
    """Writes the events of Snakemake's logger."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record whose event is in ``ATTRIBUTES``."""
        event = getattr(record, "event", None)
        if event in ATTRIBUTES:
            # the name of the number of a job differs between events
            values = {name.replace("_", ""): getattr(record, name) for name in ATTRIBUTES[event]}
            _write(str(event), values)


def say(text: str) -> None:
    """Hand a message to the user of ``calgrid run``, if this command has started Snakemake."""
    _write(SAID, {"text": text})


def _write(event: str, values: Mapping[str, object]) -> None:
    path = os.environ.get(VARIABLE)
    if path:
        line = json.dumps({"event": event, "time": time.time(), **values}, default=str)
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
