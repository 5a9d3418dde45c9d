"""Fingerprints: hashes of all that a result depends on.

Snakemake does not detect edits of an imported package, so each rule has the fingerprint of its
resolved configuration and of the source of all modules that its stage uses. Comments, docstrings,
formatting and modules that cannot change results do not count.
"""

import ast
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from calgrid.components import plugins
from calgrid.components.declarations import imported_from, parse
from calgrid.components.plugins import PACKAGE

LENGTH = 16
#: of this module of constants, only the imported names count
CONSTANTS = f"{PACKAGE}.conventions"
#: version of the files between stages; increase it when their meaning changes
FORMAT_VERSION = 1
#: modules that cannot change results of a stage: they find, check, download (by checksum), store or
#: print
NEUTRAL = (
    "components",
    "errors",
    "optional",
    "progress",
    "specs",
    "configuration",
    "storage",
    "cli",
    "backbones.catalogue",
    "datasets.downloads",
)
#: nodes of a syntax tree that have a docstring
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def digest(value: Any) -> str:
    """Fingerprint of a JSON-like value, independent of the order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def of_stage(settings: Mapping[str, Any], roots: Iterable[str]) -> str:
    """Fingerprint of a stage: its settings and the source of ``roots`` with all their imports.

    For a root ``module:class``, only the parts of the module that this class uses count; of
    ``CONSTANTS``, only the imported ones.

    Parameters
    ----------
    settings : the resolved configuration of the stage, JSON-like, without device and options that
        affect only speed.
    roots : names of modules of calgrid and of plugins, for example ``"calgrid.losses.mbls"``.
    """
    return digest(
        {
            "format": FORMAT_VERSION,
            "settings": settings,
            "code": code_digest(tuple(sorted(set(roots)))),
        }
    )


@plugins.cached
def code_digest(roots: tuple[str, ...]) -> str:
    """Fingerprint of the source of ``roots`` and of their direct and indirect imports from calgrid
    and plugins.
    """
    return digest({name: _read(name)[1] for name in sorted(closure(roots))})


def closure(roots: Iterable[str]) -> set[str]:
    """All modules of calgrid and of plugins that ``roots`` import, including ``roots``, without
    neutral ones.

    Raises FileNotFoundError: a root does not exist; its fingerprint would be that of nothing.
    ConfigError: a module is not valid Python.
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
        waiting.extend(_read(name)[0])
    return found


def _is_neutral(name: str) -> bool:
    return name == PACKAGE or f"{name}.".startswith(
        tuple(f"{PACKAGE}.{neutral}." for neutral in NEUTRAL)
    )


@plugins.cached
def _source(name: str) -> str:
    path = plugins.locate(name)
    if path is None:
        raise FileNotFoundError(f"module {name} has no source file")
    source = path.read_text(encoding="utf-8")
    if not name.startswith(f"{PACKAGE}."):
        parse(path, plugins.shown(name))  # imports of a component have not been validated yet
    chosen = name.partition(":")[2]
    return _part(source, chosen) if chosen else source


def _part(source: str, name: str) -> str:
    """Source of a class or constant and of the imports, constants, functions and classes of its
    module that it uses.
    """
    lines = source.splitlines(keepends=True)
    parts: dict[str, str] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            of = isinstance(node, ast.ImportFrom) and f"from {'.' * node.level}{node.module or ''} "
            begin = f"{of or ''}import"
            for alias in node.names:
                parts[alias.asname or alias.name] = (
                    f"{begin} {alias.name} as {alias.asname or alias.name}\n"
                )
        else:
            first = min(mark.lineno for mark in (node, *getattr(node, "decorator_list", ())))
            text = "".join(lines[first - 1 : node.end_lineno]) + "\n"
            names = (
                [node.name]
                if isinstance(node, ast.ClassDef | ast.FunctionDef)
                else _names(node, ast.Store)
            )
            parts.update(dict.fromkeys(names, text))
    used, waiting = set(), [name]
    while waiting:
        each = waiting.pop()
        if each in parts and each not in used:
            used.add(each)
            waiting += _names(ast.parse(parts[each]), ast.Load)
    return "".join(dict.fromkeys(text for each, text in parts.items() if each in used))


def _names(tree: ast.AST, context: type[ast.expr_context]) -> list[str]:
    return [
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, context)
    ]


@plugins.cached
def _read(name: str) -> tuple[tuple[str, ...], str]:
    """Modules of calgrid and of plugins named in import statements anywhere in a module, and its
    digest.
    """
    parts, statements = _collect(ast.parse(_source(name)))
    names: set[str] = set()
    for node in statements:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        else:
            module = imported_from(node, name)
            if module == CONSTANTS:
                names.update(f"{module}:{alias.name}" for alias in node.names)
                continue
            names.add(module)
            # ``from package import module``: harmless if the name is no module
            names.update(f"{module}.{alias.name}" for alias in node.names)
    imports = tuple(sorted(each for each in names if plugins.locate(each) is not None))
    return imports, hashlib.sha256(" ".join(parts).encode()).hexdigest()


def syntax(tree: ast.AST) -> str:
    """Text of a syntax tree without docstrings and positions, equal in all versions of Python.

    ``ast.dump`` differs between versions because new fields are empty; empty fields are omitted
    here.
    """
    return " ".join(_collect(tree)[0])


def _collect(tree: ast.AST) -> tuple[list[str], list[ast.Import | ast.ImportFrom]]:
    """Parts of that text, and the import statements in the tree."""
    parts: list[str] = []
    imports: list[ast.Import | ast.ImportFrom] = []

    def visit(node: ast.AST) -> None:
        parts.append(f"{type(node).__name__}(")
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(node)
        for name in node._fields:
            value: Any = getattr(node, name, None)
            if (
                name == "body"
                and isinstance(node, _DOCUMENTED)
                and ast.get_docstring(node, clean=False) is not None
            ):
                value = value[1:]
            if value is None or value == []:
                continue
            parts.append(f"{name}=")
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, ast.AST):
                    visit(each)
                else:
                    parts.append(repr(each))
        parts.append(")")

    visit(tree)
    return parts, imports
