"""A paper's table as CSV with fractions, and as Markdown, LaTeX and HTML with the same cells and
marks.
"""

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
from markupsafe import escape

from calgrid.configuration.manifest import TableSpec
from calgrid.reporting import text
from calgrid.reporting.published.cells import FITS
from calgrid.reporting.published.marks import BEST, COORDINATES, SECOND, scale
from calgrid.reporting.published.means import SECTION
from calgrid.reporting.table import Table

CATEGORY = "Published numbers"
AXES = {
    "dataset": "Data set",
    "backbone": "Backbone",
    "method": "Method",
    "stage": "Second stage",
    "calibrator": "Calibrator",
    "fit_on": "Fitted on",
    "shift": "Shift",
    "severity": "Severity",
    "metric": "Metric",
}
COLUMNS = [
    *SECTION,
    "row",
    "column",
    *COORDINATES,
    "ours",
    "std",
    "ci_low",
    "ci_high",
    "n_seeds",
    "n_ranked",
]
COLUMNS += ["published", "published_std", "suspect", "difference", "ours_mark", "published_mark"]


HTML = text.Markup(
    lambda words: str(escape(words)), "<b>{}</b>", "<u>{}</u>", "<small>{}</small>", "|"
)


class PaperTable:
    """A table of a paper in all formats.

    Parameters
    ----------
    spec : the table as declared (see :func:`calgrid.configuration.papers.paper`).
    frame : its cells, see :func:`calgrid.reporting.published.cells.filled_tables`.
    level : nominal coverage of the intervals.
    """

    def __init__(self, spec: TableSpec, frame: pd.DataFrame, level: float) -> None:
        self.spec, self.cells, self.level = spec, frame, level
        self.id: str = spec["id"]

    @property
    def frame(self) -> pd.DataFrame:
        """All numbers, unrounded: fractions, nats, seconds and ranks."""
        return self.cells[COLUMNS]

    @property
    def files(self) -> dict[str, str]:
        """Suffix -> content of the table's files."""
        return {
            "csv": text.csv(self.frame),
            "md": self.markdown,
            "tex": self.latex,
            "html": self.html,
        }

    @property
    def entry(self) -> dict[str, Any]:
        """Entry of the index, with the HTML for the report."""
        plain = Table(self.id, self.spec["title"], CATEGORY, self.caption, self.frame)
        return {**plain.entry, "page": self.html}

    @property
    def caption(self) -> str:
        """Meaning of the cells."""
        over = text.listed([AXES[axis].lower() for axis in self.spec["best_over"]] or ["nothing"])
        ranked = (
            "'of n' after a rank: n rows have all numbers." if self.cells["n_ranked"].any() else ""
        )
        doubted = (
            "?: suspect published number, which is not marked."
            if self.cells["suspect"].any()
            else ""
        )
        sentences = [
            "Ours | published (difference, ours minus published).",
            self._small(),
            f"Bold: best over {over}; underlined: second of three or more; by the digits shown, "
            f"separately for ours "
            "and published.",
            ranked,
            doubted,
            self.spec["note"],
            "Papers differ in splits, epochs and code. Read a calibration error together with "
            "accuracy, NLL and Brier "
            "score, which are in the other tables.",
        ]
        return " ".join(filter(None, sentences))

    def _small(self) -> str:
        """Meaning of the small text."""
        single = "for n=1, a bootstrap interval over test images, if available."
        if self.spec["spread"] != FITS:
            return f"Small: {100 * self.level:g} % interval of the mean over n seeds; {single}"
        return (
            "Small: ± standard deviation over n seeds of the calibrator, also of published numbers "
            "if known. It covers "
            "the randomness of the fit on one network and one test set and, for calibrators fitted "
            "on a part of each "
            "corruption, of this part. It does not cover the choice of test images, the choice of "
            "images to fit on, or "
            f"retraining. {single.capitalize()}"
        )

    @property
    def markdown(self) -> str:
        """The table in Markdown."""
        return text.markdown_page(self.spec["title"], self.caption, self._sections(text.MARKDOWN))

    @property
    def latex(self) -> str:
        """The table in LaTeX."""
        names = len(self.spec["row_axes"])
        sections = self._sections(text.LATEX)
        letters = "l" * names + "r" * len(self.spec["columns"])
        return text.latex_page(
            self.spec["title"], [(heading, letters, rows) for heading, rows in sections]
        )

    @property
    def html(self) -> str:
        """The table in HTML, as a fragment of a page."""
        parts = []
        names = len(self.spec["row_axes"])
        opened = (
            " open" if self.cells["ours"].notna().any() else ""
        )  # published numbers alone are collapsed
        for heading, rows in self._sections(HTML):
            head = "".join(f'<th scope="col">{cell}</th>' for cell in rows[0])
            body = [
                "".join(f'<th scope="row">{cell}</th>' for cell in row[:names])
                + "".join(f'<td class="number">{cell}</td>' for cell in row[names:])
                for row in rows[1:]
            ]
            parts.append(
                f'<details class="group"{opened}>\n<summary><h4>{HTML.escape(heading)}</h4></summary>\n'
                f'<div class="scroll" tabindex="0" role="region" aria-label="{HTML.escape(self.spec["title"])}">\n'
                f'<table class="plain">\n<thead><tr>{head}</tr></thead>\n<tbody>\n'
                + "\n".join(f"<tr>{row}</tr>" for row in body)
                + "\n</tbody>\n</table>\n</div>\n</details>\n"
            )
        return "".join(parts)

    def _sections(self, markup: text.Markup) -> list[tuple[str, list[list[str]]]]:
        """Heading and lines of each protocol and checkpoint; the first line is the header."""
        return [
            (_heading(*keys), [self._header(markup), *self._lines(part, markup)])
            for keys, part in self.cells.groupby(list(SECTION), sort=False)
        ]

    def _header(self, markup: text.Markup) -> list[str]:
        names = [AXES[axis] for axis in self.spec["row_axes"]]
        columns = [
            " ".join(dict.fromkeys(map(text.name, filter(None, column["heading"]))))
            for column in self.spec["columns"]
        ]
        return [markup.escape(name) for name in (*names, *columns)]

    def _lines(self, part: pd.DataFrame, markup: text.Markup) -> list[list[str]]:
        cells = part.sort_values(["row", "column"]).to_dict("records")
        width = len(self.spec["columns"])
        lines: list[list[str]] = []
        for number, row in enumerate(self.spec["rows"]):
            own = cells[number * width : (number + 1) * width]
            lines.append(
                [*map(markup.escape, row["heading"]), *(self._cell(cell, markup) for cell in own)]
            )
        return lines

    def _cell(self, cell: Mapping[str, Any], markup: text.Markup) -> str:
        ours = _marked(markup, self._number(cell, "ours"), cell["ours_mark"])
        beside = self._beside(cell)
        parts = [ours, *([markup.small.format(markup.escape(beside))] if beside else [])]
        if not math.isnan(cell["published"]):
            doubt = markup.escape("?") if cell["suspect"] else ""
            parts += [
                markup.bar,
                _marked(markup, self._number(cell, "published"), cell["published_mark"]) + doubt,
            ]
            if self.spec["spread"] == FITS and not math.isnan(cell["published_std"]):
                parts.append(
                    markup.small.format(markup.escape(f"± {self._number(cell, 'published_std')}"))
                )
        if not math.isnan(cell["difference"]):
            parts.append(markup.escape(f"({self._number(cell, 'difference', signed=True)})"))
        return " ".join(parts)

    def _beside(self, cell: Mapping[str, Any]) -> str:
        """Interval and number of seeds, or the number of ranked rows if some are missing."""
        if not math.isnan(cell["n_ranked"]):
            return f"of {cell['n_ranked']:.0f}" if cell["n_ranked"] < len(self.spec["rows"]) else ""
        if math.isnan(cell["n_seeds"]):
            return ""
        if self.spec["spread"] == FITS and not math.isnan(cell["std"]):
            return f"± {self._number(cell, 'std')} n={cell['n_seeds']:.0f}"
        ends = [self._number(cell, end) for end in ("ci_low", "ci_high")]
        interval = "" if math.isnan(cell["ci_low"]) else f"[{', '.join(ends)}] "
        return f"{interval}n={cell['n_seeds']:.0f}"

    def _number(self, cell: Mapping[str, Any], name: str, signed: bool = False) -> str:
        return text.decimal(
            scale(self.spec, cell["metric"]) * cell[name], self.spec["digits"], signed
        )


def _marked(markup: text.Markup, words: str, mark: str) -> str:
    """Text with the mark of best or second."""
    return {BEST: markup.bold, SECOND: markup.underlined}.get(mark, "{}").format(
        markup.escape(words)
    )


def _heading(protocol: str, checkpoint: str) -> str:
    return (
        f"Protocol {protocol}, {checkpoint} checkpoint"
        if protocol
        else "Published numbers; no run of ours is here"
    )
