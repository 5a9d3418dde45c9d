"""Input and output of commands: JSON, or text with colours and wrapped lines in a terminal only;
and their exit.
"""

import argparse
import json
import os
import re
import shutil
import sys
import textwrap
from typing import Any, TextIO, TypeAlias

#: what a command is given on its command line, by the names of :mod:`calgrid.cli.commands`
Arguments: TypeAlias = argparse.Namespace
#: exit code of an error that the user can fix
EXIT_USER = 2
#: exit code of a run that was stopped and can be continued (EX_TEMPFAIL)
EXIT_STOPPED = 75
#: exit code after Ctrl-C (128 + SIGINT)
EXIT_INTERRUPTED = 130
#: in the environment of each process that ``torchrun`` has started
OF_TORCHRUN = "TORCHELASTIC_RUN_ID"
CODES = {"red": 31, "green": 32, "yellow": 33, "blue": 34}
#: the first cell of a line of a table or list, or its indentation
CELL = re.compile(r"\s*(?:\S+(?: \S+)*\s{2,})?")


def coloured(text: str, colour: str | None, stream: TextIO) -> str:
    """Return text with the codes of a colour, one of ``CODES``, if ``stream`` is a terminal and
    NO_COLOR is not set (https://no-color.org).
    """
    if colour is None or os.environ.get("NO_COLOR") or not stream.isatty():
        return text
    return f"\033[{CODES[colour]}m{text}\033[0m"


def write(text: str, stream: TextIO | None = None) -> None:
    """Write text to a stream, by default the standard output; in a terminal no line is longer than
    its width.
    """
    stream = stream or sys.stdout
    if stream.isatty():
        columns = shutil.get_terminal_size().columns
        text = "\n".join(wrapped(line, columns) for line in text.split("\n"))
    stream.write(text)


def wrapped(line: str, columns: int) -> str:
    """Wrap a line between words; continuation lines start below its second cell."""
    if len(line) <= columns:
        return line
    cell = len(next(CELL.finditer(line))[0])
    further = " " * (cell if cell <= columns // 2 else 4)
    return textwrap.fill(
        line, columns, subsequent_indent=further, break_long_words=False, break_on_hyphens=False
    )


def write_json(content: Any) -> None:
    """Write values as JSON."""
    sys.stdout.write(json.dumps(content, indent=2, default=str) + "\n")
