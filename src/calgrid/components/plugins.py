"""Plugins: folders of components named by a configuration, by CALGRID_PLUGINS, or by installed
packages.

A plugin is a folder that mirrors this package, ``my_folder/losses/my_loss.py``. Its modules, for
example ``my_folder.losses.my_loss``, are found, imported and fingerprinted like those of calgrid.
"""

import atexit
import contextlib
import functools
import importlib.metadata
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, ParamSpec, TypeVar, cast

from calgrid.errors import ConfigError

PACKAGE = "calgrid"
PACKAGE_ROOT = Path(__file__).parents[1]
#: environment variable with folders, separated as in PATH
VARIABLE = "CALGRID_PLUGINS"
#: environment variable of a job: the copy from which alone plugins are imported; and the file in
#: the copy that lists their packages
COPY, PACKAGES = "CALGRID_PLUGINS_COPY", "packages"
#: group of entry points of installed packages; each names a package whose folder is a plugin
GROUP = "calgrid.plugins"
#: seconds after which the import of a plugin counts as one without end; PyTorch on a cold network
#: disk takes minutes
IMPORT_SECONDS = 300

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Plugin:
    """A folder with components, as given or of an installed package.

    ``package`` is the name of its modules: that of the folder, or the package of an entry point.
    """

    package: str
    folder: Path
    installed: bool = False


_configured: tuple[tuple[str, Path], ...] = ()
#: folder from which the planning process imports plugins
isolated: Path | None = None
#: entries of the search path of modules that an isolated process does without
_hidden: list[str] = []
_clear_caches: list[Callable[[], None]] = []


def cached(function: Callable[P, R]) -> Callable[P, R]:
    """Cache like :func:`functools.cache`, until other plugins are used."""
    cache = functools.cache(function)
    _clear_caches.append(cache.cache_clear)
    return cast(Callable[P, R], cache)


def forget() -> None:
    """Clear all caches, after files or the environment variable have changed."""
    for clear in _clear_caches:
        clear()


def use(folders: Iterable[str | Path], where: str = "plugins", *, isolate: bool = False) -> None:
    """Search for components also in these folders, instead of the folders of an earlier call.

    Parameters
    ----------
    where : name of the folders in messages.
    isolate : import plugins, as jobs do, from a copy of the files covered by fingerprints.

    Raises
    ------
    ConfigError : a folder is no plugin, or has the name of another package.
    """
    global _configured, isolated  # noqa: PLW0603  (imports are global to the process)
    if isolated is not None:  # modules of the old copy are imported anew
        sys.path[:] = [entry for entry in sys.path if entry != str(isolated)]
        packages = {path.name for path in isolated.iterdir()}
        for name in [name for name in sys.modules if name.partition(".")[0] in packages]:
            del sys.modules[name]
    isolated = None
    sys.path[:0] = _hidden
    _hidden.clear()
    before = _configured
    _configured = tuple((f"{where}[{n}]", Path(folder)) for n, folder in enumerate(folders))
    if before or _configured:  # files of a plugin may change in a process, those of calgrid do not
        forget()
    if in_use() and isolate and COPY not in os.environ:
        isolated = Path(tempfile.mkdtemp(prefix="calgrid-"))
        atexit.register(shutil.rmtree, isolated, ignore_errors=True)


def export() -> None:
    """Make child processes use the same plugins."""
    folders = [str(plugin.folder) for plugin in in_use() if not plugin.installed]
    if folders:
        os.environ[VARIABLE] = os.pathsep.join(folders)


@cached
def in_use() -> tuple[Plugin, ...]:
    """All plugins: in a job those in its copy, else those of the configuration, of the environment
    variable, and of installed packages.

    Raises
    ------
    ConfigError : the folder is not a plugin.
    """
    if copy := os.environ.get(COPY):
        packages = Path(copy, PACKAGES).read_text().split()
        return tuple(Plugin(each, Path(copy, *each.split("."))) for each in packages)
    named = filter(None, os.environ.get(VARIABLE, "").split(os.pathsep))
    folders = [*_configured, *((VARIABLE, Path(name)) for name in named)]
    plugins: dict[Path, Plugin] = {}
    for where, folder in folders:
        if not folder.is_dir():
            raise ConfigError(
                f"{where}: the folder '{folder}' does not exist; create it or correct the path."
            )
        check_folder(folder, where)
        plugins.setdefault(folder.resolve(), Plugin(folder.resolve().name, folder))
    for plugin in _installed()[0]:
        plugins.setdefault(plugin.folder.resolve(), plugin)
    by_name: dict[str, Plugin] = {}
    for plugin in plugins.values():
        other = by_name.setdefault(plugin.package, plugin)
        if other is not plugin:
            raise ConfigError(
                f"The plugins {other.folder} and {plugin.folder} have the same name, which their "
                "modules carry; rename one of the folders."
            )
    return tuple(plugins.values())


def problems() -> list[str]:
    """Messages about entry points of plugins that do not exist."""
    return _installed()[1]


@functools.cache
def _installed() -> tuple[list[Plugin], list[str]]:
    """Plugins of installed packages (without importing them), and messages about invalid ones."""
    plugins, messages = [], []
    for entry in importlib.metadata.entry_points(group=GROUP):
        top, *below = entry.value.split(".")
        folders = [place.joinpath(*below) for place in _places(top)]
        if folders and folders[0].is_dir():
            plugins.append(Plugin(entry.value, folders[0], installed=True))
        else:
            messages.append(
                f"The entry point '{entry.name}' of the group {GROUP} names '{entry.value}', which "
                "is no package that is installed; install or remove what it belongs to."
            )
    return plugins, messages


def _places(top: str) -> list[Path]:
    """Folders of a package; none if it is no package."""
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # a module without a specification
        return []
    places = spec.submodule_search_locations if spec else None
    return [Path(place).resolve() for place in places or ()]


def check_folder(folder: Path, where: str) -> None:
    """Raise ConfigError unless the folder name is a valid package name; the folder need not exist
    yet.
    """
    name = folder.resolve().name
    if not name.isidentifier():
        raise ConfigError(
            f"{where}: '{name}' is no name of a Python package, which modules in it carry; rename "
            "the folder with letters, digits and _ alone."
        )
    owners = [f"the package in {place}" for place in _places(name) if place != folder.resolve()]
    if name in sys.builtin_module_names or name in sys.stdlib_module_names:
        owners.append("a module of Python")
    if owners:
        raise ConfigError(f"{where}: the folder '{folder}' has the name of {owners[0]}; rename it.")


def use_copy(folder: str) -> None:
    """Import plugins only from a copy, in this process and its child processes."""
    os.environ[COPY] = str(Path(folder).resolve())
    forget()


def importable(module: str) -> None:
    """Make the plugin of a module importable: from a copy alone in planning and in jobs."""
    copy = os.environ.get(COPY) or isolated
    if copy:
        here = ("", str(Path.cwd()))  # nothing but the copy counts in fingerprints
        _hidden.extend(entry for entry in sys.path if entry in here)
        others = (entry for entry in sys.path if entry not in (*here, str(copy)))
        sys.path[:] = [str(copy), *others]
    for plugin in () if copy else in_use():
        parent = str(plugin.folder.resolve().parent)
        is_its = module.startswith(f"{plugin.package}.") and not plugin.installed
        if is_its and parent not in sys.path:
            sys.path.append(parent)  # last, so that it hides nothing
    importlib.invalidate_caches()


def missing_hint(error: BaseException) -> str:
    """Hint for a plugin that runs from a copy and misses a file or module; else ''."""
    is_copy = bool(os.environ.get(COPY) or isolated)
    if not is_copy or not isinstance(error, FileNotFoundError | ModuleNotFoundError):
        return ""
    return (
        ", as a plugin has only the modules below its folder that its import statements name, its "
        "data files, and what a module of it lists beside itself, FILES = ['notes.md']"
    )


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Raise SystemExit if plugin code calls ``os._exit``, which would end the program silently, and
    TimeoutError if it does not end.
    """
    end_process = os._exit

    def refuse(status: int) -> NoReturn:
        raise SystemExit(f"os._exit({status})")

    def stop(*_: object) -> NoReturn:
        raise TimeoutError(f"it takes more than {IMPORT_SECONDS} s")

    with contextlib.ExitStack() as after:
        after.callback(setattr, os, "_exit", end_process)
        os._exit = refuse
        if threading.current_thread() is threading.main_thread():  # signals arrive there
            after.callback(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, stop))
            after.callback(signal.alarm, 0)
            signal.alarm(IMPORT_SECONDS)
        yield


@cached
def _roots() -> dict[str, Path]:
    """Top-level package -> its folder, for calgrid and the packages of plugins."""
    roots = {PACKAGE: PACKAGE_ROOT}
    for plugin in in_use():
        top, *below = plugin.package.split(".")
        folder = plugin.folder.resolve()
        roots[top] = folder.parents[len(below) - 1] if below else folder
    return roots


@cached
def locate(module: str) -> Path | None:
    """File of a module of calgrid or of a plugin; None for one of any other package."""
    top, *below = module.split(".")
    roots = {PACKAGE: PACKAGE_ROOT} if top == PACKAGE else _roots()
    if top not in roots:
        return None
    base = roots[top].joinpath(*below)
    # the order of Python, which takes a package before a module
    paths = [base / "__init__.py", *([base.with_suffix(".py")] if below else [])]
    return next((path for path in paths if path.is_file()), None)


def folders(package: str) -> Iterator[tuple[str, Path]]:
    """Yield dotted name and folder of a sub-package in calgrid and in each plugin."""
    yield f"{PACKAGE}.{package}", PACKAGE_ROOT / package
    for plugin in in_use():
        yield f"{plugin.package}.{package}", plugin.folder / package


def shown(module: str) -> str:
    """File of a module for messages: ``my_folder/losses/my_loss.py``."""
    return f"{module.replace('.', '/')}.py"
