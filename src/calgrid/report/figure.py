"""Figures of the report: rows are collected from the study once, then drawn and described."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
from matplotlib.figure import Figure

from calgrid.report import captions
from calgrid.report.index import FigureEntry
from calgrid.report.plotting import style
from calgrid.report.study import Group, StudyData, among
from calgrid.storage.schema import SETTING


@dataclass(frozen=True)
class FigureData:
    """Data of a figure.

    Attributes
    ----------
    study, group : the source of the numbers.
    rows : all numbers that are drawn, as ``collect`` of its :class:`FigureKind` returned them.
    width : of the figure in inches, if its content has no width of its own.
    """

    study: StudyData
    group: Group
    rows: pd.DataFrame
    width: float = style.WIDTH

    @property
    def label(self) -> str:
        """Name of the group in captions."""
        return self.study.label(self.group)

    @property
    def setting(self) -> str:
        """Name of the group without its checkpoint."""
        return self.study.label(self.group, checkpoint=False)

    @property
    def images(self) -> str:
        """Size of the clean test split: ``1,200 images``."""
        return f"{self.study.test_samples(self.group):,} images"

    def parts(self, column: str) -> dict[str, pd.DataFrame]:
        """Rows by their values in a column, in order of appearance."""
        return {str(value): rows for value, rows in self.rows.groupby(column, sort=False)}

    def methods(self) -> list[str]:
        """Methods of the rows in the order of the study."""
        return among(self.study.methods, self.rows["method"])

    def calibrators(self) -> list[str]:
        """Calibrators of the rows in the order of the study."""
        return among(self.study.calibrators, self.rows["calibrator"])


#: ``each`` of a :class:`FigureKind` -> fields that two groups of one figure share
SHARED: dict[str, tuple[str, ...]] = {
    "checkpoint": Group._fields,
    "setting": SETTING,
    "dataset": ("protocol", "dataset", "checkpoint"),
    "study": (),
}


@dataclass(frozen=True)
class FigureKind:
    """A figure of the report.

    Attributes
    ----------
    id : its files are ``{id}_{dataset}_{backbone}.png``, or ``{id}.png`` for the whole study.
    title, category : as shown.
    collect : rows of the figure, from the study and the first of the groups that it comprises; no
        rows, no figure.
    draw : draws them.
    caption : states the content, the number of seeds, the split and the interval.
    each : the figure is drawn for each group (``checkpoint``), for each protocol, data set and
        backbone (``setting``), for each protocol, data set and checkpoint (``dataset``) or once
        (``study``).
    column : whether its PDF has the width of one column of a paper.
    photographs : whether it shows images of the data set.
    """

    id: str
    title: str
    category: str
    collect: Callable[[StudyData, Group], pd.DataFrame]
    draw: Callable[[FigureData], Figure]
    caption: Callable[[FigureData], str]
    each: Literal["checkpoint", "setting", "dataset", "study"] = "checkpoint"
    column: bool = False
    photographs: bool = False

    def _place(self, group: Group) -> dict[str, str]:
        return {name: getattr(group, name) for name in SHARED[self.each]}

    def groups(self, data: StudyData) -> list[Group]:
        """Groups that the figure is drawn for."""
        return data.first_groups(SHARED[self.each])

    def entry(self, frame: FigureData) -> FigureEntry:
        """Entry of the index."""
        data, group, place = frame.study, frame.group, self._place(frame.group)
        name, title = self.id, self.title
        if place:
            parts = "checkpoint" in place, "backbone" in place
            name = f"{name}_{data.slug(group, *parts)}"
            title = f"{title}: {data.label(group, *parts)}"
        groups = [each for each in data.groups if self._place(each) == place]
        seeing = captions.sees_validation(data, groups)
        return {
            "id": name,
            "file": f"{name}.png",
            "title": data.named(title),
            "caption": data.named(f"{self.caption(frame)} {seeing}".strip()),
            "category": self.category,
            "figure": self.id,
            "place": place,
            "photographs": self.photographs,
        }


def functions(of: Any) -> tuple[Any, Any, Any]:
    """The functions ``collect``, ``draw`` and ``caption`` of a module or an object."""
    return of.collect, of.draw, of.caption
