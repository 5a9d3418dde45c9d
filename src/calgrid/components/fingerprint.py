"""Fingerprints: hashes of all that a result depends on.

Snakemake does not detect edits of an imported package, so a job is known by its resolved options
and by the source of all modules that it uses. Comments, docstrings, formatting and modules that
cannot change results do not count.
"""

import ast
import hashlib
import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from calgrid.components import plugins
from calgrid.components.plugins import PACKAGE
from calgrid.components.source import imported_from, parse

LENGTH = 16
#: version of the files between jobs; increase it when their meaning changes
FORMAT_VERSION = 2
#: modules that cannot change results of a job: they find, check, download (by checksum), store or
#: print
NEUTRAL = (
    "components",
    "errors",
    "optional",
    "progress",
    "training.protocol",
    "configuration",
    "storage",
    "cli",
    "backbones.catalogue",
    "datasets.downloads",
)
#: fields of statements that hold statements, or parts with statements
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
#: field that says whether a name is read or set, which follows from where it stands
CONTEXT = "ctx"
#: nodes of a syntax tree that have a docstring
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def digest(value: Any) -> str:
    """Fingerprint of a JSON-like value, independent of the order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def of_job(options: Mapping[str, Any], roots: Iterable[str]) -> str:
    """Fingerprint of a job: its options and the source of ``roots`` with all their imports.

    Parameters
    ----------
    options : the resolved configuration of the job, JSON-like, without device and options that
        affect only speed.
    roots : names of modules of calgrid and of plugins, for example ``"calgrid.losses.mbls"``.
    """
    code = code_digest(tuple(sorted(set(roots))))
    return digest({"format": FORMAT_VERSION, "options": options, "code": code})


@plugins.cached
def code_digest(roots: tuple[str, ...]) -> str:
    """Fingerprint of the source of ``roots`` and of their direct and indirect imports from calgrid
    and plugins.
    """
    digests = code_digests(roots)
    code = digest(digests)
    _modules[code] = digests
    return code


#: digest of code -> digests of its modules
_modules: dict[str, dict[str, str]] = {}


def modules_of(code: str) -> dict[str, str]:
    """Digests of the modules behind a result of :func:`code_digest` in this process."""
    return _modules[code]


def is_of_plugin(name: str) -> bool:
    """Whether a name in the digests of code is that of a module outside calgrid."""
    return "/" not in name and not name.startswith(f"{PACKAGE}.")


def code_digests(roots: Iterable[str]) -> dict[str, str]:
    """Digest of each module of calgrid and of plugins that ``roots`` import, directly or not,
    including ``roots``, without neutral ones.

    Raises
    ------
    FileNotFoundError : a root does not exist; its fingerprint would be that of nothing.
    ConfigError : a module is not valid Python.
    """
    waiting = list(roots)
    digests: dict[str, str] = {}
    neutral = tuple(f"{PACKAGE}.{prefix}." for prefix in NEUTRAL)
    while waiting:
        name = waiting.pop()
        if name not in digests and not (name == PACKAGE or f"{name}.".startswith(neutral)):
            digests[name], imports = _read(name)
            waiting += imports
    for plugin in plugins.in_use():
        if any(f"{name}.".startswith(f"{plugin.package}.") for name in digests):
            digests |= _data_files(plugin)
    return dict(sorted(digests.items()))


@plugins.cached
def _read(module: str) -> tuple[str, list[str]]:
    """Digest of a module, and the modules of calgrid and of plugins in its import statements.

    Python also runs ``__init__.py`` of the packages around them. Those of calgrid only name the
    content of their package, so they do not count.
    """
    path = plugins.locate(module)
    if path is None:
        raise FileNotFoundError(f"module {module} has no source file")
    content = path.read_bytes()
    tree = parse(content, plugins.shown(module))
    _known[_raw(content)] = found = hashlib.sha256(syntax(tree).encode()).hexdigest()[:LENGTH]
    names: set[str] = set()
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = imported_from(node, module)
            names.add(package)
            # ``from package import module``: most of these names are no modules
            names.update(f"{package}.{alias.name}" for alias in node.names)
    for name in [module, *names]:
        if not name.startswith(f"{PACKAGE}."):
            names.update(_packages(name))
    imports = [name for name in sorted(names) if plugins.locate(name) is not None]
    return found, imports


def _packages(module: str) -> list[str]:
    """Packages that hold a module: ``a`` and ``a.b`` of ``a.b.c``."""
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


@plugins.cached
def _data_files(plugin: plugins.Plugin) -> dict[str, str]:
    """Digest of each file of a plugin that its modules may read: all but Python, Markdown and
    hidden ones.
    """
    digests = {}
    for path in sorted(plugin.folder.rglob("*")):
        below = path.relative_to(plugin.folder)
        hidden = any(part.startswith((".", "__pycache__")) for part in below.parts)
        if path.is_file() and not hidden and path.suffix not in (".py", ".pyc", ".md"):
            digests[f"{plugin.package}/{below.as_posix()}"] = _raw(path.read_bytes())
    return digests


# what is there when a job runs
# ------------------------------------------------------------------------------------------------

#: digest of the bytes of a file -> digest of its syntax
_known: dict[str, str] = {}


#: Unix time from which on this process imports modules for jobs that it becomes later
_imports_from: list[float] = []


def imports_begin() -> None:
    """Note that this process imports modules from now on, for jobs that it becomes later."""
    _imports_from.append(time.time())


def known() -> dict[str, str]:
    """What :func:`learn` needs, of all modules that this process has read."""
    return dict(_known)


def learn(known: Mapping[str, str]) -> None:
    """Take over digests of syntax from another process, as parsing takes a second."""
    _known.update(known)


def changed(code: Mapping[str, str]) -> list[str]:
    """Files of modules and of plugins' data that are now others than in ``code``, a result of
    :func:`code_digests`, or were written since this process imported them.
    """
    found = []
    for name, planned in code.items():
        if not _is_as_planned(file_of(name), planned):
            found.append(name if "/" in name else plugins.shown(name))
    return found


def _is_as_planned(path: Path | None, planned: str) -> bool:
    if path is None or not path.is_file():
        return False
    written = path.stat().st_ctime
    return _digest_now(path) == planned and not any(written > begin for begin in _imports_from)


def unknown(code: Mapping[str, str]) -> list[str]:
    """Modules of plugins, and beside plugins, that this process has imported and that are not in
    ``code``.
    """
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name in code or name.split(".")[0] == PACKAGE or file is None:
            continue
        path = plugins.locate(name)
        if path is not None and path.resolve() == Path(file).resolve():
            found.append(name)
    return found


def place_of(name: str) -> str:
    """Path of a module, or of a plugin's data, below the folder in which its package lies."""
    path = file_of(name)
    is_package = path is not None and path.name == "__init__.py"
    if "/" in name:
        return name
    return plugins.shown(f"{name}.__init__" if is_package else name)


def file_of(name: str) -> Path | None:
    """File of a module, or of a plugin's data; None if it does not exist."""
    if "/" not in name:
        return plugins.locate(name)
    package, _, below = name.partition("/")
    folders = [plugin.folder for plugin in plugins.in_use() if plugin.package == package]
    return folders[0] / below if folders else None


def _digest_now(path: Path) -> str:
    content = path.read_bytes()
    raw = _raw(content)
    if path.suffix != ".py":
        return raw
    if raw not in _known:
        text = syntax(parse(content, str(path)))
        _known[raw] = hashlib.sha256(text.encode()).hexdigest()[:LENGTH]
    return _known[raw]


def _raw(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:LENGTH]


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements of a file; imports are in no expression, where most nodes are."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for blocks in BLOCKS:
            waiting += getattr(node, blocks, [])


def syntax(tree: ast.AST) -> str:
    """Text of a syntax tree without docstrings and positions, equal in all versions of Python.

    ``ast.dump`` differs between versions because new fields are empty; empty fields are omitted
    here.
    """
    parts: list[str] = []
    _write(tree, parts)
    return " ".join(parts)


def _write(node: Any, parts: list[str]) -> None:
    if not isinstance(node, ast.AST):
        parts.append(repr(node))
        return
    parts.append(f"{type(node).__name__}(")
    for name in node._fields:
        value: Any = getattr(node, name, None)
        if name == "body" and isinstance(node, DOCUMENTED):
            has_docstring = ast.get_docstring(node, clean=False) is not None
            value = value[1:] if has_docstring else value
        if value is None or value == [] or name == CONTEXT:
            continue
        parts.append(f"{name}=")
        for item in value if isinstance(value, list) else [value]:
            _write(item, parts)
    parts.append(")")
