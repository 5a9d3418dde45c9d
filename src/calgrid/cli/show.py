"""``calgrid show``: one run."""

from pathlib import Path

from calgrid.cli.reliability import check_figure
from calgrid.cli.study_of import last_manifest, study_folder
from calgrid.cli.terminal import Arguments, write
from calgrid.errors import ConfigError, visible_lines
from calgrid.plan.plan import matching_runs
from calgrid.progress import warn
from calgrid.report.run import Run, describe, draw
from calgrid.storage.atomic import replacing, require_writable
from calgrid.storage.manifest import below_results
from calgrid.storage.records import MANIFEST, PREDICT, TRAIN, RunKey, why_not_current

#: jobs with the results that are shown, and their records
JOBS = {"train": TRAIN, "predict": PREDICT}


def show(options: Arguments) -> None:
    """Print configuration, training history and reliability of a run; also draw them if a file is
    given.
    """
    check_figure(options.plot)
    run = _run(options.place, options.pattern)
    text = describe(run, options.checkpoint, options.bins)
    if options.plot:
        require_writable(options.plot)
        figure = draw(run, options.checkpoint, options.bins)
        with replacing(options.plot) as temporary:
            figure.savefig(temporary, format=options.plot.suffix[1:].lower())
    write(visible_lines(text))


def _run(place: Path, pattern: str | None) -> Run:
    """The newest results in the folder of a run, or the results of a run of a study."""
    if pattern is None and any(path for job in JOBS for path in place.glob(f"{job}-*")):
        return Run.newest(place)
    study = study_folder(place)
    if (study / MANIFEST).is_file() and (why := why_not_current(study)):
        warn(f"the files of the study may not belong together: {why}.")
    manifest = last_manifest(study)
    runs = {RunKey(**run["key"]): run for run in manifest["runs"]}
    keys = list(runs) if pattern is None else matching_runs(runs, pattern)
    if len(keys) != 1:
        of = "" if pattern is None else f" '{pattern}'"
        raise ConfigError(
            f"The study in {study} has {len(keys)} runs{of}; name one by its path or the end of "
            f"it, such as {keys[0].method}/seed{keys[0].seed}."
        )
    found = []
    folders = {"train": runs[keys[0]]["train"], "predict": runs[keys[0]]["predict"]}
    for job, record in JOBS.items():
        name = folders[job]
        folder = study.parent / below_results(manifest, name) if name else Path()
        found.append(folder if (folder / record).is_file() else None)
    if found == [None, None]:
        raise ConfigError(f"The run {keys[0].path} has no results yet.")
    return Run(*found)
