"""``calgrid verify`` and ``calgrid clean``: damaged results, and results that no study uses."""

import argparse
import functools
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tqdm import tqdm

from calgrid.cli.listing import read_study
from calgrid.configuration.manifest import below_results, plans
from calgrid.configuration.plan import Plan
from calgrid.errors import CalgridError, ConfigError, StateError, visible_lines
from calgrid.storage.layout import MANIFEST, SUMMARIES
from calgrid.storage.locks import live_owner
from calgrid.storage.records import HIDDEN, MODEL, PREPARE, Record, read_record

#: shows progress over a list, which appears after two seconds
with_bar = functools.partial(tqdm, leave=False, delay=2)


def result_folders(results: Path) -> Iterator[Path]:
    """Folders of prepared data and of results of runs, also of interrupted jobs."""
    for pattern in ("data/*-*", "runs/*/*/*/*/*/*-*"):
        yield from filter(Path.is_dir, sorted(results.glob(pattern)))


def _studies(results: Path) -> list[Path]:
    return sorted(path.parent for path in results.glob(f"*/{HIDDEN}"))


def record_of(folder: Path) -> str:
    """Name of the record in a folder of results: of a run, that of the job."""
    job = folder.name.rpartition("-")[0].partition("_")[0]  # without the name of a probe
    return PREPARE if folder.parent.name == "data" else f"{job}.json"


# verify ---------------------------------------------------------------------------------------


def verify(options: argparse.Namespace) -> None:
    """Read all results, or those of a study, and name what is damaged.

    Raises
    ------
    StateError : something is damaged and is not to be deleted.
    """
    if not options.results.is_dir():
        raise ConfigError(f"The folder {options.results} does not exist; give it with --results.")
    folders = list(result_folders(options.results))
    studies = _studies(options.results)
    if options.study:
        studies = [options.results / options.study]
        if not (studies[0] / MANIFEST).is_file():
            raise ConfigError(
                f"{studies[0]} holds no finished study; give the name of another one."
            )
        used = used_folders(options.results, studies)
        folders = [folder for folder in folders if folder in used]
    damaged = 0
    for folder in with_bar(folders, "verify results"):
        reason = damage(folder)
        if reason:
            damaged += 1
            _report(folder, reason, options.delete)
    for study in studies:
        for name in SUMMARIES:
            for record in study.glob(f"{HIDDEN}/{name}-*.json"):
                reason = _summary_damage(study, record)
                if reason:
                    damaged += 1
                    _report(record, reason, options.delete)
    checked = f"{len(folders)} results and {len(studies)} studies"
    if not damaged:
        sys.stdout.write(f"{checked}: all intact\n")
    elif options.delete:
        sys.stdout.write(f"{checked}: {damaged} damaged ones deleted; run again\n")
    else:
        raise StateError(
            f"{damaged} of {checked} are damaged: 'calgrid verify --delete' removes them, and the "
            "next call of snakemake computes them again."
        )


def damage(folder: Path) -> str:
    """Why a result is damaged; empty if it is intact, or the working folder of a job."""
    if folder.name.endswith((".partial", ".old")):
        return ""
    name = record_of(folder)
    if not (folder / name).exists() and not any(folder.iterdir()):
        return ""  # an empty folder of Snakemake
    try:
        record = Record.read(folder, name)
        fingerprint = str(record.content.get("fingerprint"))
    except (CalgridError, OSError) as error:
        return str(error)
    if not fingerprint.startswith(folder.name.rpartition("-")[2]):
        return f"it holds the result with the fingerprint {fingerprint}"
    files = [file for file in record.damaged() if file != MODEL or (folder / MODEL).exists()]
    return f"damaged or missing: {', '.join(files)}" if files else ""


def _summary_damage(study: Path, path: Path) -> str:
    try:
        files = Record.read(study, f"{HIDDEN}/{path.name}").damaged()
    except (CalgridError, OSError) as error:
        return str(error)
    return f"damaged or missing: {', '.join(files)}" if files else ""


def _report(path: Path, reason: str, delete: bool) -> None:
    sys.stdout.write(f"{visible_lines(path)}: {visible_lines(reason)}\n")
    if delete:
        remove(path)


def remove(path: Path) -> None:
    """Remove a file or folder; a link, not what it leads to."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# clean ----------------------------------------------------------------------------------------


def clean(options: argparse.Namespace) -> None:
    """List results that no study uses, or those of some runs, and remove them if told."""
    if options.runs and options.configuration is None:
        raise ConfigError("--run needs the configuration of the study: calgrid clean STUDY.yaml.")
    if options.runs:
        plan = Plan(read_study(options.configuration, options.data_root))
        folders = branch(plan, options.runs)
        title = f"results of {', '.join(options.runs)} and of what depends on them"
    else:
        studies = _studies(options.results)
        used = used_folders(options.results, studies)
        folders = [path for path in result_folders(options.results) if path not in used]
        folders += _unused_fits(options.results, used)
        for study in studies:
            folders += plans(study)[:-1]
        title = "results that no study uses"
    folders = [path for path in folders if path.exists() and not _is_locked(path)]
    if not folders:
        sys.stdout.write(f"There is nothing to remove: no {title}.\n")
        return
    sizes = list(map(_size, with_bar(folders, "sizes")))
    for folder, size in zip(folders, sizes, strict=True):
        sys.stdout.write(f"{size / 1e6:10,.1f} MB  {visible_lines(folder)}\n")
    sys.stdout.write(f"{sum(sizes) / 1e6:10,.1f} MB in {len(folders)} files and folders: {title}\n")
    if not (options.yes or _agrees()):
        sys.stdout.write("Nothing was removed.\n")
        return
    for folder in with_bar(folders, "remove"):
        remove(folder)
    sys.stdout.write(f"Removed {len(folders)} files and folders.\n")


def used_folders(results: Path, studies: Iterable[Path]) -> set[Path]:
    """Folders of all results that studies were made from, or are being made from.

    Raises
    ------
    DataError : a manifest is damaged, so that it cannot be known what it needs.
    """
    used = set()
    for study in studies:
        manifests = []
        if (study / MANIFEST).is_file():
            manifests.append(read_record(study / MANIFEST, "manifest"))
        if planned := plans(study):  # of a study that is not finished
            manifests.append(read_record(planned[-1], "plan")["manifest"])
        for manifest in manifests:
            for folder in manifest["folders"]:
                used.add(results / below_results(manifest, folder))
    return used


def _unused_fits(results: Path, used: Iterable[Path]) -> list[Path]:
    """Saved fits of the runs of which no study uses a calibration and none is in progress."""
    calibrated = {path.parent for path in used if path.name.startswith("calibrate-")}
    unused = []
    for path in sorted(results.glob("runs/*/*/*/*/*/fits")):
        in_progress = map(_is_locked, path.parent.glob("calibrate-*.partial"))
        if path.parent not in calibrated and not any(in_progress):
            unused.append(path)
    return unused


def branch(plan: Plan, patterns: Iterable[str]) -> list[Path]:
    """Folders of the results of some runs and of all runs that are made from them: those that test
    the same training, whose first stage they are, or ensembles of them.

    The patterns are those of :meth:`Plan.matching_runs`.
    """
    study, folders = plan.study, []
    for pattern in patterns:
        keys = plan.matching_runs(pattern)
        trainings = {study.training[key] for key in keys if key in study.training}
        for key, run in study.trained.items():
            if study.training[key] in trainings or run.first_stage in keys:
                keys.append(key)
        keys += [key for key, made in study.ensembles.items() if {*made.members} & {*keys}]
        paths = {key.path for key in keys}
        folders += [Path(job.folder) for job in plan.jobs if job.about in paths]
        folders += [Path(plan.study.layout.run(key), "fits") for key in keys]
    return list(dict.fromkeys(folders))


def _is_locked(folder: Path) -> bool:
    name = folder.name.removesuffix(".partial")
    return live_owner(folder.with_name(f"{name}.lock")) is not None


def _size(path: Path) -> int:
    files = filter(Path.is_file, [path, *path.rglob("*")])
    return sum(file.stat().st_size for file in files)


def _agrees() -> bool:
    if not sys.stdin.isatty():
        return False
    sys.stdout.write("Remove them? [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
