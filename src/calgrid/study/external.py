"""Entries of ``external``, logits made elsewhere: their runs, and checks of their files.

All functions raise ConfigError.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from calgrid.components.options import Options
from calgrid.errors import ConfigError, check_ids, located, refuse
from calgrid.logits.formats import FORMATS, HEAD_FORMATS, check_format
from calgrid.storage.manifest import below_results, plans
from calgrid.storage.records import (
    EXTERNAL,
    PREDICT,
    SPLITS,
    Record,
    RunKey,
    head_file,
    logits_file,
    read_record,
)
from calgrid.storage.specs import EXTERNAL_FILES, Calibrator
from calgrid.study.checks import check_file
from calgrid.study.model import Bank, CalArena, External, NamedRun, OfStudy, Sampled
from calgrid.study.runs import ExternalRun

if TYPE_CHECKING:
    from calgrid.logits.bank import BankRun

#: keys of an entry that set its evaluation
EVALUATED = {"protocol", "calibrators", "calibrator_seeds", "val_rows", "val_seeds"}
Entry = Bank | CalArena | External | OfStudy


def check_calibrators(
    entry: Entry, run: ExternalRun, calibrators: Iterable[Calibrator], where: str
) -> None:
    """Check that a run of an entry provides all inputs of its calibrators."""
    for calibrator in calibrators:
        needs, told = calibrator["needs"], f"{where}.calibrators: '{calibrator['name']}' needs"
        mend = "give its file as 'head'"
        if isinstance(entry, OfStudy):
            mend = f"run '{entry.run.study}' with export_features: true, or remove it"
        refuse(
            (
                isinstance(entry, Bank | CalArena) and needs != ["logits"],
                f"{told} features, which these predictions do not have; remove it.",
            ),
            (
                "training features" in needs,
                f"{told} features of training images, which logits made elsewhere do not have; "
                "remove it.",
            ),
            (
                "head" in needs and "head" not in run.external,
                f"{told} the last linear layer; {mend}.",
            ),
        )


def runs_of(name: str, entry: Entry, root: Path, folder: Path, where: str) -> list[ExternalRun]:
    """Runs of an entry: from files below ``root``, which must exist, or from another study beside
    ``folder``, the study's own folder.
    """
    if isinstance(entry, Bank):
        return _of_bank(name, entry, root, where)
    if isinstance(entry, CalArena):
        return _of_calarena(name, entry, root, where)
    if isinstance(entry, OfStudy):
        return _of_study(name, entry, folder, where)
    _check_files(entry, root, where)
    dataset = entry.dataset or name
    key = RunKey(entry.protocol, dataset, entry.backbone, entry.method, entry.seed)
    options = {"name": name, **entry.model_dump(exclude=EVALUATED, exclude_none=True)}
    return _subsets(entry, ExternalRun(key=key, root=root, external=options))


def _of_study(name: str, entry: OfStudy, folder: Path, where: str) -> list[ExternalRun]:
    """A run made by another study, or a run for each subset of its validation rows."""
    made = made_run(entry.run, folder, f"{where}.run")
    if made.disjoint_validation and entry.val_rows is not None:
        raise ConfigError(
            f"{where}.val_rows: {made.key.path} was trained with disjoint_validation, so only a "
            "third of its val rows can fit calibrators; remove 'val_rows'."
        )
    key = made.key._replace(
        protocol=entry.protocol,
        dataset=entry.dataset or made.key.dataset,
        method=entry.method or made.key.method,
    )
    options = {"name": name, **made.external, "kind": "logits", **_shown(key)}
    return _subsets(entry, replace(made, key=key, external=options))


def made_run(asked: NamedRun, folder: Path, where: str) -> ExternalRun:
    """The only run that matches the names, by the newest plan of its study; ``external`` has the
    files ``val``, ``test`` and, if any, ``head`` of a tested checkpoint.

    Raises
    ------
    ConfigError : there is no such run, several have the names, or the run is not finished.
    """
    planned = plans(folder.with_name(asked.study))
    refuse(
        (
            asked.study == folder.name,
            f"{where}.study: '{asked.study}' is this study; name another one.",
        ),
        (
            not planned,
            f"{where}.study: the study '{asked.study}' does not exist in the folder "
            f"'{folder.parent}'; run it first, or correct its name.",
        ),
    )
    with located(where):
        plan = read_record(planned[-1], "plan")
        names, run = _only_run(asked, plan, where)
        key, checkpoint = RunKey(**run["key"]), names["checkpoint"]
        below = below_results(plan["manifest"], run["predict"])
        predicted = folder.parent / below
        if not (predicted / PREDICT).is_file():
            raise ConfigError(
                f"{where}: {key.path} of study '{asked.study}' is not finished; run that study "
                "first."
            )
        made = Record.read(predicted, PREDICT).files
    files = {split: f"{below}/{logits_file(checkpoint, split)}" for split in SPLITS}
    if head_file(checkpoint) in made:
        files["head"] = f"{below}/{head_file(checkpoint)}"
    return ExternalRun(
        key=key,
        disjoint_validation=plan["jobs"][run["calibrate"]]["disjoint_validation"],
        sees_validation=run["sees_validation"],
        draws_validation=run["draws_validation"],
        root=folder.parent,
        external=files,
    )


def _only_run(asked: NamedRun, plan: Options, where: str) -> tuple[Options, Options]:
    """Names of the only requested run, with its checkpoint, and its entry in the manifest."""
    found = []
    for run in plan["manifest"]["runs"]:
        for checkpoint in plan["jobs"][run["calibrate"]]["checkpoints"]:
            found.append(({**run["key"], "checkpoint": checkpoint}, run))
    for name, value in asked.model_dump(exclude={"study"}, exclude_none=True).items():
        known = {names[name] for names, _ in found}
        check_ids(name, [value], known, f"{where}.{name}")
        found = [each for each in found if each[0][name] == value]
    if len(found) > 1:
        differing = []
        for name in found[0][0]:
            if len({names[name] for names, _ in found}) > 1:
                differing.append(name)
        raise ConfigError(
            f"{where}: {len(found)} runs of study '{asked.study}' match, which differ in "
            f"{', '.join(differing)}; add what tells yours from the others."
        )
    return found[0]


def _subsets(entry: Sampled, run: ExternalRun) -> list[ExternalRun]:
    """A run, or a run for each subset of its validation rows."""
    if entry.val_rows is None:
        return [run]
    runs = []
    for rows, seed in itertools.product(entry.val_rows, entry.val_seeds):
        key = run.key._replace(dataset=f"{run.key.dataset}_n{rows}", seed=seed)
        options = {**run.external, "val_rows": rows, "val_seed": seed}
        runs.append(replace(run, key=key, external=options))
    return runs


def _of_calarena(name: str, entry: CalArena, root: Path, where: str) -> list[ExternalRun]:
    """A run for each wanted group of a file of CalArena."""
    from calgrid.logits.calarena import groups  # noqa: PLC0415  (NumPy and pyarrow)

    check_file(root, entry.file, f"{where}.file")
    with located(f"{where}.file"):
        check_ids("group", entry.group, groups(root / entry.file), f"{where}.group")
    runs = []
    for group in entry.group:
        dataset, backbone = group.split("/")
        key = RunKey(EXTERNAL, dataset, backbone, entry.method, entry.seed)
        options = {
            "name": name,
            "test": entry.file,
            "group": group,
            "kind": "probabilities",
            **_shown(key),
        }
        runs.append(ExternalRun(key=key, root=root, external=options))
    return runs


def _of_bank(name: str, entry: Bank, root: Path, where: str) -> list[ExternalRun]:
    """The wanted runs of a bank; a missing bank with an address is downloaded."""
    from calgrid.logits.bank import opened  # noqa: PLC0415  (NumPy and pyarrow)

    path = root / entry.file
    with located(f"{where}.file"):
        if not path.exists() and entry.url is not None:
            from calgrid.datasets.downloads import download  # noqa: PLC0415  (an extra)

            file = {"name": path.name, "url": entry.url, "sha256": entry.sha256}
            download(cast(Any, file), path.parent)
        if not path.is_dir():
            check_file(root, entry.file, f"{where}.file")
        with opened(path) as bank:
            wanted = _wanted_runs(bank.runs, entry, where)
    runs = []
    for taken in wanted:
        options = {
            "name": name,
            "test": entry.file,
            "bank": {"folder": taken.folder, "files": taken.files},
            "kind": "logits",
            **_shown(taken.key),
        }
        run = ExternalRun(
            key=taken.key,
            checkpoints=taken.checkpoints,
            disjoint_validation=taken.disjoint_validation,
            sees_validation=taken.sees_validation,
            draws_validation=taken.draws_validation,
            root=root,
            external=options,
        )
        runs.append(run)
    return runs


def _shown(key: RunKey) -> dict[str, object]:
    """Names of an external run in the tables."""
    return {name: value for name, value in key._asdict().items() if name != "protocol"}


def _check_files(entry: External, root: Path, where: str) -> None:
    """Check an entry of files: they exist, val and test differ, all keys have effects."""
    given = entry.model_dump(exclude_unset=True, exclude_none=True)
    for role in EXTERNAL_FILES:
        if role in given:
            formats = HEAD_FORMATS if role == "head" else FORMATS
            with located(f"{where}.{role}"):
                check_format(root / given[role], formats)
            check_file(root, given[role], f"{where}.{role}")
    has_val = "val" in given
    split = next((key for key in ("split_seed", "val_fraction") if key in given), "")
    refuse(
        (
            "val_labels" in given and not has_val,
            f"{where}.val_labels has no effect without 'val'; give both or remove it.",
        ),
        (
            not has_val and "split_seed" not in given,
            f"{where}: give a 'val' file, or 'split_seed' to split the test rows at random.",
        ),
        (has_val and split, f"{where}: 'val' and '{split}' exclude each other; remove one."),
        (
            has_val and (root / given["val"]).samefile(root / given["test"]),
            f"{where}: 'val' and 'test' are the same file, but calibrators must be fitted and "
            "tested on different rows; give another file, or, in a study, 'split_seed' instead "
            "of 'val' to split the rows.",
        ),
    )


def _wanted_runs(runs: "list[BankRun]", entry: Bank, where: str) -> "list[BankRun]":
    """Runs of a bank named by an entry, all of which must exist."""
    filters = {"method": "methods", "dataset": "datasets", "backbone": "backbones", "seed": "seeds"}
    for field, option in filters.items():
        wanted: Sequence[Any] | None = getattr(entry, option)
        known = {getattr(run.key, field) for run in runs}
        for value in wanted or ():
            if value not in known and "(" in str(value):
                raise ConfigError(
                    f"{where}.{option}: the bank has no run '{value}'; name its {option} here, and "
                    "an ensemble of them in 'ensembles: {methods: [...]}'."
                )
        check_ids(field, wanted or (), known, f"{where}.{option}")
        runs = [run for run in runs if wanted is None or getattr(run.key, field) in wanted]
    if not runs:
        raise ConfigError(f"{where}: no run of the bank has all of these; name fewer.")
    return runs
