"""Figures of probes show what the tables of the probes hold, and what was retrained under masks."""

import copy
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy.special import softmax
from scipy.stats import pearsonr, spearmanr

from calgrid.errors import StateError
from calgrid.reporting.figures import (
    confidence_histogram,
    embedding,
    feature_profiles,
    fgsm_margin,
    masked_inference,
    prototype_angles,
    write_figures,
)
from calgrid.reporting.index import read_index
from calgrid.reporting.probes import probed, retrained
from calgrid.reporting.study import StudyData
from calgrid.storage.logits import read_logits
from calgrid.storage.records import read_record, write_record
from calgrid.storage.tables import write_frame

OPTIONS = {
    "margin_attack": {"samples": 60, "eps_max": 0.5},
    "masking": {"ratios": [0.0, 0.5, 0.9], "draws": 2, "batch": 128},
    "embedding": {"points": 60, "perplexity": 5.0},
    "prototypes": {},
    "profiles": {"images": 10},
}
#: variant -> retention rate, and what makes it another thing than masked retraining of the same head at one ratio
MASKED = {
    "maccal": {"head": "bottleneck", "sparsity": "decaying", "p0": 0.5},
    "maccal_l09": {"head": "linear", "sparsity": "fixed", "p0": 0.5},
    "maccal_l10": {"head": "linear", "sparsity": "fixed", "p0": 0.1},
}
FIGURES = ("fgsm_margin", "masked_inference", "embedding", "prototype_angles", "feature_profiles")


def attack(rng):
    margin = rng.uniform(0, 10, 60)
    epsilon = np.minimum(0.05 * margin + 0.05 * rng.random(60), 0.5)
    columns = {"index": np.arange(60), "margin": margin, "epsilon": epsilon, "censored": epsilon >= 0.5}
    return pd.DataFrame({**columns, "correct": margin > 1})


def masks(rng):
    rows = [("magnitude", ratio, 0) for ratio in (0.0, 0.5, 0.9)]
    rows += [("random", ratio, draw) for draw in (0, 1) for ratio in (0.0, 0.5, 0.9)]
    table = pd.DataFrame(rows, columns=["mode", "ratio", "draw"])
    values = {name: rng.uniform(0.1, 0.9, len(rows)) for name in ("accuracy", "confidence", "ece", "ece_null", "nll")}
    return table.assign(**values)


def plane(rng):
    table = pd.DataFrame({"index": np.arange(60), "label": np.arange(60) % 4})
    parts = [
        table.assign(space=space, x=rng.normal(size=60), y=rng.normal(size=60)) for space in ("features", "logits")
    ]
    return pd.concat(parts).assign(correct=True, confidence=0.9, entropy=rng.uniform(0, math.log(4), 120))


def angles(rng):
    pairs = [(a, b) for a in range(4) for b in range(a + 1, 4)]
    parts = [
        pd.DataFrame(pairs, columns=["class_a", "class_b"]).assign(
            of=of, angle=60.0, angle_centred=rng.normal(109, 8, 6)
        )
        for of in ("features", "logits", "head")
    ]
    return pd.concat(parts)


def shapes(rng):
    parts = []
    for group, scale in (("easy", 2.0), ("hard", 1.0), ("all", 1.5)):
        mean = scale * np.linspace(1, 0, 16)
        table = pd.DataFrame({"rank": np.arange(1, 17), "mean": mean, "q10": 0.5 * mean, "q50": mean, "q90": 2 * mean})
        parts.append(table.assign(group=group, images=10, l1=mean.sum(), l1_std=0.1, accuracy=0.5 * scale - 0.1))
    return pd.concat(parts)


MAKE = {"margin_attack": attack, "masking": masks, "embedding": plane, "prototypes": angles, "profiles": shapes}


def add_probes(written, methods, ids=tuple(OPTIONS)):
    """Write tables of probes below the runs of a study and name them in its manifest."""
    manifest = copy.deepcopy(written.manifest)
    first = {run["key"]["seed"]: run for run in manifest["runs"] if run["key"]["method"] == "ce"}
    for place, run in enumerate(manifest["runs"]):
        method, seed = run["key"]["method"], run["key"]["seed"]
        if method in MASKED:
            run["first_stage"] = {"method": "ce", "run": first[seed]["run"]}
            record = read_record(Path(run["run"], "train.json"))
            options = {"gradient": "masked", "eval_mask": "last", **MASKED[method]}
            record["spec"]["procedure"] = {"id": "maccal", "options": options}
            write_record(Path(run["run"], "train.json"), record)
        for id in ids if method in methods else ():
            table = MAKE[id](np.random.default_rng(place)).assign(checkpoint="last")
            write_frame(Path(run["run"], "probes", f"{id}.parquet"), table, {"fingerprint": f"{id}-{place}"})
            named = {"name": id, "id": id, "options": OPTIONS[id], "fingerprint": f"{id}-{place}"}
            run.setdefault("probes", []).append(named)
    return manifest


@pytest.fixture(scope="module")
def build_probed(tmp_path_factory):
    from tests.reporting.conftest import Recipe, make_study

    methods = ("ce", "ls", *MASKED)
    written = make_study(tmp_path_factory.mktemp("probes"), Recipe(methods=methods, shifts=(), ood=(), resamples=0))
    written.manifest = add_probes(written, ("ce", "ls"))
    return written


@pytest.fixture(scope="module")
def opened(build_probed):
    data = StudyData(build_probed.folder, build_probed.manifest)
    return data, data.groups[0]


def test_every_figure_is_drawn_with_a_caption_and_the_same_bytes(build_probed, tmp_path):
    for folder in ("a", "b"):
        write_figures(build_probed.folder, build_probed.manifest, tmp_path / folder)
    entries = {each["id"].removesuffix("_digits_resnet8"): each for each in read_index(tmp_path / "a")}
    assert {*FIGURES, "confidence_histogram"} <= set(entries)
    for name in FIGURES:
        entry = entries[name]
        assert entry["category"] == "Probes"
        assert "one seed" in entry["caption"] if name == "embedding" else "3 seeds" in entry["caption"]
        assert entry["caption"].endswith(".")
        path = tmp_path / "a" / entry["file"]
        assert path.read_bytes() == (tmp_path / "b" / entry["file"]).read_bytes()
        with Image.open(path) as picture:
            assert 600 <= picture.size[0] <= 1400
            assert 0.005 < (np.asarray(picture.convert("L")) < 200).mean() < 0.7


def test_studies_without_probes_have_none_of_them(study, external):
    for written in (study, external):
        data = StudyData(written.folder, written.manifest)
        modules = (fgsm_margin, masked_inference, embedding, prototype_angles, feature_profiles, confidence_histogram)
        assert [module.draw(data, data.groups[0]) for module in modules] == [None] * 6


def test_tables_come_by_method_in_the_order_of_the_study_with_all_seeds(opened):
    tables = probed(*opened, "profiles")
    assert list(tables) == ["ce", "ls"]
    assert set(tables["ce"].table["seed"]) == {0, 1, 2}
    assert tables["ce"].options == {"images": 10}


def test_two_variants_of_a_probe_are_told_apart(build_probed):
    manifest = copy.deepcopy(build_probed.manifest)
    for run in manifest["runs"]:
        for each in [each for each in run.get("probes", ()) if each["id"] == "profiles"]:
            path = Path(run["run"], "probes", "profiles.parquet")
            path.with_name("other.parquet").write_bytes(path.read_bytes())
            run["probes"].append({**each, "name": "other"})
    data = StudyData(build_probed.folder, manifest)
    names = set(probed(data, data.groups[0], "profiles"))
    assert names == {"ce (profiles)", "ce (other)", "ls (profiles)", "ls (other)"}


def test_a_table_of_another_configuration_is_refused(build_probed, refuses):
    manifest = json.loads(json.dumps(build_probed.manifest))
    run = next(run for run in manifest["runs"] if run.get("probes"))
    run["probes"][0]["fingerprint"] = "0" * 16
    data = StudyData(build_probed.folder, manifest)
    with refuses(StateError, "table of the probe margin_attack", "0000000000000000", "run again"):
        probed(data, data.groups[0], "margin_attack")


def test_points_of_the_attack_and_its_correlations(opened):
    tables = probed(*opened, "margin_attack")
    figure = fgsm_margin.draw(*opened)
    for ax, (name, part) in zip(figure.axes, tables.items(), strict=True):
        seeds = [table for _, table in part.table.groupby("seed")]
        rho = np.mean([spearmanr(table["margin"], table["epsilon"])[0] for table in seeds])
        flipped = [table[~table["censored"]] for table in seeds]
        r = np.mean([pearsonr(table["margin"], table["epsilon"])[0] for table in flipped])
        title = ax.get_title().split("\n")
        assert title[0] == name
        assert title[1].startswith(f"ρ = {rho:.2f} ±")
        assert title[2].startswith(f"r = {r:.2f} ±")
        right, wrong, censored = (part.get_offsets().data for part in ax.collections)
        everything = part.table
        assert len(censored) == everything["censored"].sum() > 0
        assert len(right) + len(wrong) + len(censored) == len(everything) == 180
        assert title[3] == f"n = 60, not flipped {100 * everything['censored'].mean():.1f} %"


def test_lines_of_masked_inference_are_means_and_diamonds_the_retrained_runs(opened):
    data, group = opened
    part = probed(data, group, "masking")["ce"].table
    accuracy, confidence, ece, _ = masked_inference.draw(data, group).axes
    random, magnitude, trained = accuracy.lines[:3]
    for line, mode in ((random, "random"), (magnitude, "magnitude")):
        expected = 100 * part[part["mode"] == mode].groupby("ratio")["accuracy"].mean()
        assert list(line.get_xdata()) == [0.0, 0.5, 0.9]
        assert line.get_ydata() == pytest.approx(expected.to_numpy())
    assert list(trained.get_xdata()) == [0.5, 0.9]  # maccal itself has another head
    rows = data.test(group, ["none"]).set_index("method")
    assert trained.get_ydata() == pytest.approx(list(100 * rows.loc[["maccal_l09", "maccal_l10"], "accuracy_mean"]))
    runs = [run for run in data.runs(group) if run["key"]["method"] == "maccal_l09"]
    own = [
        softmax(read_logits(Path(run["run"], "logits/last/test.parquet")).logits, axis=1).max(axis=1) for run in runs
    ]
    assert confidence.lines[2].get_ydata()[0] == pytest.approx(100 * np.mean(own), abs=1e-3)
    null = 100 * part[part["mode"] == "random"].groupby("ratio")["ece_null"].mean()
    assert any(list(line.get_ydata()) == pytest.approx(list(null)) for line in ece.lines)


def test_a_panel_of_the_plane_for_each_space_and_method(opened):
    figure = embedding.draw(*opened)
    assert [ax.get_title() for ax in figure.axes] == ["ce, features", "ls, features", "ce, logits", "ls, logits"]
    table = probed(*opened, "embedding")["ls"].table
    shown = table[(table["space"] == "logits") & (table["seed"] == 0)]
    (points,) = figure.axes[3].collections
    assert points.get_offsets().data == pytest.approx(shown[["x", "y"]].to_numpy())
    opacity = points.get_facecolors()[:, 3]
    assert (np.diff(opacity[np.argsort(shown["entropy"])]) <= 1e-12).all()
    assert opacity.max() <= embedding.CERTAIN


def test_violins_have_the_simplex_and_the_deviation_beside_them(opened):
    figure = prototype_angles.draw(*opened)
    assert len(figure.axes) == 3
    rows = probed(*opened, "prototypes")["ce"].table
    deviation = rows[rows["of"] == "head"].groupby("seed")["angle_centred"].std(ddof=0).mean()
    ax = figure.axes[2]
    assert ax.texts[0].get_text() == f"± {deviation:.1f}"
    marks = {round(float(line.get_xdata()[0]), 3) for line in ax.lines if len(line.get_xdata()) == 2}
    assert marks == {round(math.degrees(math.acos(-1 / 3)), 3)}


def test_profiles_are_means_over_seeds_with_their_norms(opened):
    ax, _ = feature_profiles.draw(*opened).axes
    easy, hard, _ = ax.lines
    assert easy.get_ydata() == pytest.approx(2 * hard.get_ydata())
    assert ax.get_title() == "ce\nL1: 16 easy, 8 hard"
    assert "accuracy is 90.0 % and 40.0 %" in feature_profiles.caption(*opened)


def test_histograms_are_shares_before_and_after_retraining(opened):
    data, group = opened
    assert {each.run["key"]["method"] for each in retrained(data, group)} == set(MASKED)
    figure = confidence_histogram.draw(data, group)
    assert [ax.get_title().split("\n")[0] for ax in figure.axes] == list(MASKED)
    for ax in figure.axes:
        before, after = (patch.get_data().values for patch in ax.patches)
        assert before.sum() == pytest.approx(100)
        assert after.sum() == pytest.approx(100)
    rows = data.test(group, ["none"]).set_index("method")
    before, after = (100 * rows.loc[name, "accuracy_mean"] for name in ("ce", "maccal"))
    assert figure.axes[0].get_title().endswith(f"accuracy {before:.1f} → {after:.1f} %")
