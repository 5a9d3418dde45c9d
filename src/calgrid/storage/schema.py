"""Names, keys and columns of the Parquet files of a study; types by their pandas names
(``storage.tables.KINDS``).
"""

from collections.abc import Mapping
from typing import Any

Columns = Mapping[str, str]
#: a row of a table: column -> value
Row = dict[str, Any]

#: runs with equal values in these columns are compared with each other
SETTING = ("protocol", "dataset", "backbone")
#: columns that identify a run
RUN_KEY = (*SETTING, "method", "seed")
#: columns that identify a reported number, except its seeds
NUMBER_KEY = (
    *SETTING,
    "method",
    "checkpoint",
    "calibrator",
    "fit_on",
    "split",
    "shift",
    "severity",
    "metric",
)
SEEDS = ("seed", "fit_seed")
INTERVAL = ("ci_low", "ci_high")
#: value of ``fit_on``: calibrators are fitted on a part of each shifted set and scored on the rest
SAME_SHIFT = "same_shift"
#: value of ``fit_on``: calibrators are fitted on a part of val and test together, drawn anew for
#: each seed, and scored on the rest
REDRAWN = "redrawn"
DRAWN = frozenset({SAME_SHIFT, REDRAWN})
#: key columns of published numbers beside paper and table, and all required columns of their files
PUBLISHED_PLACE = ("dataset", "backbone", "method", "calibrator", "metric", "shift", "severity")
PUBLISHED_COLUMNS = ("paper", "table", *PUBLISHED_PLACE, "value", "unit", "suspect")
#: unit in these files -> factor to the unit of the metrics
PUBLISHED_UNITS = {"percent": 0.01, "centinats": 0.01, "seconds": 1.0, "rank": 1.0}

#: columns of the key of a run
KEY_COLUMNS: Columns = {**dict.fromkeys(RUN_KEY[:-1], "str"), "seed": "int64"}
#: ``metrics.parquet`` of a run, one row per number
METRIC_COLUMNS: Columns = {
    **KEY_COLUMNS,
    **dict.fromkeys(("checkpoint", "calibrator", "fit_on"), "str"),
    "fit_seed": "int64",
    **dict.fromkeys(("split", "shift"), "str"),
    "severity": "int8",
    "metric": "str",
    **dict.fromkeys(("value", *INTERVAL), "float64"),
    "n_samples": "int32",
    "fingerprint": "str",
}
#: ``metrics.parquet`` of a study, with the number of bins of the calibration errors
STUDY_METRIC_COLUMNS: Columns = {**METRIC_COLUMNS, "bins": "int64"}
#: value of the column ``shift`` in means over corruptions
MEAN_SHIFT = "mean"
#: ``shift_means.parquet``: means over the corruptions of a severity, and (severity -1) over all
#: severities
SHIFT_MEAN_COLUMNS: Columns = {**STUDY_METRIC_COLUMNS, "n_shifts": "int32", "shifts": "str"}
#: ``shift_summary.parquet``: the means of ``shift_means.parquet`` over seeds; ``n_shifts`` is the
#: most of a calibrator
SHIFT_SUMMARY_COLUMNS: Columns = {
    **{name: kind for name, kind in METRIC_COLUMNS.items() if name in NUMBER_KEY},
    **dict.fromkeys(("mean", "std"), "float64"),
    "n_seeds": "int64",
    "std_fit": "float64",
    "n_fits": "int64",
    **dict.fromkeys(("ci_low", "ci_high", "rank", "diff_vs_baseline"), "float64"),
    "n_common": "int64",
    **dict.fromkeys(("p_seeds", "p_value", "p_holm"), "float64"),
    "detectable": "float64",
    **dict.fromkeys(("decided_by", "verdict"), "str"),
    "n_shifts": "int32",
}
#: ``tests.parquet``: the test of each pair of methods or calibrators that the report speaks of
TEST_COLUMNS: Columns = {
    **{name: kind for name, kind in METRIC_COLUMNS.items() if name in NUMBER_KEY},
    **dict.fromkeys(("against", "against_calibrator", "family"), "str"),
    "n_seeds": "int64",
    **dict.fromkeys(("difference", "std_seed", "std_test", "prior", *INTERVAL), "float64"),
    **dict.fromkeys(("p_seeds", "p_value", "p_holm", "detectable"), "float64"),
    **dict.fromkeys(("decided_by", "verdict"), "str"),
}
#: ``costs.parquet``; ``fit_seed`` is that of a calibrator
COST_COLUMNS: Columns = {
    **KEY_COLUMNS,
    **dict.fromkeys(("stage", "item"), "str"),
    **dict.fromkeys(("fit_seed", "seconds", "peak_memory_mb"), "float64"),
    **dict.fromkeys(("device", "device_name"), "str"),
    **dict.fromkeys(("threads", "epochs", "parameters"), "float64"),
}
#: bins of the histogram of confidence, in addition to those of the calibration errors
HISTOGRAM_BINS = 20
#: ``bins.parquet``: sums over the test images in each of ``n_bins`` equal-width bins of the
#: confidence, of the uncalibrated network and of the first fit of each calibrator on val
BIN_COLUMNS: Columns = {
    "checkpoint": "str",
    "calibrator": "str",
    "n_bins": "int32",
    "bin": "int32",
    **dict.fromkeys(("count", "confidence", "correct"), "float64"),
}
#: ``classes.parquet``: scores of each class on the clean test split, of the first fit of each
#: calibrator on val: sensitivity of its ``count`` images, specificity of images of other classes,
#: AUROC of its probability, and precision and mean confidence of the images ``predicted`` as the
#: class; NaN of no images
CLASS_COLUMNS: Columns = {
    **dict.fromkeys(("checkpoint", "calibrator"), "str"),
    "class": "int32",
    "name": "str",
    "count": "int32",
    **dict.fromkeys(("sensitivity", "specificity", "auroc"), "float64"),
    "predicted": "int32",
    **dict.fromkeys(("precision", "confidence"), "float64"),
}
#: ``samples.parquet``: training samples of the last sampled epoch of runs whose loss measures an
#: indicator
SAMPLE_COLUMNS: Columns = {
    "epoch": "int32",
    "correct": "int8",
    "confidence": "float32",
    "nci": "float32",
    "gate": "int8",
}
#: columns of a place in ``resamples.parquet``
RESAMPLE_PLACE = ("checkpoint", "calibrator", "fit_on", "fit_seed", "split", "shift", "severity")
#: ``resamples.parquet``: change of a metric in the first 200 resamples of the test images, which
#: all runs share, to first order (``draws``), and its change by pairs of images (empty for means);
#: of corruptions their means (shift ``mean``, and severity -1 for the mean over severities)
RESAMPLE_COLUMNS: Columns = {
    **{name: METRIC_COLUMNS[name] for name in (*RESAMPLE_PLACE, "metric")},
    **dict.fromkeys(("draws", "pairs"), "floats"),
}

#: ``conformal.parquet``: metrics of prediction sets after each calibrator; a threshold is inf if no
#: class may be left out
CONFORMAL_COLUMNS: Columns = {
    **dict.fromkeys(("checkpoint", "calibrator"), "str"),
    "fit_seed": "int64",
    **dict.fromkeys(("split", "shift"), "str"),
    "severity": "int8",
    "conformal": "str",
    "alpha": "float64",
    "metric": "str",
    **dict.fromkeys(("value", *INTERVAL), "float64"),
    **dict.fromkeys(("n_samples", "n_threshold"), "int32"),
    **dict.fromkeys(("threshold", "penalty"), "float64"),
}

METRICS, SUMMARY, COSTS = "metrics.parquet", "summary.parquet", "costs.parquet"
SHIFT_MEANS, SHIFT_SUMMARY = "shift_means.parquet", "shift_summary.parquet"
TESTS = "tests.parquet"
BINS, CLASSES = "bins.parquet", "classes.parquet"
HISTORIES, SAMPLES, PROBES, RESAMPLES = (
    "histories.parquet",
    "samples.parquet",
    "probes.parquet",
    "resamples.parquet",
)
CONFORMAL = "conformal.parquet"
#: training options and device of each run
RUNS = "runs.json"
#: what ``calgrid.papers.smart.diagnostics`` measures
FITS, MARGINS = "fits.parquet", "margins.parquet"
#: files of a run beside its metrics, and their columns
PART_EXTRAS: Mapping[str, Columns] = {
    BINS: BIN_COLUMNS,
    CLASSES: CLASS_COLUMNS,
    RESAMPLES: RESAMPLE_COLUMNS,
    CONFORMAL: CONFORMAL_COLUMNS,
}
#: inputs of tables, figures and the report, in addition to ``FITS`` and ``MARGINS``
STUDY_FILES = (
    "manifest.json",
    *(METRICS, SUMMARY, TESTS, COSTS, SHIFT_MEANS, SHIFT_SUMMARY),
    *(BINS, CLASSES, HISTORIES, SAMPLES, PROBES, RESAMPLES, CONFORMAL, RUNS),
)
