"""Read the results of the default study back and check that they are complete and plausible.

Usage: ``python .ci/check_results.py results/digits``, from the root of the repository.
"""

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from calgrid.metrics.table import OOD_NETWORK
from calgrid.storage.schema import RUN_KEY

HOME = Path(__file__).parents[1]
COLUMNS = [
    "protocol",
    "dataset",
    "backbone",
    "method",
    "seed",
    "checkpoint",
    "calibrator",
    "fit_on",
    "fit_seed",
    "split",
    "shift",
    "severity",
    "metric",
    "value",
    "ci_low",
    "ci_high",
    "n_samples",
    "fingerprint",
    "bins",
]
RUN = list(RUN_KEY)
CELL = ["split", "shift", "severity", "metric"]
#: attributes that make a browser fetch something
FETCHING = {"src", "srcset", "poster", "data", "background"}
FETCHING_LINKS = {"link", "image", "use"}


class Checks:
    """Collects what is wrong; one line a check on standard output."""

    def __init__(self) -> None:
        self.failed = 0

    def expect(self, holds: bool, what: str, found: object = "") -> None:
        """Report one check; ``found`` is shown if it does not hold."""
        self.failed += not holds
        sys.stdout.write(
            f"{'ok    ' if holds else 'FAILED'} {what}{'' if holds else f': {found}'}\n"
        )


def check_grid(checks: Checks, metrics: pd.DataFrame, grid: dict) -> None:
    """Everything that the configuration names is there, once, with the same rows as everything
    else.
    """
    checks.expect(
        list(metrics.columns) == COLUMNS,
        "metrics.parquet has the documented columns",
        list(metrics.columns),
    )
    for column, key in {"method": "methods", "seed": "seeds", "calibrator": "calibrators"}.items():
        found = set(metrics[column].unique())
        checks.expect(
            found == set(grid[key]),
            f"{len(grid[key])} {key}",
            sorted(found ^ set(grid[key]), key=str),
        )
    of_network = metrics["metric"].isin(OOD_NETWORK)
    of_fits = set(metrics.loc[of_network, "calibrator"])
    checks.expect(of_fits == {"none"}, "scores of networks belong to no calibrator", of_fits)
    scored = metrics[(metrics["split"] != "val") & ~of_network]
    cells = scored.groupby([*RUN, "calibrator"])[CELL].apply(
        lambda rows: frozenset(rows.itertuples(index=False))
    )
    wanted = np.prod(
        [len(grid[key]) for key in ("datasets", "backbones", "methods", "seeds", "calibrators")]
    )
    checks.expect(len(cells) == wanted, f"{wanted} combinations of run and calibrator", len(cells))
    checks.expect(cells.nunique() == 1, "all combinations have the same rows", cells.nunique())
    checks.expect(len(scored) == wanted * len(cells.iloc[0]), "no row occurs twice", len(scored))
    validation = metrics[metrics["split"] == "val"]
    fitted_on = set(validation["calibrator"])
    checks.expect(fitted_on == {"none"}, "rows that fit calibrators score none of them", fitted_on)
    shifts = set(scored.loc[scored["split"] == "ood", "shift"])
    named = {shift for shift in grid["shifts"] if shift.startswith("ood/")}
    checks.expect(shifts == named, f"out-of-distribution sets {sorted(named)}", shifts)
    others = set(grid["shifts"]) - named
    checks.expect(
        bool(others) == bool((scored["split"] == "shift").any()), f"shift families {sorted(others)}"
    )


def check_values(checks: Checks, metrics: pd.DataFrame) -> None:
    """Every number is there and means what its name says."""
    missing = metrics[metrics["value"].isna()]
    checks.expect(
        missing.empty, f"{len(metrics)} values, none missing", missing.head().to_dict("records")
    )
    good = metrics["fingerprint"].astype(str).str.fullmatch(r"[0-9a-f]{16}")
    checks.expect(
        bool(good.all()), "every row has a fingerprint", metrics.loc[~good, "fingerprint"].unique()
    )
    runs = metrics.groupby(RUN)["fingerprint"].nunique()
    checks.expect(bool((runs == 1).all()), "one fingerprint a run", runs[runs != 1].to_dict())
    wide = metrics.pivot_table(
        index=[*RUN, "checkpoint", "calibrator", "fit_seed", *CELL[:-1]],
        columns="metric",
        values="value",
    )
    gap = (wide["o_ece"] + wide["u_ece"] - wide["ece"]).abs().max()
    checks.expect(gap < 1e-9, "overconfident and underconfident part add up to the ECE", gap)


def check_science(checks: Checks, metrics: pd.DataFrame) -> None:
    """Plain cross-entropy is accurate and overconfident, and temperature scaling mends it."""
    test = metrics[(metrics["split"] == "test") & (metrics["method"] == "ce")]
    wide = test.pivot_table(index="seed", columns=["calibrator", "metric"], values="value")
    accuracy = wide["none", "accuracy"]
    checks.expect(
        bool(accuracy.between(0.85, 0.98).all()),
        "accuracy of ce between 85 and 98 %",
        accuracy.to_dict(),
    )
    excess = wide["none", "ece"] - wide["none", "ece_null"]
    checks.expect(
        bool((excess >= 0.03).all()),
        "ECE of ce 3 points above its null for each seed",
        excess.to_dict(),
    )
    gain = wide["none", "nll"] - wide["ts", "nll"]
    checks.expect(
        bool((gain > 0).all()),
        "temperature scaling lowers the NLL of ce for each seed",
        gain.to_dict(),
    )


class Fetched(HTMLParser):
    """Addresses outside the page that a browser would fetch to show it."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect addresses in attributes."""
        self._in_style = tag == "style"
        for name, value in attrs:
            fetches = name in FETCHING or (tag in FETCHING_LINKS and name in ("href", "xlink:href"))
            if fetches and value and not value.startswith(("data:", "#")):
                self.addresses.append(value)
            if name == "style":
                self.addresses.extend(_addresses_in_css(value or ""))

    def handle_data(self, data: str) -> None:
        """Collect addresses in style sheets."""
        if self._in_style:
            self.addresses.extend(_addresses_in_css(data))

    def handle_endtag(self, tag: str) -> None:
        """Leave a style sheet."""
        self._in_style = False


def _addresses_in_css(text: str) -> Iterator[str]:
    for part in text.split("url(")[1:]:
        address = part.split(")")[0].strip("\"' ")
        if not address.startswith(("data:", "#")):
            yield address
    if "@import" in text:
        yield "@import"


def check_report(checks: Checks, path: Path) -> None:
    """The report opens without a network and without any other file."""
    page = path.read_text(encoding="utf-8")
    parser = Fetched()
    parser.feed(page)
    checks.expect(
        not parser.addresses,
        f"{path.name} ({len(page) / 1e6:.1f} MB) is self-contained",
        parser.addresses,
    )
    checks.expect(
        all(name in page for name in ("fedlas_ls", "smart")),
        f"{path.name} shows methods and calibrators",
    )


def main(study: Path) -> int:
    """Run all checks; the exit code is 1 if one fails."""
    grid = yaml.safe_load((HOME / "config" / "config.yaml").read_text(encoding="utf-8"))["grids"][0]
    metrics = pd.read_parquet(study / "metrics.parquet")
    checks = Checks()
    check_grid(checks, metrics, grid)
    check_values(checks, metrics)
    check_science(checks, metrics)
    for name in ("summary", "costs"):
        checks.expect(
            len(pd.read_parquet(study / f"{name}.parquet")) > 0, f"{name}.parquet has rows"
        )
    for name in ("tables", "figures"):
        checks.expect(any((study / name).iterdir()), f"{name}/ has files")
    check_report(checks, study / "report.html")
    sys.stdout.write(
        f"{checks.failed} of the checks failed\n"
        if checks.failed
        else "all checks of the results passed\n"
    )
    return int(checks.failed > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
