"""The report is one file that says what was found and shows every table and figure."""

import base64
import platform
import re
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy
from tests.report.conftest import CLEAN, PAIR, THREE

from calgrid import __version__
from calgrid.components.registry import describe
from calgrid.errors import DataError
from calgrid.papers.report import write_report
from calgrid.papers.smart.diagnostics import FILES as DIAGNOSED
from calgrid.report import captions
from calgrid.report.findings import _parts, calibration, findings, recommendation
from calgrid.report.index import read_index, write_index
from calgrid.report.provenance import _sources, bibtex
from calgrid.report.recipes import best_of_all
from calgrid.report.study import StudyData
from calgrid.storage.records import FILES, listed, read_record, write_record
from calgrid.storage.schema import STUDY_FILES

VOID = {"meta", "img", "br", "link", "input", "hr"}


class Page(HTMLParser):
    """Elements of a page with their attributes; complains about tags that do not match."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.text = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def report(written):
    """Report of a study with its tables, without figures."""
    written.tables()
    write_index(written.folder / "figures", [])
    write_report(written.folder, written.manifest, written.folder / "report.html")
    return (written.folder / "report.html").read_text()


@pytest.fixture(scope="module")
def text(study, tables, figures):
    write_report(study.folder, study.manifest, study.folder / "report.html")
    return (study.folder / "report.html").read_text()


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


@pytest.fixture(scope="module")
def ablation_text(ablation, ablation_tables, ablation_figures):
    write_report(ablation.folder, ablation.manifest, ablation.folder / "report.html")
    return (ablation.folder / "report.html").read_text()


def test_the_page_needs_nothing_else_and_links_to_its_files(study, text, page):
    assert "http" not in text
    assert not page.all("link")
    for tag in ("script", "img", "iframe"):
        for attributes in page.all(tag):
            place = attributes.get("src", "")
            assert place == "" or place.startswith("data:image/png;base64,")
    links = [link["href"] for link in page.all("a")]
    files = [link for link in links if not link.startswith("#")]
    assert all((study.folder / name).is_file() for name in files)
    ids = [entry["id"] for entry in read_index(study.folder / "tables")]
    drawn = [entry["id"] for entry in read_index(study.folder / "figures")]
    expected = [f"tables/{id}.{suffix}" for id in ids for suffix in ("csv", "tex", "md")]
    expected += [f"figures/{id}.{suffix}" for id in drawn for suffix in ("pdf", "svg", "png")]
    assert sorted(files) == sorted(expected)
    assert "@import" not in text
    assert "url(" not in text


def test_every_figure_is_embedded_with_its_caption_as_alternative_text(study, page):
    entries = read_index(study.folder / "figures")
    images = page.all("img")
    assert len(images) == len(entries) == 8
    by_caption = {image["alt"]: image["src"] for image in images}
    for entry in entries:
        content = base64.b64decode(
            by_caption[entry["caption"]].removeprefix("data:image/png;base64,")
        )
        assert content == (study.folder / "figures" / entry["file"]).read_bytes()


def test_every_table_is_shown_with_title_caption_and_scoped_headers(study, text, page):
    words = page.words
    for entry in read_index(study.folder / "tables"):
        assert entry["title"] in words
        shown, more = captions.folded(entry["caption"])
        assert f"{shown} Details {more}" in words if more else shown in words
        assert f'id="table-{entry["id"]}"' in text
    assert {header.get("scope") for header in page.all("th")} == {"col", "row"}


def test_no_visible_caption_has_more_than_40_words(text, ablation_text):
    for page in (text, ablation_text):
        shown = re.findall(r'<p class="shown">(.*?)</p>', page, re.DOTALL)
        assert len(shown) == page.count("</article>") + page.count("</figure>") > 10
        assert max(len(words.split()) for words in shown) <= 40


def test_a_caption_is_folded_between_sentences():
    assert captions.folded("One. Two.") == ("One. Two.", "")
    long = " ".join(["word"] * 39)
    assert captions.folded(f"{long} end. More here, 0.5 %. Last.") == (
        f"{long} end.",
        "More here, 0.5 %. Last.",
    )


def test_navigation_leads_to_every_section(page):
    inside = [link["href"] for link in page.all("a") if link["href"].startswith("#")]
    first, *targets = [link.removeprefix("#") for link in inside]
    assert first == "cite"
    sections = [section["id"] for section in page.all("section")]
    assert targets == sections
    expected = "summary methods calibrators shift out-of-distribution training costs provenance"
    assert sections == expected.split()


def test_findings_repeat_the_summary(study):
    data, group = study.opened()
    said = " ".join(findings(data, group))
    row = 100 * data.test(group, ["none"]).set_index("method").select_dtypes(float).loc["ce"]
    for sentence in (
        f"`ce` has a debiased ECE of {row['ece_debiased_mean']:.2f} % (95 % interval ",
        f"plain ECE is {row['ece_mean']:.2f} %",
        f"with its confidences is {row['ece_null_mean']:.2f} % on 240 images",
    ):
        assert sentence in said
    assert "Under corruption of severity 5" in said
    assert "Warning" not in said


def test_warnings_of_fits_have_the_range_of_their_numbers_and_name_the_runs(study):
    data, group = study.opened()
    texts = {
        "4.40 % of 81 rows are at the bound 2.": ["ce 0"],
        "13.00 % of 81 rows are at the bound 2.": ["ce 1", "ls 0"],
        "It is the largest.": ["mmce 2"],
    }
    entry = {**group._asdict(), "calibrator": "ts", "fits": 9, "warned": 4, "texts": texts}
    data.fit_warnings = [entry, {**entry, "dataset": "another"}]
    (warning,) = [sentence for sentence in findings(data, group) if sentence.startswith("Warning")]
    assert warning.endswith(
        "or did not converge: `ts` 4 of 9 (4.40 to 13.00 % of 81 rows are at the bound 2: ce 0, "
        "ce 1 and ls 0; It is the largest: mmce 2)."
    )


def test_harm_of_calibration_is_said_with_its_numbers_and_as_plainly_as_help(study):
    data, group = study.opened()
    rows = []
    for method, nll, error in (("ce", "better", "tie"), ("ls", "worse", "worse")):
        pair = {**group._asdict(), "method": method, "calibrator": "ts", "against": method}
        pair |= {"against_calibrator": "none"}
        rows += [{**pair, "metric": "nll", "verdict": nll}]
        rows += [{**pair, "metric": "squared_ce", "verdict": error}]
    data.clean_tests = pd.DataFrame(rows)
    own = data.test(group).set_index(["method", "calibrator"])
    nll = own.loc[[("ls", "none"), ("ls", "ts")], "nll_mean"]
    ece = 100 * own.loc[[("ls", "none"), ("ls", "ts")], "ece_debiased_mean"]
    assert calibration(data, group, "worse") == (
        "Calibration worsens the NLL with `ts` on `ls` (NLL {:.4f} to {:.4f} nats); the "
        "calibration error with `ts` on `ls` (ECE debiased {:.2f} to {:.2f} %).".format(*nll, *ece)
    )
    assert calibration(data, group, "better") == ("Calibration improves the NLL with `ts` on `ce`.")
    assert recommendation(data, group)[-1].startswith("Calibration worsens")


def test_the_recommendation_is_the_simplest_that_is_not_worse_with_its_test(make, study):
    data, group = study.opened()
    found = best_of_all(data, group)
    said = recommendation(data, group)[0]
    tied = {*map(tuple, found.tied[["method", "calibrator"]].to_numpy())}
    tied.add((found.best["method"], found.best["calibrator"]))
    assert (("ce", "none") in tied) == said.startswith(
        "Use `ce` without calibration, the simplest: NLL "
    )
    data, group = make(methods=("mixup",), seeds=(0, 1, 2, 3), **CLEAN, n_test=1000).opened()
    found = best_of_all(data, group)
    (said,) = recommendation(data, group)
    test = found.others.iloc[0]
    assert found.best["calibrator"] == "ts"
    assert test[["calibrator", "verdict"]].tolist() == ["none", "worse"]
    assert 0 < test["ci_low"] < test["difference"] < test["ci_high"]
    assert said.startswith(f"Use `ts`: NLL {text_of(found.best)}")
    words = re.search(r"The NLL of no calibration is higher by .* nats \[(.*), (.*)\]\.", said)
    assert float(words[1]) == pytest.approx(test["ci_low"], abs=0.006)
    assert float(words[2]) == pytest.approx(test["ci_high"], abs=0.006)


@pytest.mark.parametrize(
    ("verdict", "named"), [("tie", "`ce` without calibration"), ("better", "`ce` with `ts`")]
)
def test_a_temperature_that_makes_the_baseline_better_is_recommended_with_it(study, verdict, named):
    data, group = study.opened()
    tests = data.clean_tests.copy()
    pair = {"method": "ce", "calibrator": "ts", "against": "ce", "against_calibrator": "none"}
    here = (tests[list(pair)] == pd.Series(pair)).all(axis=1) & (tests["metric"] == "nll")
    assert here.any()
    tests.loc[here, "verdict"] = verdict
    data.clean_tests = tests
    assert recommendation(data, group)[0].startswith(f"Use {named}, the simplest: NLL ")


def test_without_the_baseline_no_other_method_stands_for_it(make):
    study = make(methods=("fl3", "brier"), seeds=(0, 1, 2), **CLEAN)
    data, group = study.opened()
    best = best_of_all(data, group).best["method"]
    assert best != data.methods[0]
    assert recommendation(data, group)[0].startswith(f"Use `{best}`")
    reading = " ".join(captions.reading(data))
    assert "No method is tested against ce, the baseline, which is not among them" in reading
    (rows,) = study.shown("overview").values()
    assert "NLL against the best" in rows[0]
    assert "NLL against ce" not in rows[0]


def text_of(row):
    return f"{row['nll_mean']:.4f} nats, accuracy {100 * row['accuracy_mean']:.2f} %"


def test_the_first_line_of_a_report_is_its_recommendation(study, page):
    said = recommendation(*study.opened())[0].replace("`", "")
    words = page.words
    first = words.index(" ".join(said.split()[:6]))
    assert first < words.index("Methods at a glance")
    assert first < words.index("9 runs")


def test_the_report_answers_before_and_after_calibration(make):
    asked = {"question": "Is it better?", "method": "mmce", "against": "ce"}
    study = make(methods=("ce", "mmce"), **CLEAN, n_test=1000, comparisons=(asked,))
    words = Page(report(study)).words
    answer = words.split("Is it better? ")[1].partition(" In brackets")[0]
    assert answer.startswith("mmce against ce Before calibration, worse: NLL higher by 0.")
    before, after = answer.split(" After ts, ")
    assert after.startswith("worse: NLL higher by 0.")
    for said in (before, after):
        assert re.search(r"; no difference found in [^;]+ \(detectable: ", said)
    assert "p 0" not in answer
    assert "p <" not in answer
    frame = pd.read_csv(study.folder / "tables" / "tests.csv")
    own = frame.query("method == 'mmce' and against == 'ce' and metric == 'nll'")
    families = own[own["calibrator"] == own["against_calibrator"]]["family"]
    assert set(families) == {"questions about methods, none", "questions about methods, ts"}


def test_methods_gain_what_one_temperature_gives_or_more(study):
    data, group = study.opened()
    verdicts = {"ls": ("better", "tie"), "mmce": ("better", "worse"), "mixup": ("tie", "tie")}
    rows = []
    for method, found in verdicts.items():
        for metric, verdict in zip(("nll_calibration", "nll_refinement"), found, strict=True):
            rows.append({"method": method, "metric": metric, "verdict": verdict})
    pair = {"calibrator": "none", "against": "ce", "against_calibrator": "none"}
    data.clean_tests = tests = pd.DataFrame(rows).assign(**group._asdict(), **pair)
    data.methods = ["ce", *verdicts]
    assert _parts(data, group) == (
        "In NLL against `ce` before calibration, `ls` gains only what one temperature would give; "
        "`mmce` loses what no temperature gives back; `mixup` shows no significant difference in "
        "either part of it."
    )
    tests["verdict"] = ["better", "equivalent"] * 3
    assert "all 3 methods gain only what one temperature would give." in _parts(data, group)
    data.methods.remove("mixup")
    data.clean_tests = tests[tests["method"] != "mixup"]
    assert ", both methods gain only what one temperature would give." in _parts(data, group)


def test_a_calibrator_far_worse_than_none_is_a_finding(build):
    study = build(**PAIR)
    path = study.folder / "summary.parquet"
    summary = pd.read_parquet(path)
    worse = "calibrator == 'ts' and method == 'ls' and metric == 'nll' and split == 'test'"
    summary.loc[summary.query(worse).index, "mean"] = 9.0
    summary.to_parquet(path)
    data, group = study.opened()
    (warning,) = [sentence for sentence in findings(data, group) if sentence.startswith("Warning")]
    assert "more than 2 times the NLL" in warning
    assert "`ts` on `ls` (9.0000 against" in warning


def test_what_must_be_said_of_a_data_set_is_the_first_finding_and_the_first_reading(study):
    runs = [{**run, "warning": "val is test"} for run in study.manifest["runs"]]
    data = StudyData(study.folder, {**study.manifest, "runs": runs})
    assert findings(data, data.groups[0])[0] == "Warning: on `digits`, val is test."
    assert captions.reading(data)[0] == "Warning: on digits, val is test."


def test_no_sentence_shows_an_ece_value_without_accuracy(study):
    for sentence in findings(*study.opened()):
        if re.search(r"ECE (of )?\d", sentence):
            assert "accuracy" in sentence


def test_provenance_lists_fingerprints_versions_and_configuration(study, page):
    words = page.words
    assert study.manifest["fingerprint"] in words
    for run in study.manifest["runs"]:
        assert run["fingerprint"] in words
    assert "networks 0.1.0 3.11.0 2.11.0 cpu x86_64 1 9" in words
    python, libraries = platform.python_version(), (np.__version__, scipy.__version__)
    assert " ".join(["calibrators and metrics", __version__, python, *libraries]) in words
    assert "Made with several versions" not in words
    assert "study: synthetic" in words
    assert "MIT licence" in words
    assert describe("loss", "ls").source in words


def test_a_stage_that_was_made_with_several_versions_is_named(build):
    study = build(methods=("ce",), seeds=(0, 1), external=True, **CLEAN)
    path = study.folder / "runs.json"
    runs = read_record(path)["runs"]
    runs[1]["environments"][1]["scipy"] = "1.0.0"
    runs[0]["environments"].append({"stage": "sharpness", "scipy": "1.1.0"})
    write_record(path, {"runs": runs})
    made = {"environment": {"scipy": "1.15.0"}, FILES: listed(study.folder, STUDY_FILES)}
    write_record(study.folder / ".calgrid/aggregate-0.json", made)
    words = Page(report(study)).words
    assert words.count(f"calibrators and metrics {__version__} ") == 2
    assert "statistics 1.15.0 1" in words
    assert "sharpness 1.1.0 1" in words
    said = "Made with several versions: calibrators and metrics with SciPy "
    assert f"{said}1.0.0, {scipy.__version__}." in words


def test_a_study_and_the_papers_of_its_methods_can_be_cited(study):
    data, _ = study.opened()
    entries = bibtex(data)
    assert entries.startswith("@software{calgrid,\n")
    assert f"study synthetic, {'f' * 16}" in entries
    cited = re.findall(r"^@misc{([^,]+),", entries, re.MULTILINE)
    assert len(cited) == len(set(cited))
    assert {"ls", "mmce", "ts"} <= set(cited)
    assert "ce" not in cited  # maximum likelihood has no paper
    guo = next(entry for entry in entries.split("\n\n") if entry.startswith("@misc{ts,"))
    assert guo.splitlines()[2] == "  year = {2017}"
    assert entries.count("{") == entries.count("}")


def test_sources_of_a_librarys_members_are_those_of_the_library():
    keys = pd.DataFrame(
        {"dataset": "theirs", "backbone": ["timm/test_vit", "resnet8", "somebodys"]}
    )
    manifest = {"runs": [], "configuration": {}}
    data = SimpleNamespace(manifest=manifest, keys=keys, methods=["theirs"], calibrators=[])
    rows = _sources(data)
    expected = {name: describe("backbone", name).source for name in ("resnet8", "timm/test_vit")}
    assert rows == [(name, "backbone", source) for name, source in expected.items()]


def test_one_seed_and_external_logits(external, external_figures, tmp_path):
    external.tables()
    write_report(external.folder, external.manifest, tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text())
    assert len(page.all("img")) == len(read_index(external_figures)) == 4
    words = page.words
    assert "1 network · 1 calibrator" in words
    for word in ("Seeds", "Checkpoint", "several seeds", "Methods are tested"):
        assert word not in words
    sections = [section["id"] for section in page.all("section")]
    assert sections == ["summary", "methods", "calibrators", "costs", "provenance"]
    assert "external logits" in words


def test_methods_that_cannot_be_tested_are_not_recommended(make):
    first, *others = recommendation(*make(**PAIR).opened())
    assert first.endswith(
        ", but cannot be tested against other methods: a test needs two common seeds or more."
    )
    method = first.split("`")[1]
    assert not others or f"`{method}`" in others[0]


def test_names_are_escaped(make):
    study = make(**PAIR)
    study.manifest["configuration"]["study"] = "<script>alert(1)</script> & <b>"
    text = report(study)
    assert "<script>alert" not in text
    assert "&lt;/script&gt; &amp; &lt;b&gt;" in text


def test_a_missing_index_is_one_sentence(study, tmp_path):
    for name in (*STUDY_FILES, *DIAGNOSED):
        (tmp_path / name).write_bytes((study.folder / name).read_bytes())
    with pytest.raises(DataError, match=r"index of tables or figures .* does not exist"):
        write_report(tmp_path, study.manifest, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_a_summary_of_another_manifest_is_refused(study):
    with pytest.raises(DataError, match="not in its manifest"):
        _ = StudyData(study.folder, {**study.manifest, "runs": []}).groups


def test_what_nobody_reads_in_one_page_is_named_and_linked(build, monkeypatch):
    for place in ("table.SHOWN_ROWS", "provenance.SHOWN_ROWS", "html.SHOWN_FIGURES"):
        monkeypatch.setattr(f"calgrid.report.{place}", 1)
    study = build(**THREE)
    study.tables("methods")
    facts = {"title": "T", "caption": "", "category": "Methods", "figure": "kind"}
    facts["photographs"] = False
    write_index(
        study.folder / "figures", [{"id": f"{n}+", "file": f"{n}+.png", **facts} for n in "xyz"]
    )
    (study.folder / "figures" / "x+.png").write_bytes(b"")  # the others are not read
    write_report(study.folder, study.manifest, study.folder / "report.html")
    page = Page((study.folder / "report.html").read_text())
    links = [each["href"] for each in page.all("a")]
    assert len(page.all("img")) == 1
    linked = ["pdf", "svg", "png"]
    assert [each for each in links if "figures" in each] == [
        *(f"figures/x%2B.{suffix}" for suffix in linked),
        *("figures/y%2B.png", "figures/z%2B.png"),
    ]
    assert links[-2:] == ["manifest.json", "runs.json"]
    methods = next(each for each in read_index(study.folder / "tables") if each["id"] == "methods")
    assert (len(methods["sections"]), methods["further"]) == (1, ["digits, b", "digits, c"])
    assert "In the file only: digits, b; digits, c." in page.words
    assert "combinations of method" not in page.words
    monkeypatch.setattr("calgrid.report.table.SHOWN_ROWS", 3)
    study.tables("methods")
    write_report(study.folder, study.manifest, study.folder / "report.html")
    _, _, article = (study.folder / "report.html").read_text().partition('id="table-methods"')
    opened = re.findall('<details class="group"( open)?>', article.partition("</article>")[0])
    assert opened == [" open", "", ""]


def test_cells_can_be_sorted_by_their_full_value(study, page):
    values = {float(cell["data-sort"]) for cell in page.all("td") if "data-sort" in cell}
    summary = pd.read_parquet(study.folder / "summary.parquet")
    rows = summary[(summary["split"] == "test") & (summary["metric"] == "nll")]
    assert set(rows["mean"]) <= values


def test_methods_that_see_validation_data_are_marked_everywhere(ablation, ablation_text):
    words = Page(ablation_text).words
    assert "† sees validation data during training, unlike the other methods" in words
    assert "ce, ls, adafocal†, fedlas_ls" in words  # what was run
    ablation.manifest["configuration"]["statistics"]["baseline"] = "adafocal"
    said = " ".join(findings(*ablation.opened()))
    ablation.manifest["configuration"]["statistics"]["baseline"] = "ce"
    assert "`adafocal`†" in said
    assert "`adafocal` " not in said


def test_the_questions_of_a_study_come_first(ablation, ablation_text):
    text = ablation_text
    tables = re.findall(r'id="table-([a-z_]+)"', text)
    assert tables[:2] == ["overview", "comparisons"]
    assert text.index('<section id="methods">') < text.index('id="table-comparisons"')
    first = ablation.manifest["configuration"]["statistics"]["comparisons"][0]["question"]
    answers = text.split("<h2>Methods")[0]
    assert answers.index(first) < answers.index('id="table-overview"')
    assert 'id="table-indicator"' in text.split('<section id="training">')[1]


def test_a_test_split_of_a_few_images_is_warned_of(build):
    study = build(**PAIR)
    warning = "too few to say how well a network is calibrated"
    assert not any(warning in said for said in findings(*study.opened()))
    path = study.folder / "metrics.parquet"
    pd.read_parquet(path).assign(n_samples=19).to_parquet(path)
    first = findings(*study.opened())[0]
    assert first == f"Warning: the clean test split has 19 images, {warning}."


def test_networks_that_predict_one_class_are_named_with_the_share_of_the_largest(build):
    study = build(methods=("ce", "ls"), seeds=(0, 1), **CLEAN)
    path = study.folder / "classes.parquet"
    classes = pd.read_parquet(path)
    collapsed = (classes["method"] == "ls") & (classes["seed"] == 1)
    classes.loc[collapsed, "sensitivity"] = (classes["class"] == 2).astype(float)
    classes.to_parquet(path)
    (warning,) = [said for said in findings(*study.opened()) if "only one of" in said]
    counts = classes.drop_duplicates("class")["count"]
    assert warning == (
        "Warning: networks that predict only one of 4 classes correctly: `ls` (seed 1); their "
        f"accuracy is at most the share of the largest class, {100 * counts.max() / 240:.2f} %."
    )
