"""``calgrid verify`` and ``calgrid clean``: damaged results, and results that no study uses."""

import contextlib
import functools
import itertools
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from calgrid.cli.study_of import is_results, manifests, read_study, studies, study_folder
from calgrid.cli.terminal import Arguments, write
from calgrid.errors import CalgridError, ConfigError, StateError, visible_lines
from calgrid.logits.bank import check_unpacked
from calgrid.plan.plan import Plan, matching_runs
from calgrid.report.text import count
from calgrid.storage.locks import live_owner
from calgrid.storage.manifest import below_results, plans
from calgrid.storage.records import (
    BANK,
    HIDDEN,
    INPUTS,
    MANIFEST,
    MODEL,
    PLUGINS,
    STUDY_STAGES,
    Facts,
    Record,
    listing,
    read_record,
    record_of,
    summary_record,
    why_not_current,
)
from calgrid.storage.sources import source_digest

#: shows progress over a list, which appears after two seconds
with_bar = functools.partial(tqdm, leave=False, delay=2)


def result_folders(results: Path) -> Iterator[Path]:
    """Folders of prepared data and of results of runs, also of interrupted jobs."""
    for pattern in ("data/*-*", "runs/*/*/*/*/*/*-*"):
        yield from filter(Path.is_dir, sorted(results.glob(pattern)))


# verify ---------------------------------------------------------------------------------------


@dataclass
class _Verified:
    """Counts and names of compared results and inputs."""

    delete: bool
    results: int = 0
    damaged: int = 0
    missing: int = 0
    outdated: int = 0
    same: int = 0
    gone: list[str] = field(default_factory=list)

    def add(self, path: Path, reason: str, record: Record | None, root: Path | None) -> None:
        """Add a result: count it as damaged for a reason, else compare the inputs in its record
        with the files on disk.
        """
        if reason:
            self.damaged += 1
            _report(path, reason)
            if self.delete:
                remove(path)
            return
        others = []
        for name, read, now in inputs_now(record.content, record.root, root) if record else ():
            if now is None:
                self.gone.append(name)
            elif now == read:
                self.same += 1
            else:
                others.append(name)
        if others:
            self.outdated += 1
            _report(path, f"{', '.join(others)} had another content when it was made")

    def text(self) -> str:
        """Summary of the comparison, in words."""
        parts = [f"{count(self.same, 'input')} compared with what is there now"]
        if self.gone:
            files = count(len(self.gone), "input")
            parts.append(f"{files} not there, so not compared (the first: {self.gone[0]})")
        return "; ".join(parts)


def verify(options: Arguments) -> None:
    """Read all results in a folder, in an archive, or of a study; name missing, damaged and stale
    ones.

    Raises
    ------
    StateError : something is missing, outdated, or damaged and not to be deleted.
    ConfigError : there is no study, or files of an archive are to be deleted.
    """
    if not zipfile.is_zipfile(options.study):
        _verify(options.study, options.delete)
        return
    archive: Path = options.study
    if options.delete:
        raise ConfigError(f"No file of the archive {archive} can be deleted; unpack it first.")
    with tempfile.TemporaryDirectory(prefix="calgrid-") as folder:
        try:
            with zipfile.ZipFile(archive) as content:
                check_unpacked(content, archive)
                content.extractall(folder)
            _verify(Path(folder), False)
        except (zipfile.BadZipFile, CalgridError) as error:
            raise StateError(
                f"The archive {archive} is damaged or no archive of calgrid pack; take "
                f"another copy, or pack the study again ({error})."
            ) from None


def inputs_now(
    record: Facts, folder: Path, root: Path | None
) -> Iterator[tuple[str, str, str | None]]:
    """Yield name, recorded SHA-256 and current SHA-256 of each input in the record of ``folder``;
    the last is None for a missing file.

    The user's files are below ``root``; without ``root`` they count as gone.
    """
    inputs = record[INPUTS]
    for place, files in inputs["results"].items():
        above = Path(os.path.normpath(folder / place))
        now = listing(above)
        for name, sha256 in files.items():
            yield str(above / name), sha256, now.get(name)
    for name, sha256 in inputs["files"].items():
        found = None
        with contextlib.suppress(ConfigError):
            found = None if root is None else source_digest(None, str(root / name))
        yield name, sha256, found


def _verify(place: Path, delete: bool) -> None:
    of_all = is_results(place)
    if of_all:
        results, verified = place, studies(place)
    else:
        verified = [study_folder(place)]
        results = verified[0].parent
    found = _compared(results, verified, of_all, delete)
    names = ", ".join(f"'{each.name}'" for each in verified)
    of = f"in {results} (studies: {names or 'none'})" if of_all else f"of study {names}"
    is_are = f"result {of} is", f"results {of} are"
    intact = "" if found.damaged or found.missing or found.outdated else "all intact: "
    write(f"{intact}{count(found.results, 'result')} {of}; {visible_lines(found.text())}\n")
    if found.damaged and not delete:
        raise StateError(
            f"{count(found.damaged, *is_are)} damaged: 'calgrid verify {place} --delete' removes "
            "what is damaged, and the next run computes it again."
        )
    if found.damaged:
        write(f"{found.damaged} damaged ones deleted; run again\n")
    if found.missing and delete:
        write(f"{count(found.missing, *is_are)} missing; run again\n")
        found.missing = 0
    for number, state in (
        (found.missing, "missing"),
        (found.outdated, "made from other inputs than are there now"),
    ):
        if number:
            raise StateError(f"{count(number, *is_are)} {state}; run again.")


def _compared(results: Path, verified: Sequence[Path], of_all: bool, delete: bool) -> _Verified:
    """Read the results of some studies, or ``of_all``, and compare them with their records."""
    found = _Verified(delete)
    for path, reason in itertools.chain(*map(_unreadable, verified)):
        found.add(path, reason, None, None)
    readable = [each for each in verified if not any(_unreadable(each))]
    roots = _data_roots(results, readable)
    folders = [folder for folder in result_folders(results) if of_all or folder in roots]
    for folder in _missing(results, readable):
        found.missing += 1
        _report(folder, "missing")
    for folder in with_bar(folders, "verify results"):
        reason, record = damage(folder)
        found.results += bool(reason) or record is not None
        found.add(folder, reason, record, roots.get(folder))
    for each in verified:
        for name in STUDY_STAGES:
            for path in each.glob(f"{HIDDEN}/{name}-*.json"):
                reason, record = _damaged(each, str(path.relative_to(each)))
                found.add(path, reason, record, Path())
        finished = each in readable and (each / MANIFEST).is_file()
        named = found.damaged or found.missing or found.outdated
        if finished and not named and (why := why_not_current(each)):
            found.outdated += 1
            _report(each, why)
    if (results / BANK).is_file():  # an unpacked archive
        # files of its studies have records of their own, and a further run replaces them
        own = {study.name for study in verified}
        reason, _ = _damaged(results, BANK, lambda file: file.partition("/")[0] in own)
        found.add(results / BANK, reason, None, None)
    return found


def _unreadable(study: Path) -> Iterator[tuple[Path, str]]:
    """Unreadable manifest and newest plan of a study, with the reasons."""
    for path in (study / MANIFEST, *plans(study)[-1:]):
        if path.is_file():
            try:
                read_record(path, "record")
            except CalgridError as error:
                yield path, str(error)


def _missing(results: Path, verified: Iterable[Path]) -> Iterator[Path]:
    """Missing files of finished studies; prepared data are needed only to train and predict."""
    for study in verified:
        if not (study / MANIFEST).is_file():
            continue
        manifest = read_record(study / MANIFEST, "manifest")
        for folder in manifest["folders"]:
            below = below_results(manifest, folder)
            if below.parts[0] == "runs" and not any((results / below).glob("*")):
                yield results / below
        for stage in STUDY_STAGES:
            record = f"{HIDDEN}/{stage}-*.json"
            if not any(study.glob(record)):
                yield study / record


def _data_roots(results: Path, studies: Iterable[Path]) -> dict[Path, Path]:
    """Folders of all results of studies -> the folder of their data."""
    roots: dict[Path, Path] = {}
    for study in studies:
        for manifest in manifests(study):
            root = Path(manifest["configuration"].get("data_root") or "")
            for folder in manifest["folders"]:
                roots[results / below_results(manifest, folder)] = root
    return roots


def damage(folder: Path) -> tuple[str, Record | None]:
    """Reason why a result is damaged, empty if it is intact or the working folder of a job; and its
    record if it is intact.
    """
    if folder.name.endswith((".partial", ".old")):
        return "", None
    name = record_of(folder)
    if not (folder / name).exists() and not any(folder.iterdir()):
        return "", None  # an empty folder of Snakemake
    reason, record = _damaged(
        folder, name, lambda file: file == MODEL and not (folder / MODEL).exists()
    )
    fingerprint = "" if record is None else str(record.content.get("fingerprint"))
    if record is not None and not fingerprint.startswith(folder.name.rpartition("-")[2]):
        return f"it holds the result with the fingerprint {fingerprint}", None
    return reason, record


def _damaged(
    root: Path, name: str, may_differ: Callable[[str], bool] = lambda _file: False
) -> tuple[str, Record | None]:
    """Reason why files below ``root`` differ from a record, empty if none does but those of
    ``may_differ``; in this case also the record.
    """
    try:
        record = Record.read(root, name)
    except (CalgridError, OSError) as error:
        return str(error), None
    files = [file for file in record.damaged() if not may_differ(file)]
    return (f"damaged or missing: {', '.join(files)}", None) if files else ("", record)


def _report(path: Path, reason: str) -> None:
    write(f"{visible_lines(path)}: {visible_lines(reason)}\n")


def remove(path: Path) -> None:
    """Remove a file or folder; of a link only the link itself."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# clean ----------------------------------------------------------------------------------------


def clean(options: Arguments) -> None:
    """List results of some runs, or else of no study, and remove them if told."""
    place: Path = options.study
    if options.runs:
        plan = Plan(read_study(place, options.data_root))
        folders = branch(plan, options.runs)
        title = f"results of {', '.join(options.runs)} and of what depends on them"
    elif is_results(place):
        used = _data_roots(place, studies(place))
        folders = [path for path in result_folders(place) if path not in used]
        folders += _unused_fits(place, used) + _unused_plugins(place)
        for study in studies(place):
            folders += plans(study)[:-1]
        title = "results that no study uses"
    else:
        folder = study_folder(place)
        raise ConfigError(
            f"{folder} is one study: name its runs with --run, or give {folder.parent} to remove "
            "what no study uses."
        )
    folders = [path for path in folders if path.exists() and not _is_locked(path)]
    if not folders:
        write(f"There is nothing to remove: no {title}.\n")
        return
    sizes = list(map(_size, with_bar(folders, "sizes")))
    for folder, size in zip(folders, sizes, strict=True):
        write(f"{size / 1e6:10,.1f} MB  {visible_lines(folder)}\n")
    write(f"{sum(sizes) / 1e6:10,.1f} MB in {len(folders)} files and folders: {title}\n")
    if not (options.yes or _agrees()):
        write("Nothing was removed; --yes removes them without a question.\n")
        return
    for folder in with_bar(folders, "remove"):
        remove(folder)
    write(f"Removed {len(folders)} files and folders.\n")


def _unused_fits(results: Path, used: Iterable[Path]) -> list[Path]:
    """Saved fits of runs without a calibration used by a study or in progress."""
    calibrated = {path.parent for path in used if path.name.startswith("calibrate-")}
    unused = []
    for path in sorted(results.glob("runs/*/*/*/*/*/fits")):
        in_progress = map(_is_locked, path.parent.glob("calibrate-*.partial"))
        if path.parent not in calibrated and not any(in_progress):
            unused.append(path)
    return unused


def _unused_plugins(results: Path) -> list[Path]:
    """Copies of plugins that neither the files of a study nor its newest plan name."""
    used = set()
    for study in studies(results):
        for plan in plans(study)[-1:]:
            inputs = read_record(plan, "plan")["inputs"]
            used |= {Path(read.get("plugins", "")).name for read in inputs.values()}
        for record in filter(None, (summary_record(study, stage) for stage in STUDY_STAGES)):
            used.add(record.content[INPUTS].get("plugins"))
    return [copy for copy in sorted(results.glob(f"{PLUGINS}/*")) if copy.name not in used]


def branch(plan: Plan, patterns: Iterable[str]) -> list[Path]:
    """Folders of the results of some runs and of all runs downstream: runs that share the training,
    second stages on it, and ensembles.

    The patterns are those of :func:`calgrid.plan.plan.matching_runs`.
    """
    study, folders = plan.study, []
    for pattern in patterns:
        keys = matching_runs(study.runs, pattern)
        trainings = {study.training[key] for key in keys if key in study.training}
        for key, run in study.trained.items():
            if study.training[key] in trainings or run.first_stage in keys:
                keys.append(key)
        keys += [key for key, made in study.ensembles.items() if {*made.members} & {*keys}]
        paths = {key.path for key in keys}
        folders += [Path(job.folder) for job in plan.jobs if job.about in paths]
        folders += [plan.study.folder.parent / "runs" / key.path / "fits" for key in keys]
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
    write("Remove them? [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
