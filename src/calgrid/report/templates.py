"""Templates of pages, in which text is escaped."""

import re
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from calgrid.report import captions


def template(name: str) -> jinja2.Template:
    """A template of this folder, in which text is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = _code
    environment.filters["folded"] = captions.folded
    environment.filters["unbroken"] = _unbroken
    environment.filters["slug"] = lambda name: re.sub(r"[^a-z0-9]+", "-", name.lower())
    return environment.get_template(name)


def _code(sentence: str) -> Markup:
    """Set text in backticks as code, and keep numbers with their units."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(_unbroken(sentence)))))


#: a space in front of a unit or p-value, and after a sign
TOGETHER = re.compile(r"(?<=\d) (?=%)|(?<=\bp) (?=[\d<])|(?<=[<±]) (?=\d)")


def _unbroken(words: str) -> str:
    """Keep numbers and their signs and units in one line; intervals may be broken on paper."""
    return TOGETHER.sub("\N{NO-BREAK SPACE}", words)
