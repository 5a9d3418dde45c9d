"""Pins of the lock file that calgrid and Snakemake need on a machine that has PyTorch, one a line.

::

    python benchmarks/gpu/wheels.py > wheels.txt

Run it in the environment of ``make setup``; ``--has`` names what the machine has, with all that
these need.
"""

import argparse
import tomllib
from collections.abc import Collection, Iterable
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCK = Path(__file__).resolve().parents[2] / "envs" / "requirements.lock"
PACKAGE = "calgrid[train,workflow]"
#: what images for deep learning have
USUAL = (
    *("torch", "torchvision", "timm", "numpy", "scipy", "pandas", "pyarrow", "matplotlib"),
    *("seaborn", "scikit-learn", "pytest", "pytest-timeout", "pytest-xdist"),
)


def main() -> None:
    """Print the pins."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--has", nargs="+", default=USUAL, metavar="NAME")
    print("\n".join(pins(parser.parse_args().has)))


def pins(has: Collection[str]) -> list[str]:
    """Lines of the lock file for what is reached from calgrid without passing one of ``has``."""
    found, _ = reached([Requirement(PACKAGE)], has)
    lines = LOCK.read_text().splitlines()
    return [line for line in lines if canonicalize_name(line.partition("==")[0]) in found]


def missing() -> list[str]:
    """What calgrid and Snakemake need and this machine lacks; calgrid may be a checkout alone."""
    project = tomllib.loads((LOCK.parents[1] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *extras["train"], *extras["workflow"]]
    return sorted(reached(map(Requirement, lines))[1])


def reached(begin: Iterable[Requirement], has: Collection[str] = ()) -> tuple[set[str], set[str]]:
    """Packages reached from some without passing one of ``has``, and those not installed."""
    seen = {canonicalize_name(name): set(Requirement(name).extras) for name in has}
    found: set[str] = set()
    lacking: set[str] = set()
    waiting = [*begin]
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if name in seen and wanted.extras <= seen[name]:
            continue
        seen[name] = wanted.extras | seen.get(name, set())
        found.add(name)
        try:
            lines = requires(wanted.name) or ()
        except PackageNotFoundError:
            lacking.add(name)
            continue
        for line in lines:
            needed = Requirement(line)
            extras = ("", *wanted.extras)
            if needed.marker is None or any(needed.marker.evaluate({"extra": e}) for e in extras):
                waiting.append(needed)
    return found, lacking


if __name__ == "__main__":
    main()
