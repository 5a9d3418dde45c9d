"""The report of a study, with lists of the figures of its papers."""

from functools import partial
from pathlib import Path

from calgrid.papers.lists import figure_lists
from calgrid.report import html
from calgrid.report.study import StudyData
from calgrid.storage.manifest import Manifest
from calgrid.storage.publish import write_part


def write_report(study: Path, manifest: Manifest, out: Path) -> None:
    """Write the report of a study: see :func:`calgrid.report.html.write_report`."""
    data = StudyData(study, manifest)
    html.write_report(data, out, figure_lists)


run = partial(write_part, name="report.html", write=write_report)
