"""Real Snakemake on a copy of the repository: what it plans, and what it runs."""

import contextlib
import copy
import fcntl
import multiprocessing
import os
import re
import runpy
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

HOME = Path(__file__).parents[2]
PARTS = ("Snakefile", "slurm", "profiles", "workflow", "config", "envs", "src", "pyproject.toml")
#: compiled files are copied with the source, as each process would compile them anew
PACKED = shutil.ignore_patterns("*.egg-info")
MADE_HERE = shutil.ignore_patterns("__pycache__", "*.egg-info")
RUN = "results/runs/quick/digits/resnet8"
METRICS = "results/tiny/metrics.parquet"
NULL_MAIN = """import sys

sys.path.insert(0, {folder!r})

from null_stages import main

sys.exit(main())
"""
#: figures are drawn in the first format alone: three take a third of the time of a small study
FORMATS = '{".png": "Software", ".svg": "Date", ".pdf": "CreationDate"}'
#: columns that tell the rows of a metrics file apart
IDENTITY = ["method", "seed", "calibrator", "split", "shift", "severity", "metric"]
#: rules after calibration, which any change of results reaches
AGGREGATION = {"aggregate", "tables", "figures", "report"}

CONFIG = {
    "study": "tiny",
    "device": "cpu",
    "protocols": {
        "quick": {
            "base": "digits",
            "epochs": 2,
            "schedule": {"name": "constant", "milestones": []},
            "second_stage": {"epochs": 1},
        }
    },
    "grids": [
        {
            "protocol": "quick",
            "datasets": ["digits"],
            "backbones": ["resnet8"],
            "methods": ["ce", "mbls", "tst+mbls"],
            "seeds": [1],
            "calibrators": ["none", "ts"],
            "shifts": ["ood/photos"],
        }
    ],
    "statistics": {"bootstrap": 20},
}


METHODS = tuple(CONFIG["grids"][0]["methods"])
#: Snakemake is called in forks of one process that has imported it and the libraries of planning,
#: which is most of a dry run, and those of jobs, which is most of a small job
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        *("snakemake.cli", "pandas", "pyarrow.parquet", "pydantic"),
        *("torch", "torchvision", "scipy.stats", "sklearn.datasets", "seaborn", "jinja2"),
    ]
)


def _call_snakemake(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], *files: Path
) -> None:
    """In a fork: what ``python -m snakemake`` does; its outputs go to two files."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    if "-n" not in arguments:
        _start_server_of_jobs(folder)
    sys.argv = ["snakemake", *arguments]
    from snakemake.cli import main

    main()


def _start_server_of_jobs(folder: Path) -> None:
    """As :func:`calgrid.forkserver.start`, but as a fork of this process, with its libraries."""
    read, write = os.pipe()  # the server ends when this process, which keeps one end, does
    address = f"{tempfile.mkdtemp()}/socket"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(socket.SOMAXCONN)
    if os.fork():
        listener.close()
        os.environ["CALGRID_FORKSERVER"] = address
        return
    os.setsid()
    os.close(write)
    os.dup2(read, 0)
    sys.path.insert(0, f"{folder}/src")
    sys.argv = ["", str(listener.fileno()), "{}"]
    runpy.run_module("calgrid.forkserver", run_name="__main__")


def changed(study: str = "tiny", **grid: Any) -> dict[str, Any]:
    """:data:`CONFIG` under another name, and with other keys in its grid."""
    config = {**copy.deepcopy(CONFIG), "study": study}
    config["grids"][0].update(grid)
    return config


def examples(language: str) -> list[str]:
    """Blocks of code in README.md and docs/, as they stand."""
    texts = [
        path.read_text() for path in (HOME / "README.md", *sorted((HOME / "docs").glob("*.md")))
    ]
    return [
        block
        for text in texts
        for block in re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    ]


class Repository:
    """A copy of the repository in ``root``, with configurations of our own."""

    def __init__(self, root: Path, **environment: str) -> None:
        self.root, self.environment = root, environment
        root.mkdir(exist_ok=True)
        for part in PARTS:
            source = HOME / part
            if source.is_symlink():
                (root / part).symlink_to(source.readlink())
            elif source.is_dir():
                shutil.copytree(source, root / part, symlinks=True, ignore=PACKED)
            else:
                shutil.copy(source, root / part)
        figures = root / "src/calgrid/report/figures/__init__.py"
        figures.write_text(figures.read_text().replace(FORMATS, FORMATS.partition(",")[0] + "}"))

    def copy(self, root: Path) -> "Repository":
        """The same with all its results; times are kept, so nothing is to be done there either."""
        shutil.copytree(self.root, root, symlinks=True, dirs_exist_ok=True)
        twin = object.__new__(type(self))
        twin.root, twin.environment = root, self.environment
        return twin

    def result(self, method: str, job: str, seed: int = 1) -> Path:
        """Folder of the only result of a job of a run."""
        (folder,) = self.results(method, job, seed)
        return folder

    def results(self, method: str, job: str, seed: int = 1) -> list[Path]:
        """Folders of all results of a job of a run, without unfinished ones."""
        folders = sorted((self.root / RUN / method / f"seed{seed}").glob(f"{job}-*/"))
        return [folder for folder in folders if not folder.suffix]

    def data(self, image_set: str) -> Path:
        """Folder of the only version of a data set or shift family."""
        (folder,) = (self.root / "results/data").glob(f"{image_set}-*/")
        return folder

    def configure(self, config: dict, name: str = "tiny.yaml") -> Path:
        path = self.root / name
        path.write_text(yaml.safe_dump(config))
        return path

    def _environment(self, changes: Mapping[str, str]) -> dict[str, str]:
        return {**os.environ, "OMP_NUM_THREADS": "1", **self.environment, **changes}

    def snakemake(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
        """A call that is waited for."""
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder, name) for name in ("out", "err")]
            call = (arguments, self.root, self._environment(environment), *files)
            process = FORKS.Process(target=_call_snakemake, args=call)
            process.start()
            process.join()
            output = [file.read_text() for file in files]
        return subprocess.CompletedProcess(arguments, process.exitcode, *output)

    def shell(self, commands: str) -> str:
        """Run commands of a page of the documents, which must end well; return what they print."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {
            **os.environ,
            "PATH": path,
            "PYTHONPATH": str(self.root / "src"),
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(
            ["bash", "-euc", commands],
            env=environment,
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, config: str, *arguments: str, **environment: str) -> subprocess.Popen:
        """A call in a process group of its own that is not waited for."""
        call = [sys.executable, "-m", "snakemake", "--configfile", config, "--cores", "2"]
        return subprocess.Popen(
            [*call, "--nolock", *arguments],
            cwd=self.root,
            env=self._environment(environment),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, config: str = "tiny.yaml", *arguments: str) -> subprocess.CompletedProcess:
        result = self.snakemake("--configfile", config, "--cores", "2", *arguments)
        assert result.returncode == 0, result.stdout + result.stderr
        return result

    def plan(self, config: str = "tiny.yaml", *arguments: str) -> set[str]:
        """Jobs that a dry run plans: ``train ce/seed1``, ``aggregate``, ..."""
        result = self.snakemake("--configfile", config, "-n", "--cores", "2", *arguments)
        assert result.returncode == 0, result.stdout + result.stderr
        return jobs(result.stdout + result.stderr)


@contextlib.contextmanager
def edits(root: Path) -> Iterator[Callable[[str, str, str], None]]:
    """Replace the first occurrence of a text in a file until the end; a new file is written, and
    removed then.
    """
    originals: dict[Path, str | None] = {}

    def replace(path: str, old: str, new: str) -> None:
        file = root / path
        text = file.read_text() if file.exists() else None
        assert text is None or old in text, f"{old!r} is not in {path}"
        originals.setdefault(file, text)
        file.write_text(new if text is None else text.replace(old, new, 1))

    yield replace
    for file, text in originals.items():
        file.unlink() if text is None else file.write_text(text)


def finished_grid(folder: Path) -> Repository:
    """The grid of :data:`CONFIG`, run in ``folder`` by the first process that asks; to be copied,
    not changed.
    """
    with (folder / "grid.turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        root, done = folder / "grid", folder / "grid.done"
        if not done.exists():
            shutil.rmtree(root, ignore_errors=True)
            repository = Repository(root)
            repository.configure(CONFIG)
            repository.run()
            done.touch()
    repository = object.__new__(Repository)
    repository.root, repository.environment = root, {}
    return repository


def null_repository(root: Path, finished: Repository) -> Repository:
    """A repository whose training, prediction and calibration copy the files of a finished run: see
    null_stages.py.
    """
    template = root / "template"
    repository = Repository(
        root, CALGRID_BENCHMARK_TEMPLATE=str(template), CALGRID_BENCHMARK_SECONDS="0.5"
    )
    for job in ("train", "predict", "calibrate"):
        shutil.copytree(finished.result("ce", job), template / job)
    (root / "src/calgrid/__main__.py").write_text(NULL_MAIN.format(folder=str(HOME / "benchmarks")))
    return repository


def jobs(text: str) -> set[str]:
    """Jobs in Snakemake's output, by rule, method and seed."""
    found = set()
    for block in re.split(r"\n(?=\[)", text):
        rule = re.search(r"^(?:local)?rule (\w+):", block, re.MULTILINE)
        if not rule or rule[1] in ("all", "default"):
            continue
        name = rule[1]
        wildcards = dict(
            # a method may have a comma: ens3(ce,ts)
            re.findall(
                r"(\w+)=(.*?)(?:, (?=\w+=)|$)", (re.search(r"wildcards: (.*)", block) or [0, ""])[1]
            )
        )
        if "method" in wildcards:
            name += f" {wildcards['method']}/seed{wildcards['seed']}"
        elif "image_set" in wildcards:
            name += f" {wildcards['image_set']}"
        found.add(name)
    return found


def branch(
    *methods: str, seed: int = 1, stages: tuple[str, ...] = ("train", "predict", "calibrate")
) -> set[str]:
    """All jobs of some methods, as :func:`jobs` names them."""
    return {f"{stage} {method}/seed{seed}" for stage in stages for method in methods}
