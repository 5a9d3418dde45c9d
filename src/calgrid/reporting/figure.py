"""Figures of the report: rows are collected from the study once, then drawn and described."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
from matplotlib.figure import Figure

from calgrid.reporting import captions
from calgrid.reporting.study import Group, StudyData


@dataclass(frozen=True)
class Frame:
    """Data of a figure.

    Attributes
    ----------
    study, group : the source of the numbers.
    rows : all numbers that are drawn, as :attr:`FigureKind.collect` returned them.
    """

    study: StudyData
    group: Group
    rows: pd.DataFrame

    @property
    def label(self) -> str:
        """Name of the group in captions."""
        return self.study.label(self.group)

    @property
    def condition(self) -> str:
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
        return [name for name in self.study.methods if (self.rows["method"] == name).any()]

    def calibrators(self) -> list[str]:
        """Calibrators of the rows in the order of the study."""
        return [name for name in self.study.calibrators if (self.rows["calibrator"] == name).any()]


Collect = Callable[[StudyData, Group], pd.DataFrame]
Draw = Callable[[Frame], Figure]
Caption = Callable[[Frame], str]
#: the three functions of a :class:`FigureKind`
Template = tuple[Collect, Draw, Caption]


@dataclass(frozen=True)
class FigureKind:
    """A figure of the report.

    Attributes
    ----------
    id : its files are ``{id}_{dataset}_{backbone}.png``, or ``{id}.png`` for the whole study.
    title, category : as shown.
    collect : returns the rows of the figure; no rows, no figure.
    draw : draws them.
    caption : states the content, the number of seeds, the split and the interval.
    each : the figure is drawn for each group (``checkpoint``), for each protocol, data set and backbone
        (``condition``), for each protocol, data set and checkpoint (``dataset``) or once (``study``). Where this
        comprises several groups, the functions are called with the first.
    """

    id: str
    title: str
    category: str
    collect: Collect
    draw: Draw
    caption: Caption
    each: Literal["checkpoint", "condition", "dataset", "study"] = "checkpoint"

    def groups(self, data: StudyData) -> Sequence[Group]:
        """Groups that the figure is drawn for."""
        if self.each == "dataset":
            return list({group._replace(backbone=""): group for group in reversed(data.groups)}.values())[::-1]
        return {"checkpoint": data.groups, "condition": data.conditions, "study": data.groups[:1]}[self.each]

    def entry(self, frame: Frame) -> dict[str, Any]:
        """Entry of the index; ``figure`` is the id of the kind, ``place`` the part of the study that is shown."""
        name, label = self._name(frame.study, frame.group)
        seeing = captions.sees_validation(frame.study, self._alike(frame.study, frame.group))
        place = {} if self.each == "study" else frame.group._asdict()
        for dropped in {"dataset": ("backbone",), "condition": ("checkpoint",)}.get(self.each, ()):
            place.pop(dropped)
        return {
            "id": name,
            "file": f"{name}.png",
            "title": f"{self.title}: {label}" if label else self.title,
            "caption": f"{self.caption(frame)} {seeing}".strip(),
            "category": self.category,
            "figure": self.id,
            "place": place,
        }

    def _name(self, data: StudyData, group: Group) -> tuple[str, str]:
        """Name of the figure's file without suffix, and the end of its title."""
        if self.each == "study":
            return self.id, ""
        checkpoint, backbone = self.each != "condition", self.each != "dataset"
        slug, label = data.slug(group, checkpoint, backbone), data.label(group, checkpoint, backbone)
        return f"{self.id}_{slug}", label

    def _alike(self, data: StudyData, group: Group) -> Sequence[Group]:
        """Groups whose numbers the figure shows."""
        if self.each == "dataset":
            return [other for other in data.groups if other._replace(backbone=group.backbone) == group]
        return data.groups if self.each == "study" else [group]
