"""``calgrid export``: a saved calibrator for other runtimes, the numbers of a study as CSV."""

import zipfile
from pathlib import Path

from calgrid.cli.study_of import finished_study, require_current
from calgrid.cli.terminal import Arguments, write
from calgrid.errors import StateError
from calgrid.optional import require
from calgrid.storage.atomic import new_folder, require_writable


def export(options: Arguments) -> None:
    """Write a saved calibrator as ONNX, or the numbers of a study as CSV."""
    if options.onnx is None:
        _study(options.source, options.csv)
        return
    from calgrid.calibrators import load_calibrator

    calibrator = load_calibrator(options.source)
    require("onnx")
    require_writable(options.onnx)
    from calgrid.integrations.onnx import write_onnx

    write_onnx(calibrator, options.onnx)
    write(
        f"{options.onnx}: {calibrator!r}; {calibrator.kind} to calibrated probabilities, checked "
        "with ONNX Runtime\n"
    )


def _study(source: Path, folder: Path) -> None:
    """Write each Parquet file of a study as CSV, except resamples, whose cells are lists.

    Numbers have all digits; missing ones are empty. An existing folder is never changed.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import csv

    from calgrid.report.results import opened
    from calgrid.storage.schema import STUDY_FILES
    from calgrid.storage.tables import with_words

    # the files of an archive exist as long as the study does
    study = opened(source if zipfile.is_zipfile(source) else finished_study(source))
    require_current(study.folder, source)
    if folder.exists():
        raise StateError(f"{folder} exists already; give the name of a new folder.")
    tables: dict[str, pa.Table] = {}
    for name in STUDY_FILES:
        if not name.endswith(".parquet"):
            continue
        table = with_words(pq.read_table(study.data.verified(name)), encoded=False)
        if not any(pa.types.is_list(column.type) for column in table.schema):
            tables[Path(name).with_suffix(".csv").name] = table
    with new_folder(folder) as temporary:
        for name, table in tables.items():
            csv.write_csv(table, temporary / name)
    write(f"{folder}: {len(tables)} tables\n")
