"""Colours in a terminal; none in files and pipes, nor where NO_COLOR is set (https://no-color.org)."""

import os
from typing import TextIO

CODES = {"red": 31, "green": 32, "yellow": 33, "blue": 34}


def coloured(text: str, colour: str | None, stream: TextIO) -> str:
    """Return text with the codes of a colour, one of ``CODES``, if ``stream`` is a terminal."""
    if colour is None or os.environ.get("NO_COLOR") or not stream.isatty():
        return text
    return f"\033[{CODES[colour]}m{text}\033[0m"
