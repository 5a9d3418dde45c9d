"""What a job reads, with the SHA-256 of its content: results above it, files of users, code.

A plan names the content of the user's files and of the code, and a fingerprint follows it. A job
compares what it reads with its plan before and after, so that no result is made from other content
than its name says. Its record lists the content of the results above it too: planning compares
these with the records that are there then (:mod:`calgrid.plan.pending`).
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from calgrid.errors import CalgridError, ConfigError
from calgrid.storage.atomic import parse_json
from calgrid.storage.records import (
    CHECKSUM,
    FILES,
    HIDDEN,
    INPUTS,
    MADE_FROM,
    STUDY_STAGES,
    Facts,
    Record,
    record_of,
)
from calgrid.storage.sources import source_digest

#: file of a result -> SHA-256, by the folder of the result
Results = Mapping[Path, Mapping[str, str]]
#: keys of records that planning compares
COMPARED = (CHECKSUM, "fingerprint", FILES, INPUTS)


def record_content(path: Path) -> Facts:
    """Values of :data:`COMPARED` in a record, without a check of its checksum; empty if it is
    missing or damaged.
    """
    try:
        content = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return {key: content[key] for key in COMPARED if key in content}


def listing(
    folder: Path,
    parts: Iterable[str] = STUDY_STAGES,
    read: Callable[[Path], Facts] = record_content,
) -> dict[str, str]:
    """SHA-256 of the files of a result, or of some parts of a study, as their records list them
    now; of a record itself, the checksum of its content. Empty without a record.
    """
    found: dict[str, str] = {}
    hidden = folder / HIDDEN
    records = [folder / record_of(folder)]
    if hidden.is_dir():
        records = [path for part in parts for path in hidden.glob(f"{part}-*.json")]
    for path in records:
        content = read(path)
        for name, facts in content.get(FILES, {}).items():
            found[name] = facts["sha256"]
        if CHECKSUM in content:
            found[str(path.relative_to(folder))] = content[CHECKSUM]
    return found


def inputs_now(
    record: Facts, folder: Path, root: Path | None
) -> Iterator[tuple[str, str, str | None]]:
    """Yield each input in the record of ``folder``: its name, its SHA-256 as it was read, and that
    of now; None for what is gone.

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


def why_not_current(study: Path) -> str:
    """Why the metrics, tables, figures and report of a study are not all there, intact and made
    from each other; empty if they are.

    The results of runs above them are not read.
    """
    for stage, above in MADE_FROM.items():
        records = list(Path(study, HIDDEN).glob(f"{stage}-*.json"))
        if not records:
            is_copy = not (study / HIDDEN).is_dir()
            records_of = f"their records are missing (folder {HIDDEN}; copy it, too)"
            return records_of if is_copy else f"the stage '{stage}' is missing"
        if len(records) > 1:
            return f"the stage '{stage}' has records of several versions"
        try:
            record = Record.read(study, f"{HIDDEN}/{records[0].name}")
        except (CalgridError, OSError) as error:
            return str(error)
        if damaged := record.damaged():
            return f"damaged or missing: {', '.join(damaged)}"
        made_from = record.content.get(INPUTS, {}).get("results", {}).get(os.curdir, {})
        if above and made_from != listing(study, above):
            return f"the stage '{stage}' was made from other files of the study than are there now"
    return ""
