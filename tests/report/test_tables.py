"""Tables say what the summary says: same values, best in bold, nothing pooled, nothing invented."""

import itertools
import re
import sys

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel
from tests.report.conftest import CLEAN, PAIR, read_markdown

from calgrid.components import plugins
from calgrid.jobs.summaries import shift_means, write_summaries
from calgrid.papers.tables import write_tables
from calgrid.report.changes import changes, keep
from calgrid.report.index import read_index
from calgrid.report.recipes import best_of_all, best_of_methods
from calgrid.report.study import StudyData
from calgrid.report.tables import built, comparison, methods
from calgrid.storage.schema import HISTOGRAM_BINS, SHIFT_MEANS, SHIFT_SUMMARY, SUMMARY
from calgrid.storage.schema import METRICS as STORED
from calgrid.storage.tables import read_frame, write_frame

BESIDE_ECE = ("Accuracy", "NLL", "Brier", "ECE debiased", "ECE null")
PUBLISHED = """\
paper,table,dataset,backbone,method,calibrator,metric,shift,severity,value,std,unit,suspect
smart,1,digits,resnet8,ce,ts,ece,,0,1.38,,percent,
smart,1,cifar10,resnet8,ce,ts,ece,,0,9.99,,percent,
"""


@pytest.fixture(scope="module")
def summary(study):
    return StudyData(study.folder, study.manifest).rows("summary.parquet")


def means(summary, **where):
    rows = summary[np.logical_and.reduce([summary[key] == value for key, value in where.items()])]
    return rows.set_index("metric")


def plain(cell):
    return re.sub(r"\*\*|</?u>", "", cell).split(" ± ")


def test_every_table_with_rows_is_written_in_three_formats_and_no_other(tables):
    kinds = "overview methods tests each_two calibrators parts calibrator_ranks shift ood"
    kinds = f"{kinds} ood_scores costs training_time classes".split()
    files = {f"{kind}.{suffix}" for kind in kinds for suffix in ("csv", "md", "tex")}
    assert {path.name for path in tables.iterdir()} == {"index.json", *files}


def test_markdown_shows_percent_with_the_deviation_over_seeds(tables, summary):
    (rows,) = read_markdown(tables / "methods.md").values()
    assert {row["Method"] for row in rows} == {"ce", "ls", "mmce"}
    for row in rows:
        expected = means(summary, split="test", method=row["Method"], calibrator="none")
        shown = {"accuracy": "Accuracy (%) ↑", "ece": "ECE (%) ↓", "ece_null": "ECE null (%)"}
        for metric, heading in shown.items():
            mean, std = expected.loc[metric, ["mean", "std"]]
            assert plain(row[heading]) == [f"{100 * mean:.2f}", f"{100 * std:.2f}"]
        assert plain(row["NLL (nats) ↓"])[0] == f"{expected.loc['nll', 'mean']:.4f}"
        assert plain(row["Brier ↓"])[0] == f"{expected.loc['brier', 'mean']:.4f}"
        assert row["Seeds"] == "3"


def test_latex_has_the_cells_of_markdown(tables):
    (rows,) = read_markdown(tables / "methods.md").values()
    lines = (tables / "methods.tex").read_text().splitlines()
    begin, end = lines.index("\\midrule"), lines.index("\\bottomrule")
    assert lines[begin - 3] == "\\begin{tabular}{l" + "r" * (len(rows[0]) - 1) + "}"
    for line, row in zip(lines[begin + 1 : end], rows, strict=True):
        mean, std = plain(row["NLL (nats) ↓"])
        marked = row["NLL (nats) ↓"].split(" ± ")[0]
        shown = re.sub(r"\*\*(.*)\*\*", r"\\textbf{\1}", marked)
        shown = re.sub("<u>(.*)</u>", r"\\underline{\1}", shown)
        assert mean in shown
        assert line.split(" & ")[4] == f"{shown} {{\\scriptsize $\\pm$ {std}}}"
        assert line.endswith(" \\\\")


def test_the_overview_has_rank_interval_test_and_the_best_recipe(tables, summary):
    (rows,) = read_markdown(tables / "overview.md").values()
    (ranked,) = read_markdown(tables / "methods.md").values()
    for name in ("Method", "Rank"):
        assert [row[name].split()[0] for row in rows] == [row[name] for row in ranked]
    first = means(summary, split="test", method=rows[0]["Method"].split()[0], calibrator="none")
    for row in rows:
        method = row["Method"].split()[0]
        expected = means(summary, split="test", method=method, calibrator="none")
        ece, nll = expected.loc["ece_debiased"], expected.loc["nll"]
        assert row["NLL (nats) ↓"] == f"{nll['mean']:.4f} ± {nll['std']:.4f}"
        if row is not rows[0]:
            difference = nll["mean"] - first.loc["nll", "mean"]
            assert row["NLL against the best"].startswith(f"{difference:+.4f} ")
        ends = f"[{100 * ece['ci_low']:.2f}, {100 * ece['ci_high']:.2f}]"
        assert row["ECE debiased (%)"] == f"{100 * ece['mean']:.2f} {ends}"
        where = {"split": "test", "method": method, "metric": "nll"}
        nlls = means(summary, **where).set_index("calibrator")["mean"]
        best, other = nlls.sort_values().rename({"none": "uncalibrated"}).index
        first_words = f"{nlls.min():.4f} {best}"
        recipe = row["Best recipe: NLL (nats)"]
        assert recipe in (first_words, f"{first_words}, not worse: {other}")
        if method != "ce":
            cell = row["NLL against ce"]
            difference, said = cell.split(" ", 1)
            assert difference == f"{nll['diff_vs_baseline']:+.4f}"
            power = re.fullmatch(r"no difference found; detectable: (.+) nats", said)
            assert (power is None) == (nll["verdict"] != "tie")
            if power is None:
                assert said == nll["verdict"]
            else:
                assert float(power[1]) == pytest.approx(nll["detectable"], rel=0.05)


def test_csv_holds_fractions_with_all_digits(tables, summary):
    frame = pd.read_csv(tables / "calibrators.csv")
    for _, row in frame.iterrows():
        expected = means(summary, split="test", method=row["method"], calibrator=row["calibrator"])
        for metric in ("accuracy", "nll", "brier", "ece", "mce", "smce"):
            assert row[f"{metric}_mean"] == expected.loc[metric, "mean"]
            low = expected.loc[metric, "ci_low"]
            assert row[f"{metric}_ci_low"] == pytest.approx(low, nan_ok=True, abs=0)


def test_methods_are_ranked_by_nll_among_those_that_keep_accuracy(build):
    study = build(seeds=(0,), **CLEAN)
    metrics = pd.read_parquet(study.folder / "summary.parquet")
    chosen = {"accuracy": (0.95, 0.945, 0.93), "nll": (0.30, 0.20, 0.10), "brier": (0.1, 0.1, 0.1)}
    test = metrics["split"] == "test"
    for metric, values in chosen.items():
        for method, value in zip(("ce", "ls", "mmce"), values, strict=True):
            hit = test & (metrics["metric"] == metric) & (metrics["method"] == method)
            metrics.loc[hit, ["mean", "ci_low", "ci_high"]] = value
    metrics.to_parquet(study.folder / "summary.parquet")
    (rows,) = study.shown("methods").values()
    # mmce has the lowest NLL, but paid two points of accuracy for it
    assert [(row["Method"], row["Rank"]) for row in rows] == [
        ("ls", "1"),
        ("ce", "2"),
        ("Not ranked: more than 1 point and both intervals below the best accuracy, 95.00 %.", ""),
        ("mmce", "–"),
    ]
    assert [row["NLL (nats) ↓"].startswith("**") for row in rows] == [True, False, False, False]
    assert [row["Accuracy (%) ↑"].startswith("**") for row in rows] == [False, True, False, False]


def test_bold_is_the_best_calibrator_of_each_method(tables):
    (rows,) = read_markdown(tables / "calibrators.md").values()
    for method in ("ce", "ls", "mmce"):
        part = [row for row in rows if row["Method"] == method]
        bold = [row["NLL (nats) ↓"].startswith("**") for row in part]
        values = [float(plain(row["NLL (nats) ↓"])[0]) for row in part]
        assert bold == [value == min(values) for value in values]
    assert not any("**" in row["ECE null (%)"] for row in rows)  # a reference is never the best


@pytest.mark.parametrize("name", ["methods", "calibrators", "shift"])
def test_ece_is_never_shown_alone(tables, name):
    for rows in read_markdown(tables / f"{name}.md").values():
        headings = " ".join(rows[0])
        assert all(metric in headings for metric in ("ECE (%)", *BESIDE_ECE))


def test_shift_averages_corruptions_that_were_scored_one_by_one(study, tables):
    metrics = pd.read_parquet(study.folder / "metrics.parquet")
    sections = read_markdown(tables / "shift.md")
    severities = [f"severity {number}" for number in (1, 5)]
    headings = [heading.split(": ")[1] for heading in sections]
    assert headings == ["mean over all severities", *severities]
    rows = metrics.query("split == 'shift' and metric == 'ece' and method == 'ls'")
    rows = rows[rows["calibrator"] == "ts"].astype({"seed": int, "severity": int})
    by_seed = rows[rows["severity"] == 5].groupby("seed")["value"].mean()
    severe = sections["digits, resnet8: severity 5"]
    shown = next(row for row in severe if (row["Method"], row["Calibrator"]) == ("ls", "ts"))
    mean, std = by_seed.mean(), by_seed.std()
    assert plain(shown["ECE (%) ↓"]) == [f"{100 * mean:.2f}", f"{100 * std:.2f}"]
    assert shown["Corruptions"] == "2"
    overall = rows.groupby("seed")["value"].mean().mean()
    frame = pd.read_csv(tables / "shift.csv")
    row = frame[
        (frame["severity"] == -1) & (frame["method"] == "ls") & (frame["calibrator"] == "ts")
    ].iloc[0]
    assert row["ece_mean"] == pytest.approx(overall, rel=1e-12)


def test_shifts_without_severity_stand_under_their_own_name(make):
    study = make(
        methods=("ce",), seeds=(0,), shifts=("sketch",), severities=(0,), ood=(), resamples=0
    )
    assert list(study.shown("shift")) == ["digits, resnet8: sketch"]


@pytest.mark.parametrize(
    ("heading", "file", "place"),
    [
        ("digits, resnet8", SUMMARY, {"split": "test"}),
        ("digits, resnet8: mean over all severities", SHIFT_SUMMARY, {"severity": -1}),
    ],
)
def test_tests_show_the_differences_and_p_values_of_the_summary(
    tables, study, heading, file, place
):
    sections = read_markdown(tables / "tests.md")
    assert len(sections) == 2
    summary = StudyData(study.folder, study.manifest).rows(file)
    assert {row["Method"] for row in sections[heading]} == {"ls", "mmce"}
    for row in sections[heading]:
        where = {"method": row["Method"], "calibrator": row["Calibrator"]}
        expected = means(summary, **place, **where).loc["nll"]
        shown = row["Δ NLL (nats)"]
        cell = shown.replace("**", "")
        assert float(cell.split(" ")[0]) == pytest.approx(expected["diff_vs_baseline"], abs=5e-5)
        assert shown.startswith("**") == (expected["p_holm"] < 0.05)
        assert f"({expected['verdict']}" in cell
        assert cell.endswith(f"; {expected['p_holm']:.3f}; {expected['p_seeds']:.3f})")
        assert "(" not in row["Δ ECE (%)"]  # its verdict is that of the squared error
    frame = pd.read_csv(tables / "tests.csv")
    pair = ["method", "calibrator", "against", "against_calibrator", "split", "shift", "metric"]
    assert not frame.duplicated(pair).any()
    assert set(zip(frame["split"], frame["severity"], strict=True)) == {
        *(("test", 0), ("ood", 0), ("shift", -1))
    }
    assert {"against ce, ts", "calibrators of ls"} <= {*frame["family"]}


def test_each_two_methods_are_compared_in_both_directions(study, tables):
    data, group = study.opened()
    sections = read_markdown(tables / "each_two.md")
    assert list(sections) == ["digits, resnet8: uncalibrated", "digits, resnet8: calibrated by ts"]
    for calibrator, rows in zip(("none", "ts"), sections.values(), strict=True):
        shown = {row["Method"]: row for row in rows}
        for one, other in itertools.permutations(shown, 2):
            test = data.pairs(group).loc[("nll", one, calibrator, other, calibrator)]
            between = f"[{test.ci_low:+.4f}, {test.ci_high:+.4f}]"
            said = f"{test.difference:+.4f} {between} {test.verdict}, p "
            assert shown[one][f"minus {other}"].replace("**", "").startswith(said)


def test_costs_are_relative_to_the_baseline(tables):
    train = pd.read_csv(tables / "training_time.csv").set_index("method")
    assert train.loc["ce", "ratio_to_baseline"] == 1
    # the synthetic study takes 20 s, one more for each letter of the name, and the number of the
    # seed
    assert train.loc["mmce", "seconds"] == pytest.approx(25)
    assert train.loc["mmce", "ratio_to_baseline"] == pytest.approx(25 / 23)
    assert train.loc["ce", "seconds_std"] == pytest.approx(1)
    others = pd.read_csv(tables / "costs.csv")
    assert set(others["stage"]) == {"predict", "calibrate"}
    assert "none" not in set(others["item"].dropna())
    assert (others.loc[others["method"] == "ce", "ratio_to_baseline"] == 1).all()


def test_probes_and_jobs_of_a_new_kind_have_a_section_of_the_costs_with_one_row_each(build):
    study = build(**PAIR)
    path = study.folder / "costs.parquet"
    costs = pd.read_parquet(path)
    stage = costs[costs["stage"] == "predict"]
    probes = [
        stage.assign(stage="probe", item=name, seconds=seconds)
        for name, seconds in (("few", 3.0), ("angles", 0.5))
    ]
    of_new_kind = stage.assign(stage="sharpness", seconds=7.0)
    pd.concat([of_new_kind, costs, *probes]).to_parquet(path)
    *_, (heading, of_probes), (last, others) = study.shown("costs").items()
    assert heading == "digits, resnet8, protocol quick: probes"
    shown = [(row["Probe"], float(row["Seconds"])) for row in of_probes if row["Method"] == "ce"]
    assert shown == [("few", 3.0), ("angles", 0.5)]
    assert last == "digits, resnet8, protocol quick: sharpness"
    assert [float(row["Seconds"]) for row in others] == [7.0, 7.0]


def test_training_time_of_a_second_stage_holds_its_first_stage(build):
    study = build(methods=("ce", "ls"), seeds=(0, 1), **CLEAN)
    path = study.folder / "costs.parquet"
    costs = pd.read_parquet(path)
    first = costs.query("method == 'ce' and stage == 'train'").assign(
        method="ls", stage="first_stage", item="ce", peak_memory_mb=900.0
    )
    pd.concat([costs, first]).to_parquet(path)
    out = study.tables("training_time")
    frame = pd.read_csv(out / "training_time.csv").set_index("method")
    # 20 s, one more for each letter of the name, and the number of the seed, which has the mean 1/2
    expected = {"first_stage_seconds": 22.5, "own_seconds": 22.5, "seconds": 45}
    # both stages grow by a second a seed
    expected |= {"seconds_std": 2**0.5, "ratio_to_baseline": 2, "peak_memory_mb": 900}
    assert frame.loc["ls", list(expected)].to_dict() == pytest.approx(expected)
    assert frame.loc["ce", "seconds"] == pytest.approx(22.5)
    assert np.isnan(frame.loc["ce", "first_stage_seconds"])
    (rows,) = read_markdown(out / "training_time.md").values()
    assert [row["First stage"] for row in rows] == ["–", "ce"]


@pytest.mark.parametrize("device", ["another", None])
def test_training_times_of_different_or_unknown_devices_have_no_ratio(build, device):
    study = build(**PAIR)
    costs = pd.read_parquet(study.folder / "costs.parquet")
    names = costs["device_name"].astype(str)
    costs["device_name"] = names.mask(costs["method"] == "ls", device)
    costs.to_parquet(study.folder / "costs.parquet")
    out = study.tables("training_time")
    table = pd.read_csv(out / "training_time.csv").set_index("method").fillna({"device_name": ""})
    assert table["ratio_to_baseline"]["ce"] == 1
    assert np.isnan(table["ratio_to_baseline"]["ls"])
    assert table["device_name"]["ls"] == (device or "")


def test_seeds_of_a_calibrator_are_no_seeds_of_a_run(build):
    study = build(**PAIR)
    costs = pd.read_parquet(study.folder / "costs.parquet")
    fit = costs["item"] == "ts"
    costs.loc[fit, "seconds"] = 0.1
    pd.concat([costs, costs[fit].assign(seconds=0.3)]).to_parquet(study.folder / "costs.parquet")
    out = study.tables("costs")
    fits = pd.read_csv(out / "costs.csv").query("stage == 'calibrate' and method == 'ce'").iloc[0]
    assert fits["seconds"] == pytest.approx(0.2)
    assert np.isnan(fits["seconds_std"])


def test_published_numbers_stand_beside_ours_only_where_there_are_any(make, tmp_path):
    published = tmp_path / "published.csv"
    published.write_text(PUBLISHED)
    study = make(published=(published,), methods=("ce",), seeds=(0,), **CLEAN)
    (row,) = study.shown("published")["digits, resnet8"]
    assert (row["Method"], row["Calibrator"], row["Metric"]) == ("ce", "ts", "ECE (%)")
    assert (row["Published"], row["Source"]) == ("1.38", "smart t1")
    assert float(row["Difference"]) == pytest.approx(
        float(row["Ours"].split()[0]) - 1.38, abs=0.011
    )
    frame = pd.read_csv(study.folder / "tables/published.csv")
    assert list(frame["published"]) == [pytest.approx(0.0138)]


@pytest.fixture(scope="module")
def settings(make):
    """Tables of two networks with two checkpoints each."""
    two = {"backbones": ("resnet8", "resnet20"), "checkpoints": ("ema", "last")}
    return make(**two, **PAIR).tables("methods", "method_ranks")


def test_mean_ranks_of_two_settings(settings):
    (rows,) = read_markdown(settings / "method_ranks.md").values()
    assert {row["Settings"] for row in rows} == {"2"}
    ranks = [float(row["NLL rank ↓"].replace("**", "")) for row in rows]
    assert ranks == sorted(ranks)
    assert sum(ranks) == 3
    (base,) = [row for row in rows if row["Method"] == "ce"]
    assert base["NLL PHI ↑"] == "–"
    assert all(" ± " in row["Brier PHI ↑"] for row in rows if row is not base)


def test_mean_ranks_without_the_baseline_have_no_tests_against_it(build):
    study = build(methods=("ls", "mmce"), backbones=("resnet8", "resnet20"), seeds=(0,), **CLEAN)
    text = (study.tables("method_ranks") / "method_ranks.md").read_text()
    assert "NLL rank" in text
    assert not re.search(r"Holm|PHI|\bce\b", text)


def test_groups_are_told_apart_by_what_differs(settings):
    parts = itertools.product(("resnet8", "resnet20"), ("last", "ema"))
    headings = [f"digits, {backbone}, {checkpoint} checkpoint" for backbone, checkpoint in parts]
    assert list(read_markdown(settings / "methods.md")) == headings


def test_tables_of_an_external_study(external, tmp_path):
    """Only what was done; one seed has its bootstrap interval, and one method is not best."""
    write_tables(external.folder, external.manifest, tmp_path)
    written = {path.stem for path in tmp_path.glob("*.md")}
    assert written == {"methods", "calibrators", "parts", "classes", "costs"}
    assert "**" not in (tmp_path / "methods.md").read_text()
    (rows,) = read_markdown(tmp_path / "calibrators.md").values()
    summary = StudyData(external.folder, external.manifest).rows("summary.parquet")
    low, high = means(summary, split="test", calibrator="ts").loc["nll", ["ci_low", "ci_high"]]
    assert rows[1]["NLL (nats) ↓"].replace("**", "").endswith(f"[{low:.4f}, {high:.4f}]")
    caption = read_index(tmp_path)[0]["caption"]
    assert "bootstrap intervals over test images" in caption
    assert "one network each" in caption


def test_a_study_without_uncalibrated_networks_still_has_its_calibrators(make):
    study = make(**{**PAIR, "shifts": ("contrast",)}, calibrators=("ts",))
    (rows,) = read_markdown(study.tables() / "calibrators.md").values()
    assert not (study.folder / "tables/methods.md").exists()
    assert [row["Calibrator"] for row in rows] == ["ts", "ts"]


def test_calibrators_fitted_elsewhere_are_named_so(build):
    study = build(**PAIR)
    study.tables("calibrators")
    assert changes(study.folder) == []
    for name in ("metrics", "summary"):
        frame = pd.read_parquet(study.folder / f"{name}.parquet")
        fitted = frame["calibrator"] == "ts"
        frame["fit_on"] = np.where(fitted, "same_shift", frame["fit_on"].astype(str))
        frame.to_parquet(study.folder / f"{name}.parquet")
    keep(study.folder)
    (rows,) = study.shown("calibrators").values()
    assert {row["Calibrator"] for row in rows} == {"none", "ts (same_shift)"}
    place = "quick, digits, resnet8, last"
    assert sorted(changes(study.folder)) == [
        *(f"gone: {method} with ts ({place})" for method in ("ce", "ls")),
        *(f"new: {method} with ts (same_shift) ({place})" for method in ("ce", "ls")),
    ]


def test_index_repeats_title_caption_category_and_cells(tables):
    entries = {entry["id"]: entry for entry in read_index(tables)}
    for entry in entries.values():
        assert all(entry[key] for key in ("title", "caption", "category", "sections"))
        text = (tables / f"{entry['id']}.md").read_text()
        assert text.startswith(f"# {entry['title']}\n\n{entry['caption']}\n")
    assert "3 seeds" in entries["methods"]["caption"]
    assert "clean test split (240 images)" in entries["methods"]["caption"]


def test_every_metric_of_the_benchmark_has_a_column(tables):
    headers = [entry["sections"][0]["header"] for entry in read_index(tables)]
    shown = {heading.partition(" (%)")[0] for header in headers for heading in header}
    assert {"MCE", "AECE", "CECE", "O-ECE", "U-ECE", "AUROC"} < shown


def test_questions_are_answered_with_and_without_temperature_scaling(ablation_tables):
    (rows,) = read_markdown(ablation_tables / "comparisons.md").values()
    asked = ("Is the gain more than noise?", "Are validation data of use?")
    shown = [(row["Question"], row["Calibrator"]) for row in rows]
    assert shown == list(itertools.product(asked, ("none", "ts")))
    pairs = [(row["Method"], row["Against"]) for row in rows[1:3]]
    assert pairs == [("fedlas_ls", "ls"), ("adafocal†", "ce")]
    assert {row["Seeds"] for row in rows} == {"2"}


def test_questions_show_difference_noise_interval_and_p_values(ablation, ablation_tables):
    metrics = pd.read_parquet(ablation.folder / "metrics.parquet")
    rows = metrics.query("split == 'test' and metric == 'nll' and calibrator == 'none'")
    values = rows.pivot(index="seed", columns="method", values="value").astype(float)
    difference = values["fedlas_ls"] - values["ls"]
    test = ttest_rel(values["fedlas_ls"], values["ls"])
    frame = pd.read_csv(ablation_tables / "comparisons.csv")
    row = frame.query("method == 'fedlas_ls' and calibrator == 'none' and metric == 'nll'").iloc[0]
    assert row["difference"] == pytest.approx(difference.mean())
    assert row["std_seed"] == pytest.approx(difference.std())
    assert row["p_seeds"] == pytest.approx(test.pvalue)
    assert row["ci_low"] < difference.mean() < row["ci_high"]
    cell = next(iter(read_markdown(ablation_tables / "comparisons.md").values()))[0]
    shown = cell["Δ NLL (nats)"].replace("**", "")
    assert shown.startswith(
        f"{difference.mean():+.4f} ± {difference.std():.4f} [{row['ci_low']:+.4f}, "
    )
    assert shown.endswith(f"({row['p_holm']:.3f}; {row['p_seeds']:.3f})")


def test_the_answer_says_what_was_found_and_what_was_not():
    verdicts = {"nll": "better", "brier": "tie", "squared_ce": "worse", "accuracy": "equivalent"}
    rows = pd.DataFrame({"metric": verdicts.keys(), "verdict": verdicts.values()}).assign(
        decided_by=verdicts.keys(),
        p_holm=[0.0004, 0.2, 0.031, 0.9],
        detectable=0.0123,
        difference=[-0.199, 0, 0.0025, 0.001],
        ci_low=[-0.321, 0, 0.0016, 0],
        ci_high=[-0.073, 0, 0.0036, 0],
    )
    error = rows.iloc[:1].assign(metric="ece", decided_by="squared_ce")
    assert comparison._answer(pd.concat([rows, error])) == (
        "better: NLL lower by 0.20 nats [0.07, 0.32]; worse: Root of squared CE higher by 5.0 % "
        "[4.0, 6.0]; no difference found in Brier (detectable: 0.012); equivalent: Accuracy"
    )
    assert comparison._answer(rows.assign(verdict="no verdict")) == "no verdict"


def test_a_single_seed_answers_nothing_and_a_question_is_words(make):
    asked = {"question": "=HYPERLINK(1)\n<b>Is it?", "method": "ls", "against": "ce"}
    study = make(**{**PAIR, "resamples": 50}, calibrators=("none",), comparisons=(asked,))
    ((row,),) = study.shown("comparisons").values()
    assert row["Question"] == "=HYPERLINK(1) \\<b>Is it?"
    assert set(pd.read_csv(study.folder / "tables/comparisons.csv")["question"]) == {
        "'=HYPERLINK(1)\n<b>Is it?"
    }
    assert row["Answer"] == "no verdict"
    assert "±" not in row["Δ NLL (nats)"]


def test_methods_that_see_validation_data_carry_a_dagger_and_a_footnote(ablation_tables, tables):
    for entry in read_index(ablation_tables):
        text = (ablation_tables / f"{entry['id']}.md").read_text()
        if "adafocal" in text:
            assert entry["caption"].endswith("calibrators are fitted on the same data.")
            sections = read_markdown(ablation_tables / f"{entry['id']}.md").values()
            names = {row["Method"].split()[0] for rows in sections for row in rows}
            assert "adafocal†" in names
            assert "adafocal" not in names
    frame = pd.read_csv(ablation_tables / "methods.csv").set_index("method")
    assert frame.index[frame["sees_validation"]].tolist() == ["adafocal"]
    assert "†" not in "".join(path.read_text() for path in tables.iterdir())
    assert "†" not in (ablation_tables / "indicator.md").read_text()


def test_calibrators_whose_fits_did_not_converge_carry_a_mark_and_a_footnote(build, monkeypatch):
    entry = {"calibrator": "ts", "fits": 6, "warned": 2, "unconverged": 2, "first": "It stopped."}
    monkeypatch.setattr(StudyData, "fit_warnings", [entry])
    out = build(**PAIR).tables("methods", "calibrators")
    (entry,) = [each for each in read_index(out) if each["id"] == "calibrators"]
    assert entry["caption"].endswith("‡ fits that stopped before they converged: `ts` 2 of 6.")
    sections = read_markdown(out / "calibrators.md").values()
    names = {row["Calibrator"] for rows in sections for row in rows}
    assert {"ts‡", "none"} <= names
    assert "ts" not in names
    frame = pd.read_csv(out / "calibrators.csv")
    assert set(frame["calibrator"][~frame["converged"]]) == {"ts"}
    assert "‡" not in (out / "methods.md").read_text()


def test_what_must_be_said_of_a_data_set_stands_in_every_caption(study):
    runs = [{**run, "warning": "val is test"} for run in study.manifest["runs"]]
    data = StudyData(study.folder, {**study.manifest, "runs": runs})
    found = list(built(data, [methods.methods, comparison.tests]))
    assert len(found) == 2
    for table in found:
        assert table.caption.count("Warning: on digits, val is test.") == 1
        assert table.caption in table.markdown


def test_indicator_shows_the_last_epoch_over_seeds_and_none_if_it_is_constant(
    ablation, ablation_tables
):
    (rows,) = read_markdown(ablation_tables / "indicator.md").values()
    assert [row["Method"] for row in rows] == ["fedlas_ls", "fedlas_mbls", "fedlas_ls_const"]
    runs = [run for run in ablation.manifest["runs"] if run["key"]["method"] == "fedlas_ls"]
    last = pd.concat([pd.read_parquet(f"{run['train']}/history.parquet").tail(1) for run in runs])
    frame = pd.read_csv(ablation_tables / "indicator.csv").set_index("method")
    names = ("nci_correct_spearman", "nci_confidence_pearson", "positive_share", "flip_rate")
    for name in (*names, "mean_smoothing"):
        assert frame.loc["fedlas_ls", f"{name}_mean"] == pytest.approx(last[name].mean())
        assert frame.loc["fedlas_ls", f"{name}_std"] == pytest.approx(last[name].std())
    assert frame.loc["fedlas_ls", "n_seeds"] == 2
    share, std = 100 * last["positive_share"].mean(), 100 * last["positive_share"].std()
    assert plain(rows[0]["Positive mode (%)"]) == [f"{share:.2f}", f"{std:.2f}"]
    constant = rows[2]
    assert {constant[name] for name in constant if name.startswith("Indicator and")} == {"–"}
    assert constant["Mean smoothing"] != "–"


@pytest.mark.usefixtures("without_plugins")
def test_metrics_of_plugins_stand_in_the_tables_with_their_unit_and_direction(build, tmp_path):
    file = tmp_path / "own_in_tables" / "metrics" / "mine.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        "from calgrid.components.registry import register\n\n\n"
        '@register(source="a paper", lower_is_better=False, unit="number")\n'
        'def mine(probs, labels, n_bins):\n    """Minus the NLL."""\n'
    )
    plugins.use([tmp_path / "own_in_tables"])
    asked = {"question": "why", "method": "ls", "against": "ce"}
    few = {**PAIR, "shifts": ("contrast",), "severities": (3,)}
    study = build(datasets=("digits", "cifar10"), comparisons=(asked,), **few)
    metrics = read_frame(study.folder / STORED)
    own = metrics[metrics["metric"] == "nll"].assign(metric="mine")
    metrics = pd.concat(
        [metrics, own.assign(value=-own["value"], ci_low=-own["ci_high"], ci_high=-own["ci_low"])]
    )
    write_frame(study.folder / STORED, metrics)
    write_frame(study.folder / SHIFT_MEANS, shift_means(metrics))
    write_summaries(study.manifest, study.folder, map)
    study.manifest["configuration"]["statistics"]["metrics"] = ["mine"]
    out = study.tables("methods", "calibrators", "shift", "method_ranks")
    signs = str.maketrans("", "", "-+</u>")  # the plugin has no resamples, and no ties

    def shown(row, heading):
        return row[heading].split(" ")[0].translate(signs), "**" in row[heading]

    for table in ("methods", "calibrators", "shift"):
        for rows in read_markdown(out / f"{table}.md").values():
            for row in rows:  # the same numbers with the other sign: as good where the other is
                assert shown(row, "mine ↑") == shown(row, "NLL (nats) ↓")
    for rows in read_markdown(out / "method_ranks.md").values():
        assert [row["mine rank ↓"] for row in rows] == [row["NLL rank ↓"] for row in rows]


@pytest.fixture(scope="module")
def halved(make):
    """Logits of half their size: two calibrators that scale mend them, and none does not."""
    return make(
        methods=("mixup",),
        seeds=(0, 1, 2, 3),
        calibrators=("none", "ts", "ets"),
        **CLEAN,
        n_test=1000,
        comparisons=(
            {"question": "Does it help?", "calibrator": "ts", "against": "none"},
            {"question": "Two?", "calibrator": "ets", "against": "ts", "method": "mixup"},
        ),
    )


def test_questions_about_calibrators_find_what_is_true(halved):
    table = comparison.comparisons(halved.opened()[0])
    (section,) = table.sections
    rows = [
        dict(zip(section.header, (cell.text for cell in row), strict=True)) for row in section.rows
    ]
    shown = [[row[name] for name in ("Method", "Calibrator", "Against")] for row in rows]
    assert shown == [["mixup", "ts", "none"], ["mixup", "ets", "ts"]]
    assert rows[0]["Answer"].startswith("better: NLL lower by 0.020 nats [0.006, 0.034]")
    assert "better" not in rows[1]["Answer"]
    assert "worse" not in rows[1]["Answer"]


def test_the_best_recipe_names_what_ties_and_not_what_is_worse(halved):
    data, group = halved.opened()
    found = best_of_methods(data, group)["mixup"]
    assert {found.best["calibrator"], *found.tied["calibrator"]} == {"ts", "ets"}
    assert dict(found.others[["calibrator", "verdict"]].to_numpy())["none"] == "worse"


def test_classes_stand_with_their_images_and_means_over_seeds(study, tables):
    stored = pd.read_parquet(study.folder / "classes.parquet")
    (shown,) = read_markdown(tables / "classes.md").values()
    assert {row["Method"] for row in shown} == {"ce", "ls", "mmce"}
    gaps = [abs(float(row["Gap (points), none"].split()[0])) for row in shown]
    assert gaps == sorted(gaps, reverse=True)  # all have ten images or more
    assert len(gaps) == 4 * 3
    for row in shown:
        where = (stored["method"] == row["Method"]) & (stored["name"] == row["Class"])
        expected = {
            name: part.mean(numeric_only=True) for name, part in stored[where].groupby("calibrator")
        }
        bare = expected["none"]
        assert row["Images"] == str(int(bare["count"]))
        assert row["Predicted"] == str(round(bare["predicted"]))
        values = {
            "Sensitivity (%)": bare["sensitivity"],
            "Specificity (%)": bare["specificity"],
            "Precision (%)": bare["precision"],
            "Confidence (%), none": bare["confidence"],
            "Confidence (%), ts": expected["ts"]["confidence"],
        }
        for heading, value in values.items():
            assert plain(row[heading])[0] == f"{100 * value:.2f}", heading
        gap = bare["confidence"] - bare["precision"]
        assert row["Gap (points), none"].startswith(f"{100 * gap:+.2f} [")
        # Wilson's interval by its definition: ends where |share - p| is 1.96 standard errors of p
        sizes = {"Sensitivity (%)": bare["count"], "Precision (%)": bare["predicted"]}
        for heading, images in sizes.items():
            interval = re.search(r"\[(.*), (.*)\]", row[heading])
            for end in (float(text) / 100 for text in interval.groups()):
                error = np.sqrt(end * (1 - end) / images)
                assert abs(values[heading] - end) == pytest.approx(1.96 * error, abs=2e-4)


def test_shares_of_few_images_are_marked(make):
    (shown,) = make(methods=("ce",), seeds=(0,), n_test=30, **CLEAN).shown("classes").values()
    for images, share in (("Images", "Sensitivity (%)"), ("Predicted", "Precision (%)")):
        few = [int(row[images]) < 10 for row in shown]
        assert any(few)
        assert [row[share].endswith("few") for row in shown] == few


def test_of_many_classes_the_table_has_those_with_the_largest_gaps(make, monkeypatch):
    study = make(**PAIR)
    monkeypatch.setattr(sys.modules["calgrid.report.tables.classes"], "MOST_ROWS", 4)
    (shown,) = study.shown("classes").values()
    stored = pd.read_parquet(study.folder / "classes.parquet")
    rows = stored[stored["calibrator"] == "none"].set_index(["name", "method"])
    largest = (rows["confidence"] - rows["precision"]).abs().nlargest(4).index
    assert [(row["Class"], row["Method"]) for row in shown] == list(largest)


def test_groups_have_the_images_of_their_true_and_of_their_predicted_classes(make):
    study = make(**PAIR)
    for run in study.manifest["runs"]:
        run["class_groups"] = {"head": 3, "tail": 1}
    (shown,) = study.shown("class_groups").values()
    assert [row["Group"] for row in shown] == ["head (3 classes)"] * 4 + ["tail (1 class)"] * 4
    keys = ["method", "calibrator"]
    table = pd.read_csv(study.folder / "tables/class_groups.csv")
    groups = dict(list(table.set_index("class_group").groupby(keys)))
    bins = pd.read_parquet(study.folder / "bins.parquet")
    bins = dict(list(bins[bins["n_bins"] != HISTOGRAM_BINS].groupby(keys)))
    for key, own in pd.read_parquet(study.folder / "classes.parquet").groupby(keys):
        rows, last = groups[key], own.set_index("class").loc[3]
        tail = rows.loc["tail", ["accuracy_mean", "precision_mean"]].to_list()
        assert tail == pytest.approx([last["sensitivity"], last["precision"]])
        # each image is in one group, so that sums over groups are those of the test split
        confidence, correct = bins[key][["confidence", "correct"]].sum()
        assert (rows["accuracy_mean"] * rows["count"]).sum() == pytest.approx(correct)
        assert (rows["precision_mean"] * rows["predicted"]).sum() == pytest.approx(correct)
        over = (rows["gap_mean"] * rows["predicted"]).sum()
        assert over == pytest.approx(confidence - correct)


def test_with_one_seed_calibrators_of_a_network_are_tested_and_methods_are_not(make):
    study = make(**PAIR)
    out = study.tables("overview", "methods", "calibrators")
    (rows,) = read_markdown(out / "overview.md").values()
    assert not any("ties not tested" in row["Best recipe: NLL (nats)"] for row in rows)
    assert "With one seed ties are not tested." in (out / "methods.md").read_text()
    assert "for this network and other test images" in (out / "calibrators.md").read_text()
    data, _ = study.opened()
    for group in data.groups:
        assert not best_of_all(data, group).tested


def test_sets_out_of_distribution_have_sections_and_rows_with_the_mean_over_their_group(make):
    sets = ("ood/noise", "ood/photos")
    study = make(**{**PAIR, "ood": sets})
    out = study.tables("ood", "ood_scores")
    shown = ["mean over far sets", *(f"{name} (far)" for name in sets)]
    headings = [f"digits, resnet8 against {name}" for name in shown]
    assert list(read_markdown(out / "ood.md")) == headings
    sections = read_markdown(out / "ood_scores.md")
    assert list(sections) == [f"digits, resnet8: {name}" for name in ("AUROC", "FPR95", "AUPR")]
    rows = sections["digits, resnet8: AUROC"]
    scores = ["AUROC (%) ↑", *(f"AUROC {name} (%) ↑" for name in ("entropy", "MaxLogit", "energy"))]
    assert list(rows[0]) == ["Set", "Method", "Seeds", *scores]
    assert [row["Set"] for row in rows[::2]] == shown
    frame = pd.read_csv(out / "ood_scores.csv").pivot(index="shift", columns="method")
    energies = frame["auroc_energy_mean"]
    assert energies.loc[list(sets)].mean().to_numpy() == pytest.approx(
        energies.loc["far"].to_numpy()
    )
