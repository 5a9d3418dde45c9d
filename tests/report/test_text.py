"""Numbers are written in one way everywhere."""

import io
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calgrid.metrics import METRICS
from calgrid.report import text
from calgrid.report.study import keeps_accuracy, rank_rows
from calgrid.report.table import best_rows


@pytest.mark.parametrize(
    ("metric", "value", "written"),
    [
        ("ece", 0.04119, "4.12"),
        ("accuracy", 1.0, "100.00"),
        ("nll", 0.41205, "0.4121"),
        ("brier", 0.0922, "0.0922"),
        ("ece_debiased", -0.00001, "0.00"),
        ("ece", math.nan, "–"),
    ],
)
def test_shares_are_percent_and_others_are_not(metric, value, written):
    assert text.format_metric(metric, value) == written


def test_differences_carry_their_sign_and_zero_has_none():
    assert text.format_metric("ece", 0.012, signed=True) == "+1.20"
    assert text.format_metric("nll", -0.5, signed=True) == "-0.5000"
    assert text.format_metric("ece", -0.000001, signed=True) == "0.00"


def test_headings_tell_unit_and_direction():
    assert text.heading("ece") == "ECE (%) ↓"
    assert text.heading("accuracy") == "Accuracy (%) ↑"
    assert text.heading("nll") == "NLL (nats) ↓"
    assert text.heading("ece_null") == "ECE null (%)"
    assert text.heading("l1_ts") == "L1 error (temperature)"


def test_a_bound_has_no_best_value():
    """It may be closer for one model than for another."""
    rows = pd.DataFrame({"accuracy_mean": [0.9, 0.9], "l1_ts_mean": [0.1, 0.2], "nll_mean": [2, 1]})
    assert best_rows(rows, ["l1_ts", "nll"]) == {"l1_ts": set(), "nll": {1}}


def test_every_metric_has_a_name_and_a_heading():
    assert set(METRICS) <= set(text.NAMES)
    assert all(text.heading(metric) for metric in METRICS)


@pytest.mark.parametrize(
    ("p", "written"), [(0.0004, "< 0.001"), (0.04951, "0.050"), (math.nan, "–")]
)
def test_p_values(p, written):
    assert text.p_value(p) == written


@pytest.mark.parametrize(
    ("value", "written"),
    [(1234.5, "1,234"), (35.26, "35.3"), (1.7, "1.70"), (0.00269, "0.0027"), (0.0, "0.0")],
)
def test_seconds_have_three_digits(value, written):
    assert text.seconds(value) == written


def test_a_deviation_has_the_decimals_of_its_mean():
    assert text.seconds(0.0619, like=1.7) == "0.06"


def test_spread_is_the_deviation_over_seeds_or_the_interval_of_one_seed():
    assert text.spread("ece", 3, 0.01, 0.02, 0.04) == "± 1.00"
    assert text.spread("ece", 1, math.nan, 0.02, 0.04) == "[2.00, 4.00]"
    assert text.spread("ece_null", 1, math.nan, math.nan, math.nan) == ""


def test_counts_and_lists():
    assert [text.count(1, "seed"), text.count(1200, "image")] == ["1 seed", "1,200 images"]
    assert text.listed(["a"]) == "a"
    assert text.listed(["a", "b", "c"]) == "a, b and c"


def test_one_point_of_accuracy_is_kept_and_more_is_not():
    rows = pd.DataFrame({"accuracy_mean": [0.95, 0.94, 0.9399]})
    assert list(keeps_accuracy(rows)) == [True, True, False]


def test_accuracy_is_lost_if_more_than_a_point_is_between_both_intervals():
    rows = pd.DataFrame({"accuracy_mean": [0.95, 0.93, 0.92]})
    rows = rows.assign(accuracy_ci_low=rows["accuracy_mean"] - 0.005)
    rows = rows.assign(accuracy_ci_high=[0.955, 0.9355, 0.9345])
    assert list(keeps_accuracy(rows)) == [True, True, False]
    rows.loc[0, "accuracy_ci_low"] = 0.94  # the noise of the best counts as that of the others
    assert list(keeps_accuracy(rows)) == [True, True, True]


def test_brier_decides_between_equal_nll():
    rows = pd.DataFrame({"method": ["a", "b"], "brier_mean": [0.2, 0.1]})
    ranked = rank_rows(rows.assign(accuracy_mean=0.9, nll_mean=0.3))
    assert list(ranked["method"]) == ["b", "a"]


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 5)), min_size=1, max_size=8))
@settings(deadline=None, max_examples=50)
def test_ranked_rows_come_first_and_in_order_of_nll(pairs):
    rows = pd.DataFrame(pairs, columns=["accuracy_mean", "nll_mean"])
    ranked = rank_rows(rows.assign(brier_mean=0.1, method="a"))
    kept = ranked[ranked["keeps_accuracy"]]
    assert list(ranked["keeps_accuracy"]) == sorted(ranked["keeps_accuracy"], reverse=True)
    assert kept["nll_mean"].is_monotonic_increasing
    assert list(kept["place"]) == list(range(1, len(kept) + 1))
    assert ranked.loc[~ranked["keeps_accuracy"], "place"].isna().all()


def test_a_debiased_error_below_zero_is_no_better_than_zero():
    rows = pd.DataFrame({"ece_debiased_mean": [-0.01, -0.002, 0.01]})
    assert best_rows(rows, ["ece_debiased"]) == {"ece_debiased": {0, 1}}


WORDS = '=HYPERLINK("http://x")\r\n| <img src=x> [a](b) *b* & &lt; `c` \\ 5 < 6 {$_%#}~^'


def test_words_stay_words_in_markdown_and_latex_and_take_one_line():
    assert text.markdown(WORDS) == (
        '=HYPERLINK("http://x") \\| \\<img src=x> [a\\](b) \\*b\\* & \\&lt; '
        "\\`c\\` \\\\ 5 < 6 {$_%#}~^"
    )
    assert text.latex(WORDS).endswith(
        "5 $<$ 6 \\{\\$\\_\\%\\#\\}\\textasciitilde{}\\textasciicircum{}"
    )
    assert "\n" not in text.latex(WORDS)
    assert text.latex("Δ NLL ≤ 5 %² of Łódź") == "$\\Delta$ NLL $\\leq$ 5 \\%$^2$ of Łódź"
    assert text.latex("λ, ς, Σ, μ") == "$\\lambda$, U+03C2, $\\Sigma$, $\\mu$"
    assert text.latex("中") == "U+4E2D"
    assert text.latex("-0.3 [-1, 2], a-1, 1-2 (< 0.1 | > 2)") == (
        "$-$0.3 [$-$1, 2], a-1, 1-2 ($<$ 0.1 $\\vert$ $>$ 2)"
    )
    for plain in ("maccal+mbls", "0.41 [0.39, 0.43]", "< 0.001", "Δ NLL (p; Holm)", "–1.2"):
        assert text.markdown(plain) == plain


def test_differences_in_sentences_have_two_digits_of_their_interval():
    assert text.difference("nll", -0.199, -0.325, -0.073) == "lower by 0.20 nats [0.07, 0.33]"
    points = text.difference("accuracy", 0.0123, 0.0071, 0.0175)
    assert points == "higher by 1.23 points [0.71, 1.75]"
    # roots of squares: 3 % is the root of 9e-4
    assert text.difference("squared_ce", -9e-4, -16e-4, -4e-4) == "lower by 3.0 % [2.0, 4.0]"
    assert text.size("brier", 0.0486) == "0.049"
    assert text.size("accuracy", 0.0524) == "5.2 points"
    assert text.size("nll", 0.00001) == "0.0000 nats"


@given(st.floats(-1, 1))
def test_a_square_is_shown_as_its_root_with_its_sign(value):
    root = text.shown("squared_ce", value)
    assert np.sign(root) == np.sign(value)
    assert (root / 100) ** 2 == pytest.approx(abs(value))


def test_no_word_of_a_csv_file_is_a_formula_and_numbers_keep_their_digits():
    words = ["=1+1", "+A1", "-A1", "@x", " \t=1", "＝1", "-1.5", "a\rb", "mixup+ls", None]
    columns = {"words": words, "kinds": pd.Categorical(words), "numbers": np.float32(-0.1)}
    frame = pd.DataFrame(columns)
    written = io.StringIO(text.csv(frame))
    read = pd.read_csv(written, dtype={"words": str, "kinds": str}, keep_default_na=False)
    plain = ["-1.5", "a\nb", "mixup+ls", ""]
    expected = [*(f"'{word}" for word in words[:6]), *plain]
    assert read["words"].tolist() == read["kinds"].tolist() == expected
    assert text.csv(frame).splitlines()[1] == "'=1+1,'=1+1,-0.1"
