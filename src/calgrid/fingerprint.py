"""Fingerprints: what a result depends on, as a short string.

Snakemake does not notice an edit of an imported package, so each rule carries the fingerprint of its resolved
configuration and of the source of the modules that its stage really uses. Comments, docstrings and formatting do not
count; neither do modules that move results around without changing them.
"""

import ast
import hashlib
import io
import json
import tokenize
from collections.abc import Iterable, Mapping
from typing import Any

from calgrid import plugins
from calgrid.declarations import imported_from, parse
from calgrid.plugins import PACKAGE

LENGTH = 16
#: version of the files that stages hand to each other; raise it when their meaning changes
FORMAT_VERSION = 1
#: modules that cannot change a number: how things are found, fetched (by checksum), stored, locked, shown or reported
NEUTRAL = (
    "registry",
    "errors",
    "extras",
    "home",
    "lazy",
    "component_files",
    "declarations",
    "plugins",
    "progress",
    "fingerprint",
    "specs",
    "configuration",
    "storage",
    "cli",
    "backbones._catalogue",
    "datasets._download",
)
_DROPPED = {tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER}


def digest(value: Any) -> str:
    """Fingerprint of a JSON-like value; equal values give equal fingerprints whatever the order of their keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def of_stage(settings: Mapping[str, Any], roots: Iterable[str]) -> str:
    """Fingerprint of a stage: its settings and the source of ``roots`` with all that they import.

    Of a root ``module:class``, only what this class uses of the module counts.

    Parameters
    ----------
    settings : the resolved configuration of the stage, JSON-like; never the device or anything that is only speed.
    roots : names of modules of calgrid and of plugins, for example ``"calgrid.losses.mbls"``.
    """
    return digest({"format": FORMAT_VERSION, "settings": settings, "code": code_digest(tuple(sorted(set(roots))))})


@plugins.cached
def code_digest(roots: tuple[str, ...]) -> str:
    """Fingerprint of the source of ``roots`` and of all that they import of calgrid and plugins, directly or not."""
    return digest({name: _source_digest(name) for name in sorted(closure(roots))})


def closure(roots: Iterable[str]) -> set[str]:
    """All modules of calgrid and of plugins that ``roots`` import, themselves included, neutral ones left out.

    Raises
    ------
    FileNotFoundError : a root does not exist; its fingerprint would be that of nothing.
    ConfigError : a module is not valid Python.
    """
    found: set[str] = set()
    waiting = list(roots)
    for root in waiting:
        _source(root)
    while waiting:
        name = waiting.pop()
        if name in found or _is_neutral(name) or plugins.locate(name) is None:
            continue
        found.add(name)
        waiting.extend(_imports(name))
    return found


def _is_neutral(name: str) -> bool:
    package, _, below = name.partition(".")
    return package == PACKAGE and (
        not below or any(below == neutral or below.startswith(f"{neutral}.") for neutral in NEUTRAL)
    )


@plugins.cached
def _source(name: str) -> str:
    path = plugins.locate(name)
    if path is None:
        raise FileNotFoundError(f"module {name} has no source file")
    source = path.read_text(encoding="utf-8")
    if not name.startswith(f"{PACKAGE}."):
        parse(path, plugins.shown(name))  # what a component imports, nobody has looked at yet
    chosen = name.partition(":")[2]
    return _of_class(source, chosen) if chosen else source


def _of_class(source: str, name: str) -> str:
    """What a class uses of its module: itself, and the imports, constants, functions and classes that it names."""
    lines = source.splitlines(keepends=True)
    parts: dict[str, str] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            of = isinstance(node, ast.ImportFrom) and f"from {'.' * node.level}{node.module or ''} "
            begin = f"{of or ''}import"
            for alias in node.names:
                parts[alias.asname or alias.name] = f"{begin} {alias.name} as {alias.asname or alias.name}\n"
        else:
            first = min(mark.lineno for mark in (node, *getattr(node, "decorator_list", ())))
            text = "".join(lines[first - 1 : node.end_lineno]) + "\n"
            names = [node.name] if isinstance(node, ast.ClassDef | ast.FunctionDef) else _names(node, ast.Store)
            parts.update(dict.fromkeys(names, text))
    used, waiting = set(), [name]
    while waiting:
        each = waiting.pop()
        if each in parts and each not in used:
            used.add(each)
            waiting += _names(ast.parse(parts[each]), ast.Load)
    return "".join(dict.fromkeys(text for each, text in parts.items() if each in used))


def _names(tree: ast.AST, context: type[ast.expr_context]) -> list[str]:
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, context)]


@plugins.cached
def _imports(name: str) -> tuple[str, ...]:
    """Modules of calgrid and of plugins named in import statements anywhere in a module."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(_source(name))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = imported_from(node, name)
            names.add(module)
            # ``from package import module``: harmless where the name is no module
            names.update(f"{module}.{alias.name}" for alias in node.names)
    return tuple(sorted(each for each in names if plugins.locate(each) is not None))


@plugins.cached
def _source_digest(name: str) -> str:
    return hashlib.sha256("\0".join(significant_tokens(_source(name))).encode()).hexdigest()


def significant_tokens(source: str) -> list[str]:
    """Tokens of a module without comments, docstrings, blank lines and the amount of indentation.

    An f-string is one token in Python 3.11 and several from 3.12 on; both give the same list here.
    """
    docstrings = _docstring_positions(source)
    lines = io.StringIO(source).readlines()  # as tokenize counts them; splitlines knows more line ends
    tokens: list[str] = []
    depth, begin, after_docstring = 0, (0, 0), False
    fstring_start = getattr(tokenize, "FSTRING_START", -1)
    fstring_end = getattr(tokenize, "FSTRING_END", -1)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == fstring_start:
            begin = token.start if depth == 0 else begin
            depth += 1
        elif token.type == fstring_end:
            depth -= 1
            if depth == 0:
                tokens.append(_between(lines, begin, token.end))
        elif depth or token.type in _DROPPED:
            continue
        elif token.start in docstrings or (after_docstring and token.type == tokenize.NEWLINE):
            after_docstring = token.type != tokenize.NEWLINE  # its line end goes with it
            continue
        elif token.type in (tokenize.INDENT, tokenize.DEDENT, tokenize.NEWLINE):
            tokens.append(tokenize.tok_name[token.type])
        else:
            tokens.append(token.string)
    return tokens


def _docstring_positions(source: str) -> set[tuple[int, int]]:
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        (node.body[0].lineno, node.body[0].col_offset)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, owners) and ast.get_docstring(node, clean=False) is not None
    }


def _between(lines: list[str], begin: tuple[int, int], end: tuple[int, int]) -> str:
    if begin[0] == end[0]:
        return lines[begin[0] - 1][begin[1] : end[1]]
    middle = lines[begin[0] : end[0] - 1]
    return "".join([lines[begin[0] - 1][begin[1] :], *middle, lines[end[0] - 1][: end[1]]])
