"""Figures of probes show what the tables of the probes hold, and what was retrained under masks."""

import copy
import io
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy.special import softmax
from scipy.stats import pearsonr, spearmanr
from tests.report.conftest import CLEAN

from calgrid.errors import StateError
from calgrid.jobs.aggregate import collect_diagnostics
from calgrid.papers.fedlas import figures as fedlas
from calgrid.papers.maccal import figures as maccal
from calgrid.papers.smart import fits
from calgrid.report.figure import FigureData
from calgrid.report.index import read_index
from calgrid.report.selections import probed, retrained
from calgrid.report.study import StudyData
from calgrid.storage.logits import read_logits
from calgrid.storage.records import FILES, PROBE, PROBE_TABLE, listed, read_record, write_record
from calgrid.storage.tables import write_frame

#: variant -> retention rate, and what makes it another thing than masked retraining of the same
#: head at one ratio
MASKED = {
    "maccal": {"head": "bottleneck", "sparsity": "decaying", "p0": 0.5},
    "maccal_l09": {"head": "linear", "sparsity": "fixed", "p0": 0.5},
    "maccal_l10": {"head": "linear", "sparsity": "fixed", "p0": 0.1},
}
DRAWN = ("fgsm_margin", "masked_inference", "prototype_angles", "feature_profiles")
#: those of one seed, in the appendix
SINGLE = ("embedding", "misjudged")


def attack(rng):
    margin = rng.uniform(0, 10, 60)
    epsilon = np.minimum(0.05 * margin + 0.05 * rng.random(60), 0.5)
    table = pd.DataFrame({"index": np.arange(60), "margin": margin, "epsilon": epsilon})
    return table.assign(censored=epsilon >= 0.5, correct=margin > 1)


def masks(rng):
    rows = [("magnitude", ratio, 0) for ratio in (0.0, 0.5, 0.9)]
    rows += [("random", ratio, draw) for draw in (0, 1) for ratio in (0.0, 0.5, 0.9)]
    table = pd.DataFrame(rows, columns=["mode", "ratio", "draw"])
    values = {
        name: rng.uniform(0.1, 0.9, len(rows))
        for name in ("accuracy", "confidence", "ece", "ece_null", "nll")
    }
    return table.assign(**values)


def plane(rng):
    table = pd.DataFrame({"index": np.arange(60), "label": np.arange(60) % 4})
    parts = [
        table.assign(space=space, x=rng.normal(size=60), y=rng.normal(size=60))
        for space in ("features", "logits")
    ]
    return pd.concat(parts).assign(
        correct=True, confidence=0.9, entropy=rng.uniform(0, math.log(4), 120)
    )


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
        table = pd.DataFrame({"rank": np.arange(1, 17), "mean": mean, "q50": mean})
        table = table.assign(q10=0.5 * mean, q90=2 * mean, group=group, images=10)
        parts.append(table.assign(l1=mean.sum(), l1_std=0.1, accuracy=0.5 * scale - 0.1))
    return pd.concat(parts)


def pictures(rng):
    table = pd.DataFrame(
        {"group": ["wrong"] * 2 + ["right"] * 3, "rank": [1, 2, 1, 2, 3], "index": np.arange(5)}
    )
    files = [io.BytesIO() for _ in range(5)]
    for file in files:
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(file, format="png")
    constant = {"confidence": 0.9, "indicator": 1.0, "auroc": 0.7, "auroc_confidence": 0.8}
    answers = ["dog"] * 2 + ["cat"] * 3
    return table.assign(
        **{"class": "cat"}, answer=answers, picture=[file.getvalue() for file in files], **constant
    )


#: probe -> its options, and the function that makes its table
PROBES = {
    "margin_attack": ({"samples": 60, "eps_max": 0.5}, attack),
    "masking": ({"ratios": [0.0, 0.5, 0.9], "draws": 2, "batch": 128}, masks),
    "embedding": ({"points": 60, "perplexity": 5.0}, plane),
    "prototypes": ({}, angles),
    "profiles": ({"images": 10}, shapes),
    "misjudged": ({"images": 3, "class_names": ["cat", "dog"]}, pictures),
}


def add_probes(written, methods):
    """Write tables of probes below the runs of a study and name them in its manifest."""
    manifest = copy.deepcopy(written.manifest)
    first = {run["key"]["seed"]: run for run in manifest["runs"] if run["key"]["method"] == "ce"}
    for place, run in enumerate(manifest["runs"]):
        method, seed = run["key"]["method"], run["key"]["seed"]
        if method in MASKED:
            run["first_stage"] = {"method": "ce", "train": first[seed]["train"]}
            record = read_record(Path(run["train"], "train.json"))
            options = {"gradient": "masked", "eval_mask": "last", **MASKED[method]}
            record["spec"]["procedure"] = {"id": "maccal", "options": options}
            write_record(Path(run["train"], "train.json"), record)
        for id, (options, made) in PROBES.items() if method in methods else ():
            table = made(np.random.default_rng(place)).assign(checkpoint="last")
            folder = Path(run["predict"]).with_name(f"probe_{id}-0")
            write_frame(folder / PROBE_TABLE, table, {"fingerprint": f"{id}-{place}"})
            record = {"environment": {}, FILES: listed(folder, [PROBE_TABLE])}
            write_record(folder / PROBE, record)
            named = {"name": id, "id": id, "options": options, "fingerprint": f"{id}-{place}"}
            named["folder"] = str(folder)
            run.setdefault("probes", []).append(named)
    return manifest


@pytest.fixture(scope="module")
def build_probed(make):
    written = make(methods=("ce", "ls", *MASKED), seeds=(0, 1), **CLEAN)
    written.manifest = add_probes(written, ("ce", "ls"))
    collect_diagnostics(written.manifest, written.folder)
    return written


@pytest.fixture(scope="module")
def opened(build_probed):
    return build_probed.opened()


def rows_of(written, run_method, probe):
    """Tables of a probe as its runs have them, one a seed."""
    runs = [run for run in written.manifest["runs"] if run["key"]["method"] == run_method]
    return [
        pd.read_parquet(Path(run["predict"]).with_name(f"probe_{probe}-0") / PROBE_TABLE)
        for run in runs
    ]


def test_every_figure_is_drawn_with_a_caption(build_probed):
    folder = build_probed.figures(*DRAWN, *SINGLE)
    entries = {each["id"].removesuffix("_digits_resnet8"): each for each in read_index(folder)}
    assert {*DRAWN, *SINGLE} == set(entries)
    for name, entry in entries.items():
        assert entry["category"] == ("Appendix" if name in SINGLE else "Probes")
        assert ("one seed" if name in SINGLE else "2 seeds") in entry["caption"]
        assert entry["caption"].endswith(".")
        with Image.open(folder / entry["file"]) as picture:
            assert 0.005 < (np.asarray(picture.convert("L")) < 200).mean() < 0.7


def test_tables_come_by_method_in_the_order_of_the_study_with_all_seeds(build_probed, opened):
    for probe in PROBES:
        rows = probed(*opened, probe)
        assert list(rows["name"].unique()) == ["ce", "ls"]
        for name, own in rows.groupby("name"):
            expected = pd.concat(rows_of(build_probed, name, probe), ignore_index=True)
            expected = expected.astype(dict.fromkeys(expected.select_dtypes("category"), "str"))
            assert sorted(own["seed"].unique()) == [0, 1]
            found = own[list(expected)].reset_index(drop=True)
            pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    assert (probed(*opened, "profiles", ("images",))["images"] == 10).all()


def test_two_variants_of_a_probe_are_told_apart(build_probed, tmp_path):
    manifest = copy.deepcopy(build_probed.manifest)
    for run in manifest["runs"]:
        for each in [each for each in run.get("probes", ()) if each["id"] == "profiles"]:
            run["probes"].append({**each, "name": "other"})
    shutil.copytree(build_probed.folder, tmp_path / "study")
    collect_diagnostics(manifest, tmp_path / "study")
    data = StudyData(tmp_path / "study", manifest)
    names = set(probed(data, data.groups[0], "profiles")["name"])
    assert names == {"ce (profiles)", "ce (other)", "ls (profiles)", "ls (other)"}


def test_a_table_of_another_configuration_is_refused(build_probed, refuses, tmp_path):
    manifest = json.loads(json.dumps(build_probed.manifest))
    run = next(run for run in manifest["runs"] if run.get("probes"))
    run["probes"][0]["fingerprint"] = "0" * 16
    with refuses(StateError, "table of the probe margin_attack", "0000000000000000", "run again"):
        collect_diagnostics(manifest, tmp_path)


def test_facts_of_the_attack_are_its_correlations_over_seeds(build_probed, opened):
    drawn = fits.draw_fgsm_margin(FigureData(*opened, fits.fgsm_margin_rows(*opened)))
    seeds = rows_of(build_probed, "ls", "margin_attack")
    rho = np.mean([spearmanr(table["margin"], table["epsilon"])[0] for table in seeds])
    r = np.mean(
        [
            pearsonr(*table.loc[~table["censored"], ["margin", "epsilon"]].to_numpy().T)[0]
            for table in seeds
        ]
    )
    _, said = (ax.get_title().split("\n") for ax in drawn.axes)
    assert said[0] == "ls"
    assert said[1].startswith(f"ρ = {rho:.2f} ±")
    assert said[2].startswith(f"r = {r:.2f} ±")
    assert said[3] == f"n = 60, not flipped {100 * pd.concat(seeds)['censored'].mean():.1f} %"


def test_retrained_heads_stand_beside_masks_at_inference(opened):
    data, group = opened
    rows = maccal.masked_inference_rows(data, group)
    trained = rows[rows["mode"] == "retrained"].groupby("ratio")[["accuracy", "confidence"]].mean()
    assert list(trained.index) == [0.5, 0.9]  # maccal itself has another head
    expected = data.test(group, ["none"]).set_index("method")
    assert list(trained["accuracy"]) == pytest.approx(
        list(expected.loc[["maccal_l09", "maccal_l10"], "accuracy_mean"])
    )
    runs = [run for run in data.runs(group) if run["key"]["method"] == "maccal_l09"]
    own = [
        softmax(read_logits(Path(run["predict"], "logits/last/test.parquet")).logits, axis=1).max(
            axis=1
        )
        for run in runs
    ]
    assert trained.loc[0.5, "confidence"] == pytest.approx(np.mean(own), abs=1e-5)
    assert set(rows.loc[rows["mode"] == "retrained", "method"]) == {"ce"}


def test_the_plane_is_of_the_first_seed(opened):
    rows = maccal.embedding_rows(*opened)
    assert set(rows["seed"]) == {0}
    assert list(rows[["name", "space"]].drop_duplicates().itertuples(index=False, name=None)) == [
        ("ce", "features"),
        ("ce", "logits"),
        ("ls", "features"),
        ("ls", "logits"),
    ]


def test_violins_have_the_simplex_and_the_deviation_beside_them(opened):
    rows = maccal.prototype_angles_rows(*opened)
    ax = maccal.draw_prototype_angles(FigureData(*opened, rows)).axes[2]
    own = rows[(rows["name"] == "ce") & (rows["of"] == "head")]
    assert (
        ax.texts[0].get_text() == f"± {own.groupby('seed')['angle_centred'].std(ddof=0).mean():.1f}"
    )
    marks = {
        round(float(line.get_xdata()[0]), 3) for line in ax.lines if len(line.get_xdata()) == 2
    }
    assert marks == {round(math.degrees(math.acos(-1 / 3)), 3)}


def test_caption_of_profiles_says_how_many_are_right(opened):
    frame = FigureData(*opened, fedlas.feature_profiles_rows(*opened))
    assert "accuracy is 90.0 % and 40.0 %" in fedlas.feature_profiles_caption(frame)


def test_misjudged_pictures_are_in_their_lines_with_label_and_answer(opened):
    frame = FigureData(*opened, fedlas.misjudged_rows(*opened))
    assert set(frame.rows["seed"]) == {0}
    assert "ce 70.0 against 80.0 %; ls 70.0 against 80.0 %" in fedlas.misjudged_caption(frame)
    titles = [ax.get_title() for ax in fedlas.draw_misjudged(frame).axes]
    assert titles == 2 * (2 * ["cat:\ndog\n90 %"] + 3 * ["cat\n90 %"])


def test_histograms_are_of_the_images_before_and_after_retraining(opened):
    data, group = opened
    assert {key["method"] for key, _, _ in retrained(data, group)} == set(MASKED)
    rows = maccal.confidence_histogram_rows(data, group)
    assert list(rows["method"].unique()) == list(MASKED)
    assert (rows.groupby(["method", "stage", "seed"])["count"].sum() == 240).all()
    expected = data.test(group, ["none"]).set_index("method")["accuracy_mean"]
    for stage, method in (("before", "ce"), ("after", "maccal")):
        own = rows[(rows["stage"] == stage) & (rows["method"] == "maccal")]
        assert maccal._mean(own, "correct") == pytest.approx(100 * expected[method])


def test_a_first_stage_that_was_not_scored_is_left_out(opened):
    data, group = opened
    runs = [run for run in data.manifest["runs"] if run["key"]["method"] != "ce"]
    other = StudyData(data.folder, {**data.manifest, "runs": runs})
    assert maccal.confidence_histogram_rows(other, group).empty
