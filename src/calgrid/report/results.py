"""The results of a study in Python: numbers, tables, tests, logits and curves, without Snakemake or
PyTorch.
"""

import dataclasses
import functools
import os
import tempfile
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import cast

import pandas as pd

from calgrid.components.metrics import find_metric, metric_names
from calgrid.components.plugins import VARIABLE
from calgrid.errors import ConfigError, DataError, check_ids, unknown_id
from calgrid.logits.bank import check_unpacked
from calgrid.metrics.binning import BinSums
from calgrid.report.run import Run, bin_frame
from calgrid.report.selections import histories
from calgrid.report.study import GROUP, UNCALIBRATED, Group, StudyData, differing
from calgrid.report.table import Table
from calgrid.report.tables import TABLES, built
from calgrid.statistics import compare
from calgrid.statistics.pairs import answers
from calgrid.storage.logits import Logits
from calgrid.storage.manifest import Manifest
from calgrid.storage.records import BANK, MANIFEST, RunKey, read_record, why_not_current
from calgrid.storage.schema import BINS, METRICS, NUMBER_KEY, RESAMPLES, RUN_KEY, SUMMARY


def load_study(path: str | Path) -> "Results":
    """Open the results of a study.

    Parameters
    ----------
    path : folder ``results/<study>``, archive of ``calgrid pack``, or the folder that it was
        unpacked to. Only ``manifest.json`` is read now, every other file at its first use. Of an
        archive the files of the study are unpacked to a temporary folder, which exists as long as
        the result of this function; logits and records of its runs need the unpacked folder.

    Raises
    ------
    DataError : the manifest is missing or damaged, or the archive has none; or the path is another
        file.

    Warns
    -----
    UserWarning : the files of the study are not all there, or not made from each other, or their
        records were not copied.
    """
    study = opened(path)
    if why := why_not_current(study.folder):
        warnings.warn(f"The files of {study!r} may not belong together: {why}.", stacklevel=2)
    return study


def opened(path: str | Path) -> "Results":
    """Open the results of a study as :func:`load_study`, without a look at their records."""
    path = Path(path)
    if not zipfile.is_zipfile(path):
        if path.is_file():
            raise DataError(
                f"{path} is a file, but no archive of 'calgrid pack'; give the archive, or the "
                "folder of the study's results, such as results/digits."
            )
        return Results(_packed_study(path) if (path / BANK).is_file() else path)
    unpacked = tempfile.TemporaryDirectory(prefix="calgrid-")
    with zipfile.ZipFile(path) as archive:
        check_unpacked(archive, path)
        for name in archive.namelist():
            if not name.startswith("runs/"):
                archive.extract(name, unpacked.name)
    return Results(_packed_study(Path(unpacked.name)), path, unpacked)


def _packed_study(unpacked: Path) -> Path:
    """Folder of the study in an archive that was unpacked."""
    found = list(unpacked.glob(f"*/{MANIFEST}"))
    if len(found) != 1:
        raise DataError(
            "The archive has no tables: it is none of 'calgrid pack', or of an earlier version; "
            "take its runs as a bank (external: {base: bank})."
        )
    return found[0].parent


class Results:
    """Results of a study; see :func:`load_study`.

    If the study has several protocols, data sets, backbones or checkpoints, select one by keyword
    in the methods with ``**where``: ``dataset="cifar10"``.

    Raises
    ------
    DataError : a file is missing or damaged, at its first use; no runs have what ``**where`` says.
    ConfigError : a name is unknown or ambiguous.
    """

    def __init__(
        self,
        folder: Path,
        archive: Path | None = None,
        unpacked: tempfile.TemporaryDirectory[str] | None = None,
    ) -> None:
        self.folder, self.archive = folder, archive
        self._unpacked = unpacked  # removed with this object
        self.data = StudyData(folder, cast(Manifest, read_record(folder / MANIFEST, "manifest")))

    def __repr__(self) -> str:
        """Return the name, the folder and the number of runs of the study."""
        runs, place = self.data.manifest["runs"], self.archive or self.folder
        return f"<Results of study '{self.folder.name}' in {place}: {len(runs)} runs>"

    def _repr_html_(self) -> str:
        """Return the same with a table of methods and seeds by setting, for notebooks."""
        settings = self.data.keys.groupby(["protocol", "dataset", "backbone"], observed=True)
        listed = settings[["method", "seed"]].agg(
            lambda values: ", ".join(map(str, values.unique()))
        )
        listed["runs"] = settings.size()
        with pd.option_context("display.max_colwidth", None):
            table = listed.reset_index().to_html(index=False, border=0)
        return f"<p>{escape(repr(self))}</p>{table}"

    @property
    def runs(self) -> pd.DataFrame:
        """One row per run: protocol, dataset, backbone, method, seed, folder."""
        below = (self.archive or self.folder.parent) / "runs"
        folders = [str(below / RunKey(*key).path) for key in self.data.keys.itertuples(index=False)]
        return self.data.keys.assign(folder=folders)

    @functools.cached_property
    def metrics(self) -> pd.DataFrame:
        """One row per metric value of a run: the columns of ``metrics.parquet``; shares are
        fractions.
        """
        return self.data.rows(METRICS)

    @functools.cached_property
    def summary(self) -> pd.DataFrame:
        """Mean, deviation, interval, rank and tests over seeds, with the columns of
        ``summary.parquet``.
        """
        return self.data.rows(SUMMARY)

    def tables(self) -> list[str]:
        """Names of the tables of the report that have rows."""
        return [table.id for table in self._built()]

    def table(self, name: str = "methods") -> pd.DataFrame:
        """A table of the report, unrounded; shares are fractions."""
        return self._table(name).frame

    def to_latex(
        self,
        name: str = "methods",
        metrics: Sequence[str] = (),
        names: Mapping[str, str] = MappingProxyType({}),
    ) -> str:
        """A table of the report in LaTeX for the packages booktabs and adjustbox, one tabular per
        section, at most as wide as the text.

        Parameters
        ----------
        metrics : columns of metrics in their order; all by default. Columns of words stay.
        names : other names of methods, calibrators, metrics and headings:
            ``{"fedlas_ls": "FeDLaS", "ece_debiased": "ECE"}``; metrics keep their unit and arrow.
        """
        table = self._table(name)
        for metric in metrics:
            find_metric(metric)
        shown = {self.data.named(name): other for name, other in names.items()}
        sections = [section.chosen(metrics, {**shown, **names}) for section in table.sections]
        return dataclasses.replace(table, sections=sections).latex

    def compare(
        self,
        method: str,
        against: str | None = None,
        calibrator: str = "none",
        metrics: Sequence[str] = (),
        **where: str,
    ) -> pd.DataFrame:
        """Verdicts on two methods from their common seeds, on the clean test split.

        Parameters
        ----------
        against : method to compare with; None is the baseline of the study.
        metrics : metrics to compare; all by default.
        **where : protocol, dataset, backbone or checkpoint; all by default.

        Returns
        -------
        Columns as in :func:`calgrid.statistics.compare`. The test of a pair that the report speaks
        of is that of the report, with its family; other pairs are a family of their own.
        """
        against = self.data.baseline if against is None else against
        check_ids("method", [method, against], self.data.methods)
        check_ids("calibrator", [calibrator], self.data.calibrators)
        asked = {"method": method, "against": against}
        return self._answer(asked, [calibrator], metrics, where)

    def compare_calibrators(
        self,
        calibrator: str,
        against: str = UNCALIBRATED,
        method: str | None = None,
        metrics: Sequence[str] = (),
        **where: str,
    ) -> pd.DataFrame:
        """Verdicts on two calibrators on the same networks, on the clean test split.

        Parameters
        ----------
        method : method whose networks are calibrated; None answers for each one.
        metrics, **where : as in :meth:`compare`.

        Returns
        -------
        As of :meth:`compare`.
        """
        check_ids("calibrator", [calibrator, against], self.data.calibrators)
        asked = {"calibrator": calibrator, "against": against}
        if method is not None:
            check_ids("method", [method], self.data.methods)
            asked["method"] = method
        return self._answer(asked, [calibrator, against], metrics, where)

    def _answer(
        self,
        asked: dict[str, str],
        calibrators: list[str],
        metrics: Sequence[str],
        where: dict[str, str],
    ) -> pd.DataFrame:
        """Answer to a question on the rows of some calibrators."""
        self._check_metrics()
        self._groups(where)  # refuses what is not there
        chosen = self.data.rows(METRICS, split="test")
        check_ids("metric", metrics, {*chosen["metric"]})
        chosen = chosen[chosen["calibrator"].isin(calibrators)]
        for name, value in where.items():
            chosen = chosen[chosen[name] == value]
        resamples = self.data.rows(RESAMPLES, split="test")
        mine = asked.get("calibrator", asked.get("method"))
        question = {"question": f"{mine} against {asked['against']}", **asked}
        of_report = answers(self.data.tests, [question])
        found = compare(chosen, [question], self.data.level, resamples, self.data.baseline)
        key = [*NUMBER_KEY, "against", "against_calibrator"]
        known = found[key].merge(of_report, on=key, how="left")[found.columns]
        found = known.where(known["question"].notna(), found).astype(found.dtypes)
        return found[found["metric"].isin(metrics)].reset_index(drop=True) if metrics else found

    def reliability(
        self, method: str, calibrator: str = UNCALIBRATED, **where: str
    ) -> pd.DataFrame:
        """Reliability diagram of a method on the clean test split, seeds pooled; ``calibrator``
        names one of the study's, used with its first fit.

        Returns
        -------
        Columns low, high, count, confidence, accuracy, as
        :func:`calgrid.report.run.reliability`.
        """
        group = self._group(where)
        bins = self.data.rows(BINS, group, n_bins=self.data.bins)
        bins = bins[bins["method"] == method]
        if bins.empty:
            raise unknown_id("method", method, self.data.order(group))
        check_ids("calibrator", [calibrator], bins["calibrator"].unique())
        bins = bins[bins["calibrator"] == calibrator]
        sums = bins.groupby("bin")[["count", "confidence", "correct"]].sum().to_numpy(float)
        return bin_frame(BinSums(*sums.T))

    def history(self, **where: str) -> pd.DataFrame:
        """Training histories of all runs of a data set and backbone, one row per epoch, counted
        from 1.
        """
        return histories(self.data, self._group(where))

    def run(self, method: str, seed: int | None = None, **where: str) -> Run:
        """One run: its ``record``, ``history`` and ``logits``."""
        self._groups(where)  # refuses what is not there
        found = self.runs
        wanted = {"method": method, **where, **({} if seed is None else {"seed": seed})}
        wanted.pop("checkpoint", None)
        for name, value in wanted.items():
            check_ids(name, [value], found[name])
            found = found[found[name].astype(str) == str(value)]
        if len(found) > 1:
            raise ConfigError(
                f"{len(found)} runs of '{method}' differ in "
                f"{', '.join(differing(found[list(RUN_KEY)]))}; select one by keyword."
            )
        folder = Path(found["folder"].iloc[0])
        if self.archive is not None:
            raise DataError(
                f"The results of the runs are in the archive {self.archive}: unpack it with "
                f"'python -m zipfile -e {self.archive} archive', and open "
                f"archive/{self.folder.name}."
            )
        if not folder.is_dir():
            raise DataError(
                f"The results of the runs are not beside the study: {folder} does not exist; copy "
                f"the folder 'runs' beside {self.folder}, too."
            )
        run = self.data.manifest["runs"][found.index[0]]
        # paths in the manifest are relative to the working folder of the study; a network may be of
        # a run with another protocol
        trained = None
        if run["train"] is not None:
            path = Path(run["train"])
            trained = folder.parents[len(RUN_KEY) - 1].joinpath(*path.parts[-len(RUN_KEY) - 1 :])
        return Run(trained, folder / Path(run["predict"]).name)

    def logits(
        self, method: str, seed: int | None = None, name: str = "test", **where: str
    ) -> Logits:
        """Logits of a run on ``val``, ``test`` or a shift family: ``logits`` (N, K), ``label``
        (N,), ``index`` (N,).
        """
        return self.run(method, seed, **where).logits(name, where.get("checkpoint"))

    def _table(self, name: str) -> Table:
        for table in self._built():
            if table.id == name:
                return table
        raise unknown_id("table", name, self.tables())

    def _built(self) -> Iterator[Table]:
        self._check_metrics()
        return built(self.data, TABLES)

    def _check_metrics(self) -> None:
        """Raise ConfigError for a plugin metric unknown to this process."""
        if unknown := [name for name in self.data.own_metrics if name not in metric_names()]:
            folders = self.data.manifest["configuration"].get("plugins") or ["plugins/..."]
            raise ConfigError(
                f"The metric '{unknown[0]}' of {self!r} is that of a plugin; set the environment "
                f"variable {VARIABLE}={os.pathsep.join(folders)} before Python starts, with the "
                "path of the folder from here."
            )

    def _group(self, where: dict[str, str]) -> Group:
        """The one group that the keywords select."""
        found = self._groups(where)
        if len(found) == 1:
            return found[0]
        raise ConfigError(
            f"The study has {len(found)} groups that differ in {', '.join(differing(found))}; "
            "select one by keyword."
        )

    def _groups(self, where: dict[str, str]) -> list[Group]:
        """The groups of comparable runs that the keywords select, at least one."""
        check_ids("keyword", where, GROUP)
        wanted = where.items()
        found = [group for group in self.data.groups if wanted <= group._asdict().items()]
        if not found:
            known = "; ".join(map(" ".join, self.data.groups))
            raise DataError(f"The study has no runs with {where}; it has: {known}.")
        return found
