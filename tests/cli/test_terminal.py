"""Lines of commands in a terminal."""

import numpy as np
from tests.cli.conftest import write

from calgrid.cli.terminal import wrapped


def test_a_long_line_is_wrapped_below_its_second_cell_and_a_short_one_stays():
    assert wrapped("ls    Label smoothing.", 80) == "ls    Label smoothing."
    assert wrapped("ls    Label smoothing of targets.", 22) == (
        "ls    Label smoothing\n      of targets."
    )


def test_rows_of_tables_need_no_wrapping_at_80_columns(succeeds, files, data, tmp_path):
    """Rows of a table have two spaces between cells; sentences may be wrapped."""
    val, test = files()
    noise = np.random.default_rng(1).normal(size=data.test.shape)
    other = write(tmp_path / "other", "parquet", data.test + 0.2 * noise, data.test_labels)
    few = ("--bootstrap", 20)
    longest = "none,ts,smoothing_spline_ova"
    metrics = ("balanced_accuracy", "nll_calibration", "brier", "squared_ce")
    shown = [
        succeeds("calibrate", "--calibrator", longest, "--fit", val, "--apply", test, *few),
        succeeds("compare", f"a={test}", f"b={other}", "--networks", "--metrics", *metrics, *few),
    ]
    for done in shown:
        rows = [line for line in done.out.splitlines() if "  " in line.strip()]
        assert len(rows) > len(metrics)
        assert [row for row in rows if len(row) > 80] == []
