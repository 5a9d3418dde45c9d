"""Files of a paper, ``config/papers/{paper}``: every key with its type, default and meaning."""

import functools
import re
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BeforeValidator, Field, PlainValidator

from calgrid.components.validation import Distinct, InvalidOptionError, Model, OneOrMore, shown
from calgrid.configuration.model import Text

Identifier = Annotated[str, Field(pattern="^[a-z][a-z0-9_]*$")]
Severity = Annotated[int, Field(ge=0)]
Axis = Literal[
    "dataset", "backbone", "method", "stage", "calibrator", "fit_on", "shift", "severity", "metric"
]
Axes = Annotated[list[Axis], Distinct]

#: default of a coordinate, which is never read: only those that a file names are
UNNAMED: Any = None
Values = TypeVar("Values")


class Coordinates(Model, Generic[Values]):
    """Some coordinates of cells: one value each, or one or more."""

    dataset: Values = Field(UNNAMED, description="Data set.")
    backbone: Values = Field(UNNAMED, description="Network.")
    method: Values = Field(UNNAMED, description="Training-time method.")
    stage: Values = Field(
        UNNAMED, description="Second stage on top of the method; none without (the default)."
    )
    calibrator: Values = Field(UNNAMED, description="Calibrator; none without (the default).")
    fit_on: Values = Field(
        UNNAMED,
        description="Data that the calibrators are fitted on - val (the default), same_shift or "
        "redrawn.",
    )
    shift: Values = Field(
        UNNAMED,
        description="Shift or ood/ and a data set; mean over the corruptions of a severity; empty "
        "(the default) for the clean test set.",
    )
    severity: Severity = Field(
        UNNAMED, description="Severity of the shift; 0 (the default) without."
    )
    metric: Values = Field(
        UNNAMED, description="Metric, or mean_rank_..., train_seconds, runtime_seconds."
    )


Place = Coordinates[str]
#: each combination of its values is a place
Block = Coordinates[OneOrMore]


def _named(model: type[Coordinates[Any]], value: Any) -> dict[str, Any]:
    """Return the coordinates that a file names, in its order: the first varies slowest."""
    if value == {}:
        raise InvalidOptionError(" must not be empty")
    coordinates = model.model_validate(value)
    return {axis: getattr(coordinates, axis) for axis in value}


def _lists(value: Any) -> dict[str, list[Any]]:
    """Return the coordinates of a block, each as a list."""
    block = _named(Block, value)
    return {axis: each if isinstance(each, list) else [each] for axis, each in block.items()}


def _table_name(value: Any) -> str:
    number = isinstance(value, int) and not isinstance(value, bool) and value > 0
    if not number and not (isinstance(value, str) and re.fullmatch("figure[1-9][0-9]*", value)):
        raise InvalidOptionError(f" must be the number of a table, or figure5, got {shown(value)}")
    return str(value)


#: the coordinates that a file names, of one place or of a block
PlaceCoordinates = Annotated[dict[str, Any], PlainValidator(functools.partial(_named, Place))]
BlockCoordinates = Annotated[dict[str, list[Any]], PlainValidator(_lists)]
Blocks = Annotated[list[BlockCoordinates], Field(min_length=1)]


class Mean(Model):
    """One kind of mean; entries that match the same cell apply together."""

    where: PlaceCoordinates = Field(description="Cells that are means.")
    over: BlockCoordinates = Field(description="Values to average over - the product of the lists.")


class PaperTable(Model):
    """A file ``tables/table{number}.yaml``: the cells of a printed table and their order, which
    cells compete for best, and how our numbers fill cells that are means.

    A cell is a row and a column together with ``where``.
    """

    title: Text = Field(description="Paper, number and subject of the table, paraphrased.")
    note: Text = Field(
        "",
        description="Note for readers of the table, shown below it - what holds for the runs of "
        "any study.",
    )
    study_note: Text = Field(
        "",
        description="Note on the runs of the paper's study.yaml, shown only for runs whose "
        "protocols and definitions are those of that file.",
    )
    where: PlaceCoordinates = Field({}, description="Coordinates of all cells.")
    rows: Blocks = Field(
        description="Blocks of rows, one below the other; a block is the product of its lists, the "
        "first varying slowest."
    )
    columns: Blocks = Field(description="Blocks of columns, as those of rows.")
    row_names: Axes = Field(
        [],
        min_length=1,
        description="Coordinates that name the rows; by default all coordinates of the rows.",
    )
    means: list[Mean] = Field(
        [],
        min_length=1,
        description="Cells in which our number is a mean over other cells, all of which must "
        "exist, or has another name. An entry that matches one of these cells, but not the mean, "
        "applies to that cell.",
    )
    ranks: dict[str, str] = Field(
        {},
        min_length=1,
        description="Metric of a rank -> the ranked metric - the rank among the rows, averaged "
        "over the columns with that metric; ties share the smaller rank.",
    )
    best_over: Axes = Field(
        description="Coordinates over which the best (bold) and second (underlined) cell are "
        "chosen; with an empty list none is."
    )
    spread: Literal["seeds", "calibrator_seeds"] = Field(
        "seeds",
        description="What the spread of a number is over - seeds of training, or calibrator_seeds "
        "if a paper fits calibrators several times to one network. Claims about such a table are "
        "about these networks, not about other trainings.",
    )
    digits: int = Field(
        2, ge=0, le=6, description="Decimals shown; the best cell is determined by these digits."
    )
    scale: float | None = Field(
        None, gt=0, description="Factor of the numbers shown; by default 100 for fractions, else 1."
    )
    names: dict[str, str] = Field(
        {}, description="Replacements for values of coordinates in the headings."
    )


class PaperClaim(Model):
    """A claim about cells of a table, the comparison units: those that match ``where`` and
    ``better``. Each is compared with its rivals by paired tests over seeds.
    """

    id: Identifier = Field(description="Name of the claim.")
    text: Text = Field(description="The claim, paraphrased.")
    table: Annotated[str, BeforeValidator(_table_name)] = Field(
        description="Number of the table of its cells, or figure and number for the numbers behind "
        "a figure."
    )
    where: PlaceCoordinates = Field({}, description="Further coordinates of these cells.")
    better: BlockCoordinates = Field(
        description="Coordinates of the cells claimed to be better; each combination gives "
        "separate units. Ranks, and means over data sets (`average`), are units only if `where` "
        "names them."
    )
    than: BlockCoordinates | None = Field(
        None,
        description="Coordinates in which the rivals differ, all of which must exist; by default "
        "all cells that compete for best in the table.",
    )
    at_least: int | None = Field(
        None, ge=1, description="Number of units in which it must hold; by default all."
    )
    margin: float = Field(
        0.0,
        gt=0,
        description="With this key the claim is only that the cell is not worse than its rival by "
        "this margin, in the unit of metrics.parquet (0.01 is one percentage point).",
    )


class UncheckedClaim(Model):
    """A claim that no comparison of cells can decide."""

    text: Text = Field(description="The claim, paraphrased.")
    reason: Text = Field(description="Why it has no verdict, and where our results on it are.")


class PaperClaims(Model):
    """A file ``claims.yaml``."""

    claims: list[PaperClaim] = Field(
        min_length=1, description="The claims, in the order of the report."
    )
    unchecked: list[UncheckedClaim] = Field(
        [], description="Claims that no comparison of cells can decide, each with the reason."
    )


class DrawnModule(Model):
    """A module with the functions 'collect', 'draw' and 'caption'."""

    id: Identifier = Field(description="Name of the module, and of the files of the figure.")
    title: Text = Field(description="Title in the report.")
    category: Text = Field(description="Section of the report.")
    each: Literal["checkpoint", "setting", "dataset", "study"] = Field(
        "checkpoint",
        description="The figure is drawn for each checkpoint, each setting, each data set, or "
        "once for the study.",
    )


class PrintedFigure(Model):
    """One printed figure, or a part of one."""

    number: Text = Field(description="Number in the paper, with its part: 2b.")
    shows: Text = Field(description="Content of the figure, paraphrased.")
    figure: Identifier = Field(
        "", description="The corresponding figure of ours; if there is none, the note explains why."
    )
    dataset: OneOrMore = Field([], description="Data sets of its runs.")
    backbone: OneOrMore = Field([], description="Networks of its runs.")
    method: OneOrMore = Field([], description="Methods that it needs.")
    calibrator: OneOrMore = Field([], description="Calibrators that it needs.")
    shift: OneOrMore = Field([], description="Shift families that it needs: cifar10_c.")
    needs: Text = Field(
        "",
        description="Data that it needs in addition to logits and histories, for the message if "
        "they are missing.",
    )
    note: Text = Field("", description="Differences between ours and the printed figure.")


class DiagnosticModule(Model):
    """A module with FILES and the functions 'calibrators' and 'measure'."""

    module: Identifier = Field(description="Name of the module.")
    files: list[Text] = Field(
        min_length=1, description="Files that it makes, in the folder of a study."
    )


class PaperFigures(Model):
    """A file ``figures.yaml``: the modules of the paper's folder, and its printed figures.

    The report lists all printed figures, with the files that were drawn or the missing data.
    """

    drawn: list[DrawnModule] = Field(
        [], description="Modules of this folder that draw a figure of every study with its data."
    )
    tabulated: Annotated[list[Identifier], Distinct] = Field(
        [], description="Modules of this folder that build a table of every study with its data."
    )
    diagnostics: list[DiagnosticModule] = Field(
        [],
        description="Modules of this folder that measure fitted calibrators of every run "
        "(calgrid.jobs.diagnostics).",
    )
    figures: list[PrintedFigure] = Field(
        min_length=1, description="The figures in the order of the paper."
    )
