"""The report of a study, with lists of the figures of the papers that it names."""

from pathlib import Path

from calgrid.configuration.manifest import Manifest
from calgrid.papers.lists import figure_lists
from calgrid.reporting import html
from calgrid.reporting.study import StudyData
from calgrid.storage.kinds import Call, write_part


def write_report(study: Path, manifest: Manifest, out: Path) -> None:
    """Write the report of a study: see :func:`calgrid.reporting.html.write_report`."""
    data = StudyData(study, manifest)
    html.write_report(data, out, figure_lists)


def run(call: Call) -> None:
    """Write the report of a study."""
    write_part(call, "report.html", write_report)
