"""All that is measured on a GPU, in parts of at most ten minutes.

::

    python benchmarks/gpu/run.py checks --out OUT --pictures FOLDER

Each piece of a part has a process and a time limit of its own. Its figures are at once in
``OUT/PART.json``, what it says in ``OUT/PART.log``; at the end a table names what failed and what
did not run.
"""

import argparse
import importlib
import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

from kit import Figures, Piece, environment, keep

from calgrid import forkserver
from calgrid.plan.plan import KINDS

#: modules with ``waves``
PARTS = ("checks", "speed", "recipe", "grid", "several")
#: how pieces begin: with nothing of each other or of this process, which may have used the GPU
PIECES = multiprocessing.get_context("forkserver")
#: seconds for which no piece is begun, and that one which is stopped has to end
LEAST, GRACE = 5, 5
#: of a row, not shown as figures
NAMES = ("piece", "seconds", "loop", "backbone", "precision")
#: imported once, for all pieces
PRELOADED = [
    *("torch", "torchvision.transforms", "calgrid.plan.plan", "calgrid.jobs.train"),
]


def main() -> None:
    """Run the parts; the exit code is 1 where a piece failed."""
    options = parser().parse_args()
    if not {*options.parts} <= {*PARTS} or not (options.parts or options.rehearse):
        raise SystemExit(f"Name parts of {', '.join(PARTS)}.")
    options.out, options.work = options.out.absolute(), options.work.absolute()
    os.environ.update(environment())
    PIECES.set_forkserver_preload(PRELOADED)
    forkserver.start({name: kind.module for name, kind in KINDS.items()})
    failed = [part for part in options.parts or PARTS if not Part(part, options).run()]
    raise SystemExit(bool(failed))


def parser() -> argparse.ArgumentParser:
    """Options of all parts."""
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    made.add_argument(
        "parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; with --rehearse all of them"
    )
    made.add_argument("--out", type=Path, required=True, help="folder for what is measured")
    made.add_argument(
        "--work", type=Path, default=Path("gpu_work"), help="folder for data and runs (gpu_work)"
    )
    made.add_argument(
        "--pictures", type=Path, help="folder with train.parquet and test.parquet; else the digits"
    )
    made.add_argument("--minutes", type=float, default=9.5, help="of each part (9.5)")
    made.add_argument("--only", default="", metavar="TEXT", help="pieces with this in their name")
    made.add_argument(
        "--protocol",
        default="evening",
        help="of the part grid: evening (default), or a candidate of config/studies/recipe.yaml",
    )
    made.add_argument(
        "--rehearse", action="store_true", help="tiny sizes, on the CPU where there is no GPU"
    )
    return made


class Part:
    """Pieces of a part, and what they found."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self.name, self.options = name, options
        self.end = time.monotonic() + 60 * options.minutes
        self.rows: dict[str, Figures] = {}
        self.lock = threading.Lock()

    def run(self) -> bool:
        """Run all pieces and print the table; return whether all that ran are right."""
        waves = importlib.import_module(self.name).waves(self.options)
        for at_once, pieces in waves:
            with ThreadPoolExecutor(at_once) as pool:
                list(pool.map(self.measure, (p for p in pieces if self.options.only in p.name)))
        failed = [name for name, row in self.rows.items() if row.get("ok") is False]
        missing = [f"{n} ({row['not_run']})" for n, row in self.rows.items() if "not_run" in row]
        print(f"\n| {self.name} | seconds | figures |\n| --- | ---: | --- |")
        for name, row in self.rows.items():
            if "not_run" not in row:
                told = "; ".join(f"{key} {shown(row[key])}" for key in row if key not in NAMES)
                print(f"| {name} | {row['seconds']:.1f} | {told} |")
        print(f"\nFailed: {', '.join(failed) or 'nothing'}")
        print(f"Not run: {', '.join(missing) or 'nothing'}", flush=True)
        return not failed

    def measure(self, piece: Piece) -> None:
        """Measure a piece within its time and that of the part."""
        begin = time.monotonic()
        limit = min(begin + piece.seconds, self.end)
        if piece.lacks or limit - begin < LEAST:
            self.add(piece, {"not_run": piece.lacks or "no time left"})
            return
        receiver, sender = PIECES.Pipe(duplex=False)
        log = self.options.out / f"{self.name}.log"
        process = PIECES.Process(target=_child, args=(piece, self.options, sender, log))
        process.start()
        sender.close()
        figures: Figures = {}
        try:
            while receiver.poll(max(0.0, limit - time.monotonic())):
                figures |= receiver.recv()
                self.add(piece, {**figures, "seconds": time.monotonic() - begin})
            figures |= {"ok": False, "says": f"stopped after {limit - begin:.0f} s"}
        except EOFError:  # it has ended
            process.join(GRACE)
            if process.exitcode and figures.get("ok") is not False:
                figures |= {"ok": False, "says": f"exit code {process.exitcode}"}
        _stop(process)
        self.add(piece, {**figures, "seconds": time.monotonic() - begin})
        print(f"{piece.name}: {time.monotonic() - begin:.1f} s", flush=True)

    def add(self, piece: Piece, figures: Figures) -> None:
        """Replace the row of a piece, and write all rows."""
        with self.lock:
            self.rows[piece.name] = {"piece": piece.name, **figures}
            keep(self.options, self.name, list(self.rows.values()))


def shown(value: object) -> str:
    """A figure for the table."""
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _child(piece: Piece, options: argparse.Namespace, sender: Connection, log: Path) -> None:
    """Send what a piece yields; what it and its commands print goes to the log."""
    os.setsid()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as target:
        for stream in (1, 2):
            os.dup2(target.fileno(), stream)
    try:
        for figures in piece.measure(options):
            sender.send(figures)
    except (Exception, SystemExit) as error:
        sender.send({"ok": False, "says": str(error)[-500:]})
        raise


def _stop(process: multiprocessing.process.BaseProcess) -> None:
    """End a piece with all that it has started: trainings save their states."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.pid is not None:
            try:
                os.killpg(process.pid, number)
            except (ProcessLookupError, PermissionError):
                return
            process.join(GRACE)


if __name__ == "__main__":
    main()
