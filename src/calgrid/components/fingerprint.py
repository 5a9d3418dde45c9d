"""Fingerprints: hashes of all inputs that determine a result.

Snakemake does not detect edits of an imported package, so the key of a job is a hash of its
resolved options and of the source of all modules it uses. Only behaviour counts, not place: names
of modules, comments, docstrings, formatting, unused imports and modules that cannot change results
do not count.
"""

import ast
import hashlib
import itertools
import json
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from calgrid.components import plugins
from calgrid.components.options import Options
from calgrid.components.source import imported_from, parse
from calgrid.errors import ConfigError

LENGTH = 16
#: version of the files between jobs; increase it when their meaning changes
FORMAT_VERSION = 2
#: constant of a module of calgrid, or of a package for all its modules, that cannot change results
#: of a job: they find, check, download (by checksum), store or print
NEUTRAL = "NEUTRAL"
#: constant of a plugin module: files that the module reads or executes, relative to its folder
FILES = "FILES"
#: nodes of a syntax tree that have a docstring
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def digest(value: Any) -> str:
    """Fingerprint of a JSON-like value, independent of the order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def of_job(options: Options, roots: Iterable[str]) -> str:
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
    code = digest(sorted({*digests.values()}))
    _modules[code] = digests
    return code


#: digest of code -> digests of its modules
_modules: dict[str, dict[str, str]] = {}


def modules_of(code: str) -> dict[str, str]:
    """Digests of the modules behind a result of :func:`code_digest` in this process."""
    return _modules[code]


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
    while waiting:
        name = waiting.pop()
        if name not in digests and not _is_neutral(name):
            digests[name] = _module_digest(name)
            waiting += _above(name)
    for plugin in plugins.in_use():
        modules = [name for name in digests if f"{name}.".startswith(f"{plugin.package}.")]
        files = {*_data_files(plugin), *_listed_files(plugin, modules)} if modules else ()
        digests |= {f"{plugin.package}/{each}": _data_digest(plugin, each) for each in files}
    return dict(sorted(digests.items()))


@plugins.cached
def _module_digest(module: str, with_imports: bool = True) -> str:
    """Digest of the syntax of a module. Imports from calgrid and plugins count by their own code,
    not by name, or not at all.
    """
    texts: list[str] = []
    for part in _read(module).parts:
        if isinstance(part, str):
            texts.append(part)
            continue
        imported = set()
        for each in part:
            counts = with_imports and each.is_ours and not _is_neutral(each.module)
            imported.add(each.text(_module_digest(each.module, False) if counts else ""))
        texts += sorted(imported)
    return hashlib.sha256(" ".join(texts).encode()).hexdigest()[:LENGTH]


@plugins.cached
def _is_neutral(module: str) -> bool:
    if not module.startswith(f"{plugins.PACKAGE}."):
        return module == plugins.PACKAGE
    around = [name for name in _packages(module) if name != plugins.PACKAGE]
    return any(_read(name).says_neutral for name in [*around, module])


class _Import(NamedTuple):
    """Name set by an import: ``name`` of a module or, if empty, the module itself."""

    module: str
    name: str
    local: str

    @property
    def is_ours(self) -> bool:
        """Whether the module is of calgrid or of a plugin."""
        return plugins.locate(self.module) is not None

    def acts(self, words: Collection[str]) -> bool:
        """Whether the import may affect a module with these words: the name is used, or the import
        runs code unknown to calgrid.
        """
        top = self.module.partition(".")[0]
        harmless = top == plugins.PACKAGE or top in sys.stdlib_module_names
        return not harmless or self.local in words or self.local == "*"

    def text(self, digest: str) -> str:
        """The import as text; a module of ours counts by its digest, not by its name."""
        ours = digest, self.name, self.local if self.name else ""
        return repr(ours if self.is_ours else tuple(self))


class _Name(str):
    """Name in a syntax tree, possibly one set by an import."""


class _String(str):
    """A string in a syntax tree, which may mention names."""


class _Source(NamedTuple):
    """Syntax of a module, whether it has the constant :data:`NEUTRAL`, and its :data:`FILES`."""

    imports: list[_Import]
    #: texts, and imports in place of successive import statements and of names of modules of ours
    parts: list[str | list[_Import]]
    says_neutral: bool
    files: list[Any]


@plugins.cached
def _read(module: str) -> _Source:
    path = plugins.locate(module)
    if path is None:
        raise FileNotFoundError(f"module {module} has no source file")
    content = path.read_bytes()
    _sources[module] = raw(content)
    tree = parse(content, plugins.shown(module))
    written: list[Any] = []
    _write(tree, written)
    texts = [part for part in written if isinstance(part, _Name | _String)]
    words = set(itertools.chain(*(re.findall(r"\w+", text) for text in texts)))
    for number, part in enumerate(written):
        if isinstance(part, list):
            found = _imports(part[0], module)
            written[number] = [each for each in found if each.acts(words)]
    imports = [each for part in written if isinstance(part, list) for each in part]
    modules = {each.local: [each] for each in imports if each.is_ours and not each.name}
    named: list[Any] = [
        modules.get(part, part) if isinstance(part, _Name) else part for part in written
    ]
    parts: list[str | list[_Import]] = []
    for is_text, run in itertools.groupby(named, lambda part: isinstance(part, str)):
        together = list(run)
        parts.append(" ".join(together) if is_text else [*itertools.chain(*together)])
    set_once = [node for node in tree.body if isinstance(node, ast.Assign)]
    constants = {ast.unparse(node.targets[0]): node.value for node in set_once}
    files = constants.get(FILES, ast.List([]))
    names = [getattr(each, "value", None) for each in getattr(files, "elts", [files])]
    return _Source(imports, parts, NEUTRAL in constants, names)


def _imports(node: ast.Import | ast.ImportFrom, module: str) -> Iterator[_Import]:
    """Yield the imports of a statement of ``module``."""
    source = imported_from(node, module) if isinstance(node, ast.ImportFrom) else ""
    for alias in node.names:
        local, name = alias.asname or alias.name, f"{source}.{alias.name}"
        if not source:
            top, dot, _ = local.partition(".")  # 'import a.b' sets 'a'
            yield _Import(alias.name, local if dot else "", top)
        elif plugins.locate(name) is not None:
            yield _Import(name, "", local)
        else:
            yield _Import(source, alias.name, local)


def _above(module: str) -> Iterator[str]:
    """Yield our modules that a module imports, and the packages around modules of plugins, whose
    ``__init__.py`` Python runs; packages of calgrid only group modules.
    """
    for name in [module, *(found.module for found in _read(module).imports)]:
        if not name.startswith(f"{plugins.PACKAGE}."):
            yield from filter(plugins.locate, _packages(name))
        if plugins.locate(name) is not None:
            yield name


def _packages(module: str) -> list[str]:
    """Packages that hold a module: ``a`` and ``a.b`` of ``a.b.c``."""
    return list(itertools.accumulate(module.split(".")[:-1], "{}.{}".format))


@plugins.cached
def _data_files(plugin: plugins.Plugin) -> list[str]:
    """Files of a plugin that its modules may read: all but Python, Markdown and hidden ones."""
    files = [path for path in sorted(plugin.folder.rglob("*")) if path.is_file()]
    data = [path for path in files if path.suffix not in (".py", ".pyc", ".md")]
    names = [path.relative_to(plugin.folder).as_posix() for path in data]
    return [name for name in names if not re.search(r"(^|/)(\.|__pycache__)", name)]


def _listed_files(plugin: plugins.Plugin, modules: Iterable[str]) -> Iterator[str]:
    """Yield the files that modules of a plugin list in :data:`FILES`, relative to its folder.

    Raises
    ------
    ConfigError : a file does not exist below the folder.
    """
    root = plugin.folder.resolve()
    for module in modules:
        for name in _read(module).files:
            beside = cast(Path, plugins.locate(module)).resolve().parent
            path = Path(os.path.normpath(beside / str(name)))
            if not path.is_relative_to(root) or not path.is_file():
                raise ConfigError(
                    f"{plugins.shown(module)}: FILES lists '{name}', which is no file below the "
                    f"folder {plugin.folder}; correct the path, which begins beside the module."
                )
            yield path.relative_to(root).as_posix()


@plugins.cached
def _data_digest(plugin: plugins.Plugin, below: str) -> str:
    """Digest of a file of data, and of its name."""
    name = f"{plugin.package}/{below}"
    _sources[name] = raw((plugin.folder / below).read_bytes())
    return digest([below, _sources[name]])


# what jobs run
# ------------------------------------------------------------------------------------------------

#: module, or file of data -> digest of its bytes
_sources: dict[str, str] = {}


def sources() -> dict[str, str]:
    """Digests of the bytes of all files read for fingerprints in this process."""
    return dict(_sources)


def changed(code: Mapping[str, str], sources: Mapping[str, str]) -> list[str]:
    """Files of calgrid's modules that differ from ``code``, a result of :func:`code_digests`;
    parsing takes a second, so bytes are compared with ``sources`` first.
    """
    found = []
    for name, planned in code.items():
        if not name.startswith(f"{plugins.PACKAGE}."):
            continue
        path = plugins.locate(name)
        if path is not None and path.is_file():
            if raw(path.read_bytes()) == sources.get(name):
                continue
            plugins.forget()
            if _module_digest(name) == planned:
                continue
        found.append(plugins.shown(name))
    return found


def plugin_files(code: Iterable[str]) -> dict[str, tuple[Path, str]]:
    """Files of plugins in ``code``, a result of :func:`code_digests`: path from its name on
    -> the file, and the digest of its bytes as they were read.
    """
    folders = {plugin.package: plugin.folder for plugin in plugins.in_use()}
    found = {}
    for name in code:
        package, slash, below = name.partition("/")
        if slash:
            place, path = f"{package.replace('.', '/')}/{below}", folders[package] / below
        elif not name.startswith(f"{plugins.PACKAGE}."):
            path = cast(Path, plugins.locate(name))
            is_package = path.name == "__init__.py"
            place = plugins.shown(f"{name}.__init__" if is_package else name)
        else:
            continue
        found[place] = path, _sources[name]
    return found


def raw(content: bytes) -> str:
    """Digest of the bytes of a file."""
    return hashlib.sha256(content).hexdigest()[:LENGTH]


def _write(node: ast.AST, parts: list[Any]) -> None:
    """Append the texts of a node without docstrings and positions, equal in all versions of Python,
    and import statements as lists of a node.

    ``ast.dump`` differs between versions because new fields are empty; empty fields are omitted
    here.
    """
    if isinstance(node, ast.Name):
        parts.append(_Name(node.id))
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        parts.append(_String(repr(node.value)))
        return
    parts.append(f"{type(node).__name__}(")
    for name in node._fields:
        value: Any = getattr(node, name, None)
        if name == "body" and isinstance(node, DOCUMENTED):
            has_docstring = ast.get_docstring(node, clean=False) is not None
            value = value[1:] if has_docstring else value
        # whether a name is read or set follows from where it stands
        if value is None or value == [] or name == "ctx":
            continue
        parts.append(f"{name}=")
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.Import | ast.ImportFrom):
                parts.append([item])
            elif isinstance(item, ast.AST):
                _write(item, parts)
            else:
                parts.append(repr(item))
    parts.append(")")
