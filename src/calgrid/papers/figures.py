"""Figures of a study, with those after papers, and lists of the papers' own figures."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from calgrid.papers.fedlas.figures import FIGURES as FEDLAS
from calgrid.papers.lists import figure_lists
from calgrid.papers.maccal.figures import FIGURES as MACCAL
from calgrid.papers.smart.figures import FIGURES as SMART
from calgrid.report import figures
from calgrid.report.study import StudyData
from calgrid.storage.manifest import Manifest
from calgrid.storage.publish import write_part

FIGURES = (*figures.FIGURES, *FEDLAS, *MACCAL, *SMART)


def write_figures(
    study: Path, manifest: Manifest, out: Path, formats: Sequence[str] = tuple(figures.FORMATS)
) -> list[Path]:
    """Draw all figures for which there are data, and write ``index.json``.

    For each paper that the study names, ``{paper}_figures.csv`` and ``.md`` list its printed
    figures and ours. Returns the paths of the files written, the index last; see
    :func:`calgrid.report.figures.write_figures`.
    """
    data = StudyData(study, manifest)
    *paths, index = figures.write_figures(data, out, FIGURES, formats)
    for table in figure_lists(data, out):
        paths += table.write(out)
    return [*paths, index]


run = partial(write_part, name="figures", write=write_figures)
