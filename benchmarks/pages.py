"""Pages of this folder: figures that a script measured, kept beside it in JSON, as Markdown.

::

    python benchmarks/losses.py             measure, and print the page of these figures
    python benchmarks/losses.py --store     and keep them, beside others in losses.json
    python benchmarks/losses.py --page      only write losses.md from losses.json

``--store`` adds conditions; delete those of figures that are replaced.
"""

import argparse
import datetime
import json
import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any


def run(
    parser: argparse.ArgumentParser,
    measure: Callable[[argparse.Namespace], dict[str, Any]],
    page: Callable[[dict[str, Any]], str],
    script: str,
) -> None:
    """Do what the command line asks of a script."""
    parser.add_argument("--store", action="store_true", help="keep the figures for the page")
    parser.add_argument("--page", action="store_true", help="write the page; measure nothing")
    options = parser.parse_args()
    path = Path(script).with_suffix(".json")
    if options.page:
        path.with_suffix(".md").write_text(page(json.loads(path.read_text())))
        return
    figures = measure(options)
    print(page(figures))
    if options.store:
        kept = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(dumped(merged(kept, figures)))


def merged(old: Any, new: Any) -> Any:
    """Kept figures with new ones, those of the same name replaced."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return old | {name: merged(old.get(name), value) for name, value in new.items()}


def dumped(figures: dict[str, Any]) -> str:
    """JSON with a line for each innermost list or object."""
    text = json.dumps(figures, indent=1, ensure_ascii=False)
    return re.sub(r"[\[{][^][{}]*[]}]", lambda found: " ".join(found[0].split()), text) + "\n"


def table(name: str, rows: Mapping[str, Mapping[str, Any]], columns: Mapping[str, str]) -> str:
    """Markdown table of named rows: header and format of each column, the format "" for words."""
    lines = [[name, *columns], ["---", *("---:" if form else "---" for form in columns.values())]]
    for title, row in rows.items():
        cells = (format(row[key], form) if key in row else "" for key, form in columns.items())
        lines.append([title, *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def conditions(figures: Mapping[str, Any]) -> str:
    """List of the conditions of measurements, by what was measured and when."""
    return "\n".join(f"- {which}: {under}." for which, under in figures["conditions"].items())


def machine(*parts: str) -> dict[str, str]:
    """Conditions of a measurement of today, of all figures or of these parts."""
    names = re.findall(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    said = [
        *names[:1],
        f"{len(os.sched_getaffinity(0))} cores",
        f"load of the minute before {os.getloadavg()[0]:.1f}",
        f"Python {platform.python_version()}",
        *(f"{name} {version(name)}" for name in ("snakemake", "torch", "numpy", "pandas")),
    ]
    return {", ".join([*parts, datetime.date.today().isoformat()]): ", ".join(said)}


def print_lines(title: str, values: Mapping[str, Any]) -> None:
    """Print one block of figures."""
    print(title)
    for name, value in values.items():
        print(
            f"  {name:34s} {value:.2f}" if isinstance(value, float) else f"  {name:34s} {value}",
            flush=True,
        )


def print_row(cells: Sequence[str]) -> None:
    """Print one row of a Markdown table."""
    print(f"| {' | '.join(cells)} |", flush=True)
