"""Parser and entry point; the module of a command is imported only when the command runs."""

import argparse
import importlib
import itertools
import os
import shutil
import sys
import traceback
from collections.abc import Collection, Sequence
from pathlib import Path

from calgrid import __version__
from calgrid.cli import joblogs
from calgrid.cli.commands import COMMANDS, GROUPS
from calgrid.cli.terminal import (
    EXIT_INTERRUPTED,
    EXIT_STOPPED,
    EXIT_USER,
    OF_TORCHRUN,
    coloured,
    wrapped,
    write,
)
from calgrid.errors import CalgridError, ConfigError, StateError, visible_lines
from calgrid.optional import say_extra
from calgrid.parallel import keep_freed_memory
from calgrid.progress import WARNINGS, log
from calgrid.storage.atomic import disk_error
from calgrid.threads import set_threads
from calgrid.training.interrupt import StoppedError

#: names of the options and arguments that are files to write
WRITTEN = ("out", "save", "plot", "onnx", "archive")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors that the user can fix are printed as one
    sentence.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = build_parser([name for name in given[:1] if name in COMMANDS] or COMMANDS)
    if "_ARGCOMPLETE" in os.environ:  # a shell completes a command line
        importlib.import_module("argcomplete").autocomplete(parser)
    options, unknown = parser.parse_known_args(given)
    if unknown:  # parse_args would show the usage of the parser of all commands
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if options.command is None:
        parser.print_help()
        return 0
    if getattr(options, "threads", None):
        set_threads(options.threads)
    keep_freed_memory()
    WARNINGS.clear()
    module, _, function = options.run.partition(":")
    # processes started by torchrun write into the log of their parent
    in_log = "log" in options and not sys.stderr.isatty() and OF_TORCHRUN not in os.environ
    title = getattr(options, "job", options.command)
    if in_log:
        attempt = joblogs.continue_log(options.log) if options.log else 1
        log(joblogs.first_line(title, attempt))
    try:
        _refuse_overwriting(options)
        with say_extra():
            getattr(importlib.import_module(f"calgrid.cli.{module}"), function)(options)
    except CalgridError as error:
        _say(title, error, error.__cause__ if in_log and options.log else None)
        return EXIT_STOPPED if isinstance(error, StoppedError) else EXIT_USER
    except BrokenPipeError:  # the reader of the output (head, less) has closed it
        sys.stderr.close()
    except OSError as error:
        shown: Exception = disk_error(error, Path(error.filename or "a file"))
        if shown is error and error.filename:  # probably a path that the user gave
            reason = f"{error.strerror or error}".lower()
            shown = StateError(
                f"The path {error.filename} cannot be used ({reason}); correct it or its "
                "permissions."
            )
        if not isinstance(shown, CalgridError):
            raise
        _say(title, shown)
        return EXIT_USER
    except KeyboardInterrupt:
        _say(title, "Interrupted.")
        return EXIT_INTERRUPTED
    if in_log:
        log(joblogs.last_line())
    return 0


def _refuse_overwriting(options: argparse.Namespace) -> None:
    """Raise ConfigError if a file to write is another file of the call."""
    files = []
    for name, value in vars(options).items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Path):
                files.append((name, each))
    for (name, path), (other, also) in itertools.permutations(files, 2):
        if name in WRITTEN and path.resolve() == also.resolve():
            raise ConfigError(
                f"{path} is the file of both '{other}' and '{name}', which would replace it; give "
                f"'{name}' another name."
            )


def _say(command: str, error: object, cause: BaseException | None = None) -> None:
    """Write an error, and for a log the traceback of its cause, such as a plugin's, below."""
    name = coloured(f"calgrid {command}:", "red", sys.stderr)
    write(f"{name} {visible_lines(error)}\n", sys.stderr)
    if cause is not None:
        traceback.print_exception(cause)


def build_parser(names: Collection[str] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser of some commands."""
    parser = argparse.ArgumentParser(
        prog="calgrid",
        description="One protocol for the calibration of image classifiers.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"calgrid {__version__}")
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", help="one of the commands below"
    )
    parser.set_defaults(parser=parser)
    for name in names:
        command = commands.add_parser(name, description=COMMANDS[name].help)
        command.set_defaults(run=COMMANDS[name].run, parser=command)
        for add in COMMANDS[name].options:
            add(command)
    groups, columns = [], shutil.get_terminal_size().columns
    for title, members in GROUPS.items():
        lines = [f"  {name:15s}{each.help}" for name, each in members.items() if name in names]
        groups.append("\n".join([f"{title}:", *(wrapped(line, columns) for line in lines)]))
    parser.epilog = "\n\n".join(groups)
    return parser
