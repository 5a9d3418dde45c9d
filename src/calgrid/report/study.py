"""Data of a study for tables, figures and report: its files, groups of comparable runs, and
selections.
"""

import functools
import operator
import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from calgrid.errors import DataError
from calgrid.statistics.pairs import PRIOR, both_ways, keeps_accuracy
from calgrid.statistics.summary import Asked
from calgrid.storage.manifest import Manifest, ManifestRun
from calgrid.storage.records import Record, RunKey, read_record, summary_record
from calgrid.storage.schema import (
    COSTS,
    METRICS,
    RUN_KEY,
    RUNS,
    SETTING,
    SHIFT_SUMMARY,
    SUMMARY,
    TESTS,
)
from calgrid.storage.tables import read_rows
from calgrid.training.protocol import AVERAGES

UNCALIBRATED = "none"
#: the calibrator shown next to the uncalibrated networks where only one fits
PREFERRED = "ts"
#: mark after the name of a method that sees validation data during training
SEES_VALIDATION = "†"
#: mark of calibrators with a fit that did not converge
UNCONVERGED = "‡"
#: pattern of an identifier in words: it is no part of ``mixup+ls`` or ``ls_005``
IDENTIFIER = r"(?<![\w+.-])(?:{})(?![\w+-]|\.\w)"
GROUP = [*SETTING, "checkpoint"]
#: metrics that are shown together with an ECE
BESIDE_ECE = ("accuracy", "nll", "brier", "ece_debiased", "ece", "ece_null")
STATISTICS = ("mean", "std", "ci_low", "ci_high")
#: what identifies a test of a group
PAIR = ["metric", "method", "calibrator", "against", "against_calibrator"]


class Group(NamedTuple):
    """Runs that are compared with each other: they differ in method and seed only."""

    protocol: str
    dataset: str
    backbone: str
    checkpoint: str


class StudyData:
    """The files of a study, each read at its first use.

    Parameters
    ----------
    folder : folder with the files that ``aggregate`` wrote (``storage.schema.STUDY_FILES``).
    manifest : what was run (``calgrid.plan.plan.Plan.manifest``).

    Raises
    ------
    DataError : at the first use of a file that is missing or damaged.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder, self.manifest = Path(folder), manifest
        configuration = manifest["configuration"]
        statistics = configuration["statistics"]
        self.asked = Asked.of(statistics)
        self.baseline, self.level = self.asked.baseline, self.asked.level
        self.comparisons: Sequence[Mapping[str, Any]] = statistics.get("comparisons", ())
        self.bins: int = statistics["bins"]
        self.names: Mapping[str, str] = configuration.get("names", {})
        self.own_metrics: Sequence[str] = statistics.get("metrics", ())
        self._paths: dict[str, Path] = {}
        self._pairs: dict[Group, pd.DataFrame] = {}

    def rows(
        self, name: str, group: Group | None = None, /, **where: str | int | Collection[str | int]
    ) -> pd.DataFrame:
        """Selected rows of a file, which may be larger than memory.

        Parameters
        ----------
        group : selects the rows of a group; the file must have its columns.
        **where : column -> value or values to select; calibrators by their names in the file.
        """
        path, wanted = self.verified(name), _wanted(group, where)
        return named_calibrators(read_rows(path, f"file {name}", wanted))

    def distinct(
        self,
        name: str,
        columns: Sequence[str],
        group: Group | None = None,
        /,
        **where: str | int | Collection[str | int],
    ) -> pd.DataFrame:
        """Distinct combinations of values of ``columns`` in the rows of :meth:`rows`, in order of
        appearance.
        """
        path, wanted = self.verified(name), _wanted(group, where)
        return named_calibrators(read_rows(path, f"file {name}", wanted, columns, distinct=True))

    def verified(self, name: str) -> Path:
        """Path of a file; at the first use its content is compared with its record."""
        if name not in self._paths:
            path = self.folder / name
            if self._record is not None:
                path = self._record.verified(name, f"file {name}")
            self._paths[name] = path
        return self._paths[name]

    @functools.cached_property
    def _unshifted(self) -> pd.DataFrame:
        """Summary of all splits except shifts, which have most of the rows."""
        return self.rows(SUMMARY, split=("val", "test", "ood"))

    @functools.cached_property
    def costs(self) -> pd.DataFrame:
        """Seconds and memory of each job."""
        return self.rows(COSTS)

    @functools.cached_property
    def fit_warnings(self) -> list[Mapping[str, Any]]:
        """Warnings of calibrator fits: counts for each calibrator of a group, and the texts."""
        return self._record.content.get("warnings", []) if self._record is not None else []

    @functools.cached_property
    def unconverged(self) -> dict[str, tuple[int, int]]:
        """Calibrator -> numbers of unconverged and of all fits in these settings."""
        counts: dict[str, tuple[int, int]] = {}
        for entry in self.fit_warnings:
            if entry.get("unconverged"):
                stopped, fits = counts.get(entry["calibrator"], (0, 0))
                counts[entry["calibrator"]] = stopped + entry["unconverged"], fits + entry["fits"]
        return counts

    @property
    def environment(self) -> Mapping[str, Any]:
        """Environment of the job that wrote the files."""
        return self._record.content.get("environment", {}) if self._record is not None else {}

    @functools.cached_property
    def _record(self) -> Record | None:
        """Record of the files; None in a copy of the files alone."""
        return summary_record(self.folder, "aggregate")

    def facts(self, run: ManifestRun) -> Mapping[str, Any]:
        """Facts of a run of the manifest from the records of its jobs, as in ``runs.json``."""
        return self._facts[RunKey(**run["key"])]

    @functools.cached_property
    def _facts(self) -> Mapping[tuple[Any, ...], Mapping[str, Any]]:
        runs = read_record(self.verified(RUNS), f"file {RUNS}")["runs"]
        key_of = operator.itemgetter(*RUN_KEY)
        return {key_of(run): run for run in runs}

    @functools.cached_property
    def groups(self) -> list[Group]:
        """Groups in the order of the manifest, of their checkpoints the means of weights last."""
        found = self.distinct(SUMMARY, GROUP)
        settings = self.keys[list(SETTING)].drop_duplicates()
        ordered = found.sort_values("checkpoint").sort_values(
            "checkpoint", key=lambda names: names.isin(AVERAGES.keys()), kind="stable"
        )
        known = settings.merge(ordered)
        groups = list(map(Group._make, known[GROUP].itertuples(index=False)))
        for row in found.itertuples(index=False):
            if row not in groups:
                raise DataError(
                    f"The summary of {self.folder} has results of {'/'.join(row)}, which is not "
                    "in its manifest; run the rule 'aggregate' again."
                )
        return groups

    @functools.cached_property
    def keys(self) -> pd.DataFrame:
        """Columns ``RUN_KEY`` of each run, in the order of the manifest."""
        keys = [run["key"] for run in self.manifest["runs"]]
        return pd.DataFrame(keys, columns=list(RUN_KEY))

    @property
    def is_single(self) -> bool:
        """Whether the study has one network: no methods, seeds or protocols to tell apart."""
        return len(self.manifest["runs"]) == 1

    @functools.cached_property
    def methods(self) -> list[str]:
        """Methods in the order of the manifest, which sets their colours in all figures."""
        return list(self.keys["method"].unique())

    @functools.cached_property
    def calibrators(self) -> list[str]:
        """Calibrators of the study, the uncalibrated network first, then in order of appearance."""
        found = self.distinct(METRICS, ["calibrator", "fit_on"])["calibrator"]
        return list(dict.fromkeys([UNCALIBRATED, *found]))

    @functools.cached_property
    def validation_methods(self) -> list[str]:
        """Methods that see validation data during training, themselves or in their first stage."""
        runs = self.manifest["runs"]
        seeing = [run["key"]["method"] for run in runs if run.get("sees_validation", False)]
        return among(self.methods, seeing)

    def marked(self, method: str) -> str:
        """Name of a method, with a dagger if it sees validation data during training."""
        return method + SEES_VALIDATION if method in self.validation_methods else method

    def named(self, words: str) -> str:
        """Words with the names that the configuration gives to methods and calibrators."""
        if not self.names:
            return words
        ids = "|".join(map(re.escape, sorted(self.names, key=len, reverse=True)))
        return re.sub(IDENTIFIER.format(ids), lambda found: self.names[found[0]], words)

    @property
    def settings(self) -> list[Group]:
        """First group of each protocol, data set and backbone, for results that do not depend on
        the checkpoint.
        """
        return self.first_groups(SETTING)

    def first_groups(self, fields: Sequence[str]) -> list[Group]:
        """First group of each combination of values of some of its fields."""
        first: dict[tuple[str, ...], Group] = {}
        for group in self.groups:
            first.setdefault(tuple(getattr(group, name) for name in fields), group)
        return list(first.values())

    def runs(self, group: Group) -> list[ManifestRun]:
        """Entries of the manifest that belong to a group."""
        return [self.manifest["runs"][place] for place in self.keys_of(group).index]

    def keys_of(self, group: Group) -> pd.DataFrame:
        """Rows of :attr:`keys` of a group."""
        return self.select(self.keys, group)

    def networks(self, group: Group) -> list[Group]:
        """Groups that differ from a group in their backbone alone, and itself."""
        return [other for other in self.groups if other == group._replace(backbone=other.backbone)]

    def warning(self, group: Group) -> str:
        """Warning about the data set of a group, or an empty string."""
        return next((said for run in self.runs(group) if (said := run.get("warning", ""))), "")

    def reference(self, group: Group) -> str:
        """Method that represents a group where only one can be shown: the baseline, or else the
        first.
        """
        present = list(self.keys_of(group)["method"])
        return self.baseline if self.baseline in present else present[0]

    def label(self, group: Group, checkpoint: bool = True, backbone: bool = True) -> str:
        """Name of a group in headings: data set and backbone, and protocol and checkpoint if the
        study has several.

        ``checkpoint=False`` and ``backbone=False`` leave these parts out, for results that do not
        depend on them; the same in :meth:`slug`.
        """
        parts = [group.dataset, *([group.backbone] if backbone else [])]
        differ = differing(self.groups)
        if "protocol" in differ:
            parts.append(group.protocol)
        if checkpoint and "checkpoint" in differ:
            parts.append(f"{group.checkpoint} checkpoint")
        return ", ".join(parts)

    def slug(self, group: Group, checkpoint: bool = True, backbone: bool = True) -> str:
        """Name of a group in file names: ``dataset_backbone``, and parts needed to be unique."""
        last = 3 if backbone else 2
        parts = [*group[1:last]]
        differ = differing([other for other in self.groups if other[1:last] == group[1:last]])
        if "protocol" in differ:
            parts.append(group.protocol)
        if checkpoint and "checkpoint" in differ:
            parts.append(group.checkpoint)
        return re.sub(r"[^A-Za-z0-9.+-]+", "_", "_".join(parts))

    def test(self, group: Group, calibrators: Iterable[str] | None = None) -> pd.DataFrame:
        """Wide summary of the clean test split, one row per method and calibrator.

        Columns as from :func:`wide` and, ranked within each calibrator, from :func:`rank_rows`.
        """
        table = wide(self.tidy(group, "test", calibrators), ["method", "calibrator", "fit_on"])
        if table.empty:
            return table
        parts = [rank_rows(part) for _, part in table.groupby("calibrator")]
        order = rank_rows(table[table["calibrator"] == UNCALIBRATED])["method"]
        return self.in_order(pd.concat(parts), list(order))

    def ood(self, group: Group) -> pd.DataFrame:
        """Wide summary of the out-of-distribution sets, one row per set, method and calibrator."""
        table = wide(self.tidy(group, "ood"), ["shift", "method", "calibrator", "fit_on"])
        return self.in_order(table, self.order(group))

    def shift_means(self, group: Group) -> pd.DataFrame:
        """Wide summary under shift: corruptions are scored one by one, then averaged, never pooled.

        One row per method, calibrator, ``severity`` and ``domain``: the mean over the ``n_shifts``
        corruptions of a severity. Severity -1 is the mean over severities; severity 0 is a shift
        without severities, named in ``domain``.
        """
        keys = ["severity", "domain", "method", "calibrator", "fit_on", "n_shifts"]
        return self.in_order(wide(self.shift_tidy(group), keys), self.order(group))

    def shift_tidy(self, group: Group) -> pd.DataFrame:
        """Tidy summary under shift: the means of :meth:`shift_means` with all their statistics."""
        return self.select(self._shift_summary, group)

    @functools.cached_property
    def _shift_summary(self) -> pd.DataFrame:
        """Tidy summary of :meth:`shift_means` for all groups."""
        domains = self.rows(SUMMARY, split="shift", severity=0)
        domains = domains.assign(domain=domains["shift"], n_shifts=1)
        return pd.concat([self.rows(SHIFT_SUMMARY).assign(domain=""), domains])

    def order(self, group: Group) -> list[str]:
        """Methods of a group, the best first by :func:`rank_rows` of the uncalibrated networks,
        unranked ones last.
        """
        rows = self.tidy(group, "test", [UNCALIBRATED])
        ranked = list(rank_rows(wide(rows, ["method"]))["method"]) if len(rows) else []
        return list(dict.fromkeys([*ranked, *among(self.methods, self.keys_of(group)["method"])]))

    def in_order(
        self,
        table: pd.DataFrame,
        methods: Sequence[str],
        by: Sequence[str] = ("method", "calibrator"),
        **orders: Sequence[str],
    ) -> pd.DataFrame:
        """Rows sorted by the columns ``by``: methods as in ``methods``, calibrators as in the
        study, others by their ``orders``; stable.
        """
        orders = {"method": methods, "calibrator": self.calibrators, **orders}
        places = {
            column: dict(zip(order, range(len(order)), strict=True))
            for column, order in orders.items()
        }
        return table.sort_values(
            list(by),
            kind="stable",
            key=lambda names: names.map(places[str(names.name)]).astype(float),
            ignore_index=True,
        )

    def test_samples(self, group: Group) -> int:
        """Number of images of the clean test split."""
        return int(self._test_sizes.get(tuple(group), 0))

    @functools.cached_property
    def _test_sizes(self) -> pd.Series:
        sizes = self.distinct(METRICS, [*GROUP, "n_samples"], split="test")
        return sizes.groupby(GROUP)["n_samples"].max()

    def tidy(
        self, group: Group, split: str, calibrators: Iterable[str] | None = None
    ) -> pd.DataFrame:
        """Rows of the summary for one group and split, for all calibrators or for those given."""
        rows = self.select(self._unshifted, group)
        rows = rows[rows["split"] == split]
        return rows if calibrators is None else rows[rows["calibrator"].isin(list(calibrators))]

    @functools.cached_property
    def tests(self) -> pd.DataFrame:
        """The test of each pair: ``TEST_COLUMNS``, on clean images, out of distribution, under
        shifts without severities and over all severities.
        """
        return self.rows(TESTS, split=("test", "ood", "shift"), severity=(0, -1))

    @functools.cached_property
    def clean_tests(self) -> pd.DataFrame:
        """Tests on the clean test split, each pair in both directions."""
        return both_ways(self.tests[self.tests["split"] == "test"])

    @property
    def priors(self) -> pd.DataFrame:
        """Prior variance over seeds: see :func:`calgrid.statistics.pairs.study_priors`."""
        known = self.distinct(TESTS, [*PRIOR, "against_calibrator", "prior"]).dropna(subset="prior")
        alike = known["calibrator"] == known.pop("against_calibrator")
        return known[alike]

    def pairs(self, group: Group) -> pd.DataFrame:
        """Tests on the clean test split with the index ``PAIR``."""
        if group not in self._pairs:
            self._pairs[group] = self.select(self.clean_tests, group).set_index(PAIR)
        return self._pairs[group]

    def few_calibrators(self) -> list[str]:
        """``none``, and temperature scaling or else the first calibrator of the study."""
        if PREFERRED in self.calibrators:
            return [UNCALIBRATED, PREFERRED]
        return self.calibrators[:2]

    @staticmethod
    def select(table: pd.DataFrame, group: Group) -> pd.DataFrame:
        """Rows of a group in a table with the columns ``GROUP``, or without the checkpoint."""
        shared = [name for name in GROUP if name in table]
        return table[(table[shared] == list(group[: len(shared)])).all(axis=1)]


def calibrated(name: str) -> str:
    """Networks after a calibrator, in words."""
    return "uncalibrated" if name == UNCALIBRATED else f"calibrated by {name}"


def among(names: Iterable[str], values: Iterable[Hashable]) -> list[str]:
    """Names contained in the values, in the order of the names."""
    present = set(values)
    return [name for name in names if name in present]


def differing(rows: Sequence[tuple[Any, ...]] | pd.DataFrame) -> list[str]:
    """Columns with several values, of a table or of named tuples."""
    counts = pd.DataFrame(rows).nunique()
    return list(counts.index[counts > 1])


def _wanted(group: Group | None, where: Mapping[str, Any]) -> dict[str, Collection[Any]]:
    """Column -> values to select."""
    of_group = {} if group is None else group._asdict()
    return {
        name: (value,) if isinstance(value, str | int) else value
        for name, value in {**of_group, **where}.items()
    }


def named_calibrators(table: pd.DataFrame) -> pd.DataFrame:
    """Add the rows of the fit to names of calibrators not fitted on val: ``ts (same_shift)``."""
    if "fit_on" not in table:
        return table
    names = {}
    for column in {"calibrator", "against_calibrator"} & {*table}:
        elsewhere = table[column] + " (" + table["fit_on"] + ")"
        names[column] = table[column].where(table["fit_on"] == "val", elsewhere)
    return table.assign(**names)


def wide(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """One row per combination of ``keys``, with columns ``n_seeds`` and
    ``{metric}_{mean|std|ci_low|ci_high}``.
    """
    table = rows.pivot(index=keys, columns="metric", values=list(STATISTICS))
    table.columns = table.columns.swaplevel().map("_".join)
    seeds = rows.groupby(keys)["n_seeds"].max()
    return table.assign(n_seeds=seeds).reset_index()


def rank_rows(table: pd.DataFrame) -> pd.DataFrame:
    """Sort wide rows by NLL, then Brier score; rows that do not keep accuracy
    (:func:`keeps_accuracy`) come last.

    Adds ``keeps_accuracy`` and ``place`` (1 = first; NaN for rows that do not keep accuracy).
    """
    ordered = table.assign(keeps_accuracy=keeps_accuracy(table)).sort_values(
        ["keeps_accuracy", "nll_mean", "brier_mean", "method"], ascending=[False, True, True, True]
    )
    places = pd.Series(range(1, len(table) + 1), index=ordered.index, dtype="float64")
    return ordered.assign(place=places.where(ordered["keeps_accuracy"]))
