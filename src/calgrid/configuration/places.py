"""Coordinates of the cells of a paper's table."""

from collections.abc import Mapping
from typing import Any

Place = dict[str, Any]


def cell_place(table: Mapping[str, Any], row: Mapping[str, Any], column: Mapping[str, Any]) -> Place:
    """All coordinates of a cell of a table (see :func:`calgrid.configuration.tables.paper`)."""
    return {**table["where"], **row["where"], **column["where"]}


def matches(place: Mapping[str, Any], where: Mapping[str, Any]) -> bool:
    """Has a cell the coordinates of ``where``?"""
    return all(place[axis] == value for axis, value in where.items())
