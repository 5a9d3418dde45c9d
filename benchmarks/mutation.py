"""Break lines of the core one by one, and count how often the tests notice.

::

    python benchmarks/mutation.py               the tests of the broken unit for each line (minutes)
    python benchmarks/mutation.py --full        all that `make test` runs, for each line (hours)
    python benchmarks/mutation.py --only holm   mutations whose name holds a word
    python benchmarks/mutation.py --tests tests/statistics --only holm

Each mutation replaces one text in a copy of the repository; it must stand there exactly once, else
the line has moved and the table below needs an edit. The chosen tests must pass before any line is
broken. The exit code is 1 when fewer than :data:`ENOUGH` of all mutations are noticed, 2 when a
mutation does not apply or the tests fail without one.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HOME = Path(__file__).parents[1]
#: what the copy needs; folders that are built or downloaded are left out
LEFT_OUT = (
    ".git",
    ".venv",
    "results",
    "data",
    "logs",
    ".snakemake",
    "__pycache__",
    "*.egg-info",
    ".*_cache",
)
#: tests that `make test` leaves out
REST = "workflow or slow or slurm"
#: noticed mutations, of all, that the tests must reach
ENOUGH = 17


@dataclass(frozen=True)
class Mutation:
    """One broken line.

    Attributes
    ----------
    name : what is wrong in it.
    folder : below ``src/calgrid``; the text stands once in the Python files there.
    old, new : the text and what takes its place.
    tests : paths that pytest is given, of the unit that should notice.
    """

    name: str
    folder: str
    old: str
    new: str
    tests: str

    def file(self, root: Path) -> Path:
        """Return the one file of a copy that holds the text once; LookupError if there is none."""
        files = [
            path
            for path in (root / "src/calgrid" / self.folder).rglob("*.py")
            if self.old in path.read_text("utf-8")
        ]
        if len(files) != 1 or files[0].read_text("utf-8").count(self.old) != 1:
            raise LookupError(
                f"{self.name}: src/calgrid/{self.folder} must hold exactly once: {self.old}"
            )
        return files[0]


MUTATIONS = (
    Mutation(
        "MbLS rewards what it should penalise",
        "losses",
        "return ce + self.lambda_ * margin,",
        "return ce - self.lambda_ * margin,",
        "tests/losses",
    ),
    Mutation(
        "FeDLaS indicator is not centred",
        "losses",
        "gamma = (values - self.mean) / (self.std + self.eps)",
        "gamma = values / (self.std + self.eps)",
        "tests/losses",
    ),
    Mutation(
        "mixup: weights of a pair do not add up to one",
        "procedures",
        "return weight * first + (1.0 - weight) * second",
        "return weight * first + weight * second",
        "tests/procedures",
    ),
    Mutation(
        "ECE: gaps of bins cancel",
        "metrics",
        "return np.abs(sums.gap).sum(axis=-1) /",
        "return np.abs(sums.gap.sum(axis=-1)) /",
        "tests/metrics",
    ),
    Mutation(
        "debiased ECE: the bias is added",
        "metrics",
        "sums.count * (square - excess)",
        "sums.count * (square + excess)",
        "tests/metrics",
    ),
    Mutation(
        "Brier score: the label's term is not squared",
        "metrics",
        "(squares - of_label**2).clip(min=0) + (1 - of_label) ** 2",
        "(squares - of_label**2).clip(min=0) + (1 - of_label)",
        "tests/metrics",
    ),
    Mutation(
        "ECE null: deviation from another mean",
        "metrics",
        "np.abs(values - p.sum()) @ mass",
        "np.abs(values - p.sum() - 0.1) @ mass",
        "tests/metrics",
    ),
    Mutation(
        "temperature: the variance of the logits is a second moment",
        "metrics",
        "    second -= first**2\n",
        "",
        "tests/calibrators/test_temperature_family.py",
    ),
    Mutation(
        "binning: the rate of a bin without prior",
        "calibrators",
        "+ prior_count * prior_mean, total",
        "+ 0.0, total",
        "tests/calibrators/test_binning_maps.py",
    ),
    Mutation(
        "step schedule: the rate drops one epoch late",
        "training",
        "sum(epoch >= milestone for",
        "sum(epoch > milestone for",
        "tests/training/test_schedule.py",
    ),
    Mutation(
        "SGD has no momentum",
        "training",
        "momentum=options.momentum,",
        "momentum=0.0,",
        "tests/training/test_trainer.py",
    ),
    Mutation(
        "the best checkpoint is the last of equals",
        "training",
        "if score > best or math.isnan(best):",
        "if score >= best or math.isnan(best):",
        "tests/training",
    ),
    Mutation(
        "random streams do not depend on the seed",
        "training",
        '":".join(map(str, (seed, *names)))',
        '":".join(map(str, names))',
        "tests/training",
    ),
    Mutation(
        "same shift: rows that fit are scored",
        "jobs",
        "scored = data.rows(rest)",
        "scored = data.rows(fit)",
        "tests/jobs/test_calibrate.py",
    ),
    Mutation(
        "results of other configurations are aggregated",
        "storage",
        'found = facts.get("fingerprint")',
        "found = expected",
        "tests/storage tests/jobs/test_aggregate.py",
    ),
    Mutation(
        "changed content of the right size is no damage",
        "storage",
        "or sha256_of(path) != expected:",
        "or not expected:",
        "tests/storage",
    ),
    Mutation(
        "a lock is stale where a clock is wrong",
        "storage",
        "stale = not holder or max(abs(age), watched) >= STALE_SECONDS",
        "stale = not 0 < age < 1",
        "tests/storage/test_storage_locks.py",
    ),
    Mutation(
        "a data set's defaults win over those of a network on it",
        "",
        'self.dataset_defaults.get(f"{dataset}/{backbone}", {})',
        'self.dataset_defaults.get(f"{backbone}/{dataset}", {})',
        "tests/components/test_registry.py",
    ),
    Mutation(
        "Holm: adjusted p-values are not monotone",
        "statistics",
        ".groupby(family).cummax()",
        "",
        "tests/statistics/test_holm.py",
    ),
    Mutation(
        "tables show fractions as percent",
        "report",
        "return 100 * values if",
        "return 10 * values if",
        "tests/report/test_text.py",
    ),
)


def main() -> int:
    """Run the mutations that were asked for."""
    options = parse()
    chosen = [each for each in MUTATIONS if options.only in each.name]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "calgrid")
        shutil.copytree(HOME, root, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        try:
            for mutation in chosen:
                mutation.file(root)
        except LookupError as error:
            print(error, file=sys.stderr)
            return 2
        for tests in dict.fromkeys(tests_of(each, options) for each in chosen):
            if not pass_in(root, tests):
                print(f"The tests fail before any line is broken: {tests}", file=sys.stderr)
                return 2
        missed = [
            mutation
            for mutation in chosen
            if not noticed(root, mutation, tests_of(mutation, options))
        ]
    print(f"{len(chosen) - len(missed)} of {len(chosen)} noticed")
    return int(len(missed) > len(MUTATIONS) - ENOUGH)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description="Break lines of the core one by one, and count what tests notice."
    )
    parser.add_argument(
        "--full", action="store_true", help="run all that `make test` runs for each line"
    )
    parser.add_argument(
        "--only", default="", metavar="WORD", help="mutations whose name holds a word"
    )
    parser.add_argument(
        "--tests", metavar="PATHS", help="tests to run for each line, in place of those of its unit"
    )
    return parser.parse_args()


def tests_of(mutation: Mutation, options: argparse.Namespace) -> str:
    """Return the paths for pytest."""
    return "tests" if options.full else options.tests or mutation.tests


def noticed(root: Path, mutation: Mutation, tests: str) -> bool:
    """Break the line, run the tests, put the line back; print what was found."""
    path = mutation.file(root)
    whole = path.read_text("utf-8")
    begin = time.monotonic()
    try:
        path.write_text(whole.replace(mutation.old, mutation.new), "utf-8")
        found = not pass_in(root, tests)
    finally:
        path.write_text(whole, "utf-8")
    verdict = "noticed" if found else "MISSED"
    print(
        f"{verdict:8} {time.monotonic() - begin:5.0f} s  {path.relative_to(root)}: {mutation.name}",
        flush=True,
    )
    return found


def pass_in(root: Path, tests: str) -> bool:
    """Whether the tests pass in a copy of the repository, up to the first that does not."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        f"not ({REST})",
    ]
    env = {
        **os.environ,
        "PYTHONPATH": str(root / "src"),
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [*command, *tests.split()], cwd=root, env=env, capture_output=True, check=False
    )
    if done.returncode not in (0, 1, 2):  # pytest's own trouble: no such path, nothing collected
        sys.exit(done.stdout.decode() + done.stderr.decode())
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
