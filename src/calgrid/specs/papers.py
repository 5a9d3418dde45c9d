"""Tables, claims and figures of a paper, as in the manifest of a study; ``configuration.papers``
reads them.
"""

from typing import Any, TypedDict

#: coordinates of a cell: dataset, backbone, method, metric, calibrator, shift, ...
CellKey = dict[str, Any]


class Entry(TypedDict):
    """A row or column: the parts of its heading, and the coordinates that its cells share."""

    heading: list[str]
    where: CellKey


class TableSpec(TypedDict):
    """A published table with all defaults and expanded blocks of rows and columns.

    ``id`` is ``{paper}_table{N}`` and ``table`` its number, or ``{paper}_figure{N}`` and
    ``figure{N}``; ``row_axes`` are the axes of the parts of a row's heading.
    See also :class:`calgrid.configuration.paper_model.PaperTable`.
    """

    id: str
    table: str
    title: str
    best_over: list[str]
    digits: int
    spread: str
    note: str
    scale: float | None
    means: list[dict[str, Any]]
    ranks: dict[str, str]
    where: CellKey
    row_axes: list[str]
    rows: list[Entry]
    columns: list[Entry]


class ClaimSetting(TypedDict):
    """A cell and the cells that it is claimed to be better than, as indices row by row."""

    cell: int
    rivals: list[int]


class Claim(TypedDict):
    """A claim about the table with id ``table``: in ``at_least`` settings the cell is better by
    ``margin``.
    """

    id: str
    text: str
    table: str
    at_least: int
    margin: float
    settings: list[ClaimSetting]


class PaperFigure(TypedDict):
    """A published figure; ``figure`` is the identifier of our version, empty if there is none (see
    ``note``).
    """

    number: str
    shows: str
    figure: str
    needs: str
    note: str
    dataset: list[str]
    backbone: list[str]
    method: list[str]
    calibrator: list[str]
    shift: list[str]


class Paper(TypedDict):
    """Tables, claims and figures of a paper; ``published`` is the path of the file with its
    numbers.
    """

    name: str
    published: str
    tables: list[TableSpec]
    claims: list[Claim]
    figures: list[PaperFigure]
