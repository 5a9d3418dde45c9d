"""Packed studies as baselines of another study: their runs, their rows, and what is refused."""

import itertools
import json
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml
from tests.conftest import flip, later_stages
from tests.jobs.small import calibrate, import_run
from tests.logits.user_files import npz
from tests.metrics.cases import softmax
from tests.mistakes import cases

from calgrid import load_study
from calgrid.calibrators import build_calibrator
from calgrid.cli import main
from calgrid.cli.study_of import read_study
from calgrid.errors import ConfigError, DataError, StateError
from calgrid.jobs import aggregate
from calgrid.jobs.ensemble import run as run_ensemble
from calgrid.logits.bank import opened
from calgrid.plan.plan import Plan
from calgrid.storage.logits import identity_of_rows, read_logits
from calgrid.storage.publish import Call, replace_files
from calgrid.storage.records import (
    PREDICT,
    RunKey,
    digest_of,
    logits_file,
    sharing_rows,
    write_record,
)
from calgrid.study.slow_checks import check_external, rows_of_banks
from calgrid.study.study import Study

CLASSES, VAL, TEST = 3, 60, 90
LABELS = np.random.default_rng(0).integers(CLASSES, size=VAL + TEST)


def logits_of(method, seed):
    """Logits of one network on val and test: ``sure`` is overconfident."""
    signal = 4.0 if method == "sure" else 1.5
    noise = np.random.default_rng([len(method), seed]).normal(size=(VAL + TEST, CLASSES))
    return (signal * (noise + 1.5 * np.eye(CLASSES)[LABELS])).astype(np.float32)


def entry(method, seed, **changed):
    """Configuration of its files, which are written."""
    for split, rows in {"val": slice(VAL), "test": slice(VAL, None)}.items():
        content = {"logits": logits_of(method, seed)[rows], "label": LABELS[rows]}
        npz(Path(f"data/{method}{seed}_{split}.npz"), **content)
    files = {split: f"{method}{seed}_{split}.npz" for split in ("val", "test")}
    place = {"kind": "logits", "dataset": "blobs", "backbone": "net", "calibrators": ["none"]}
    return {**files, **place, "method": method, "seed": seed, **changed}


def imported(home, name, external, **configuration):
    """The plan of a study, whose runs have logits."""
    config = {"study": name, "statistics": {"bootstrap": 20, "baseline": "ce"}}
    study = Study({**config, "external": external, **configuration}, home)
    rows_of_banks(study)
    plan = Plan(study)
    for key in study.external:
        folder = Path(plan.predicted(key).folder)
        import_run(plan.external(key).spec, study.external_files(key), folder)
    return plan


def run_study(home, name, external, numbers=True):
    """The plan of a study that is finished; without ``numbers`` its runs are not summarised."""
    plan = imported(home, name, external)
    for key in plan.study.external:
        folder = Path(plan.predicted(key).folder)
        calibrate(plan.calibrate(key).spec, folder, Path(plan.calibrate(key).folder))

    def produce(work):
        write_record(work / "manifest.json", plan.manifest())
        return {}

    record = Path(plan.stage("aggregate").result)
    if numbers:
        aggregate.run(Call(plan.manifest(), record))
    else:
        replace_files(Call({}, record), ["manifest.json"], produce, {})
    later_stages(plan.study.folder)
    return plan


def pack(study, archive, *options):
    origin = ["--creator", "A", "--licence", "CC-BY-4.0", *options]
    assert main(["pack", f"results/{study}", archive, *origin]) == 0


@pytest.fixture(scope="module")
def packed(tmp_path_factory, home):
    """Folder with the archive of a study of ``ce`` and ``sure`` with two seeds."""
    folder = tmp_path_factory.mktemp("bank")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("data").mkdir()
        pairs = itertools.product(("ce", "sure"), (1, 2))
        runs = {f"{method}{seed}": entry(method, seed) for method, seed in pairs}
        run_study(home, "baselines", runs, numbers=False)
        pack("baselines", "bank.zip", "--cite", "doi:10.0/1")
    return folder


@pytest.fixture
def bank(packed, in_folder):
    """Another working folder with the archive."""
    archive = Path("data/bank.zip")
    archive.write_bytes((packed / "bank.zip").read_bytes())
    return archive


@pytest.fixture
def in_folder(tmp_path, monkeypatch):
    """A working folder for data."""
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()


TAKEN = {"base": "bank", "file": "bank.zip", "calibrators": ["none"]}


def test_runs_of_a_bank_are_baselines_of_an_own_method_on_the_same_images(bank, packed, home):
    own = {f"mine{seed}": entry("mine", seed) for seed in (1, 2)}
    plan = run_study(home, "mine", {"bank": TAKEN, **own})
    check_external(plan.study)
    assert {key.method for key in plan.study.external} == {"ce", "sure", "mine"}
    values = []
    for place in (Path(), packed):
        (table,) = place.glob("results/runs/*/*/*/sure/seed1/calibrate-*/metrics.parquet")
        values.append(pd.read_parquet(table)["value"].tolist())
    assert values[0] == values[1]  # computed anew
    summary = pd.read_parquet("results/mine/summary.parquet")
    tested = summary.query("method == 'mine' and split == 'test' and metric == 'nll'")
    assert tested["verdict"].notna().all()
    assert tested["diff_vs_baseline"].notna().all()
    facts = json.loads(Path("results/mine/runs.json").read_text())["runs"]
    origins = {run["method"]: run.get("origin") for run in facts}
    assert origins["ce"] == {"creators": ["A"], "licence": "CC-BY-4.0", "cite": "doi:10.0/1"}
    assert origins["mine"] is None


def test_an_unpacked_archive_is_the_same_bank(bank, home):
    zipfile.ZipFile(bank).extractall("data/folder")
    taken = {**TAKEN, "methods": ["ce"], "seeds": [2]}
    folders = []
    for file in ("bank.zip", "folder"):
        plan = Plan(Study({"study": "s", "external": {"b": {**taken, "file": file}}}, home))
        (key,) = plan.study.external
        out = Path(f"out-{file}")
        import_run(plan.external(key).spec, plan.study.external_files(key), out)
        folders.append(read_logits(out / logits_file("last", "test")).logits)
    np.testing.assert_array_equal(*folders)
    np.testing.assert_array_equal(folders[0], logits_of("ce", 2)[VAL:])


def test_what_a_study_of_a_bank_and_of_files_packs_is_read_back(bank, home, refuses, capsys):
    """Its files are not in the archive: they are below ``data`` of the reader, too."""
    taken = {**TAKEN, "methods": ["ce"], "seeds": [1]}
    plan = run_study(home, "mine", {"bank": taken, "own": entry("mine", 1)})
    pack("mine", "mine.zip")
    zipfile.ZipFile("mine.zip").extractall("archive")
    again = read_study(Path("archive/study.yaml"))
    assert Plan(again).manifest()["fingerprint"] == plan.manifest()["fingerprint"]
    assert main(["check", "archive/study.yaml"]) == 0
    said = capsys.readouterr().out
    assert "train" not in said
    assert "import 2" in said
    opened_study = load_study("mine.zip")
    pd.testing.assert_frame_equal(opened_study.metrics, load_study("results/mine").metrics)
    with refuses(DataError, "are in the archive mine.zip: unpack it", "open archive/mine"):
        opened_study.logits("mine", 1)
    test = load_study("archive").logits("mine", 1)
    np.testing.assert_array_equal(test.logits, logits_of("mine", 1)[VAL:])


def test_an_archive_without_tables_is_named(bank, refuses):
    rewritten(bank, lambda files: files.pop("baselines/manifest.json"))
    with refuses(DataError, "The archive has no tables", "take its runs as a bank"):
        load_study(bank)


def rewritten(archive, change):
    """Pack the files anew after a change of their contents by name."""
    with zipfile.ZipFile(archive) as old:
        files = {name: old.read(name) for name in old.namelist()}
    change(files)
    with zipfile.ZipFile(archive, "w") as new:
        for name, content in files.items():
            new.writestr(name, content)


def checked(content):
    """Bytes of a list or record with a right checksum."""
    content.pop("checksum", None)
    return json.dumps({**content, "checksum": digest_of(content)}).encode()


def above(content):
    """Let the first run have a method that leads out of its folder."""
    content["runs"][0]["key"]["method"] = ".."
    content["runs"][0]["predict"] = "runs/external/blobs/net/../seed1/predict-0a"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda content: content.pop("origin"), "it has another form"),
        (lambda content: content["runs"][0].update(key=3), "it has another form"),
        (
            lambda content: content["runs"][0].update(predict="../../elsewhere/predict-0a"),
            "'../../elsewhere/predict-0a' is no folder of external/blobs/net/ce/seed1",
        ),
        (above, "is no folder of external/blobs/net/../seed1"),
    ],
)
def test_a_list_that_was_not_written_by_pack_is_refused(bank, home, refuses, change, said):
    def forge(files):
        content = json.loads(files["bank.json"])
        change(content)
        files["bank.json"] = checked(content)

    rewritten(bank, forge)
    with refuses(ConfigError, "bank.json", said):
        Study({"study": "s", "external": {"b": TAKEN}}, home)


def test_a_record_of_files_outside_of_the_bank_is_refused(bank, home, refuses):
    def forge(files):
        name = next(name for name in files if name.endswith("/predict.json"))
        record = json.loads(files[name])
        record["files"]["../test.parquet"] = record["files"][logits_file("last", "test")]
        files[name] = checked(record)

    rewritten(bank, forge)
    with refuses(ConfigError, "predict.json: it lists '../test.parquet', outside of its folder"):
        Study({"study": "s", "external": {"b": TAKEN}}, home)


def test_a_flipped_byte_is_named_before_any_job(bank, home, refuses):
    with opened(bank) as found:
        name = f"{found.runs[0].folder}/{logits_file('last', 'test')}"
    with zipfile.ZipFile(bank) as archive:
        place = archive.getinfo(name).header_offset + 200
    flip(bank, 8 * place)
    with refuses(ConfigError, "external.b.file: The bank data/bank.zip is damaged", name):
        rows_of_banks(Study({"study": "s", "external": {"b": TAKEN}}, home))


@pytest.mark.parametrize("part", ["/logits/last/test.parquet", "/predict.json", "bank.json"])
def test_a_missing_member_is_named(bank, home, refuses, part):
    def remove(files):
        for name in [name for name in files if name.endswith(part)]:
            del files[name]

    rewritten(bank, remove)
    said = f"external.b.file: The bank data/bank.zip ... {part.lstrip('/')} ... it is missing"
    with refuses(ConfigError, said):
        rows_of_banks(Study({"study": "s", "external": {"b": TAKEN}}, home))


def test_a_changed_record_or_checksum_no_archive_and_unknown_names_are_refused(bank, home, refuses):
    def study(**changed):
        rows_of_banks(Study({"study": "s", "external": {"b": {**TAKEN, **changed}}}, home))

    with refuses(ConfigError, "Unknown method 'cf' in external.b.methods: valid: "):
        study(methods=["cf"])
    with refuses(ConfigError, "external.b: 'url' needs 'sha256'"):
        study(url="https://example.org/bank.zip")
    with refuses(ConfigError, "'data/bank.zip' has not the SHA-256 0000"):
        study(sha256="0" * 64)
    with refuses(ConfigError, "external.b.calibrators: 'fc' needs features"):
        study(calibrators=["fc"])
    with refuses(ConfigError, "external.b.file: the file 'data/none.zip' does not exist"):
        study(file="none.zip")
    rewritten(bank, lambda files: files.update({"bank.json": files["bank.json"] + b" x"}))
    with refuses(ConfigError, "bank.json: it has been changed since it was written"):
        study()
    bank.write_text("no archive")
    with refuses(ConfigError, "data/bank.zip is not a readable archive"):
        study()


def test_a_bank_that_would_fill_the_memory_is_refused(bank, home, refuses, monkeypatch):
    monkeypatch.setattr("calgrid.logits.bank.UNPACKED_BYTES", 10**5)
    with zipfile.ZipFile(bank, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bank.json", bytes(200_000))
    with refuses(ConfigError, "external.b.file", "far more than its own size"):
        Study({"study": "s", "external": {"b": TAKEN}}, home)


@pytest.mark.parametrize("of_bank", [True, False])
def test_another_split_is_refused_as_a_pair(bank, home, refuses, of_bank):
    own = entry("mine", 1)
    npz(Path("data/mine1_test.npz"), logits=logits_of("mine", 1)[VAL:], label=LABELS[VAL:][::-1])
    taken = {**TAKEN, "methods": ["ce"], "seeds": [1]} if of_bank else entry("ce", 2)
    with refuses(StateError, "mine/seed1", "other test images", "of blobs"):
        plan = imported(home, "mine", {"ce": taken, "mine": own})
        aggregate.run(Call(plan.manifest(), Path(plan.stage("aggregate").result)))


def test_rows_of_two_banks_or_of_a_bank_and_files_are_compared_before_any_job(bank, home, refuses):
    own = entry("ce", 3)
    npz(Path("data/ce3_test.npz"), logits=logits_of("ce", 3)[VAL:], label=LABELS[VAL:][::-1])
    run_study(home, "others", {"own": own}, numbers=False)
    pack("others", "data/others.zip")
    names = "external/blobs/net/ce/seed3 and external/blobs/net/ce/seed1 have other test images"
    banks = {"a": TAKEN, "b": {**TAKEN, "file": "others.zip"}}
    with refuses(ConfigError, f"external.b: {names}"):
        rows_of_banks(Study({"study": "s", "external": banks}, home))
    names = "external/blobs/net/ce/seed3 and external/blobs/net/ce/seed1 have other test"
    with refuses(ConfigError, f"external.own: {names} rows"):
        check_external(Study({"study": "s", "external": {"a": TAKEN, "own": own}}, home))
    own = entry("mine", 1)
    npz(Path("data/mine1_val.npz"), logits=logits_of("mine", 1)[:VAL], label=LABELS[:VAL][::-1])
    with refuses(ConfigError, "external.own: ", "mine/seed1", "have other val rows"):
        check_external(Study({"study": "s", "external": {"a": TAKEN, "own": own}}, home))


def test_banks_and_files_of_one_data_set_have_one_order_of_classes(home, refuses, in_folder):
    def named(name, seed, classes):
        own = entry(name, seed)
        for split in ("val", "test"):
            path = Path(f"data/{own[split]}")
            npz(path, **np.load(path), classes=np.array(classes))
        return own

    for number, classes in enumerate(["abc", "acb"], start=1):
        own = named("ce", number, list(classes))
        run_study(home, f"bank{number}", {"own": own}, numbers=False)
        pack(f"bank{number}", f"data/{number}.zip")
    banks = {f"bank{name}": {**TAKEN, "file": f"{name}.zip"} for name in "12"}
    said = "external/blobs/net/ce/seed1 in another order (class 1 is 'c' instead of 'b')"
    other = "external.bank2: external/blobs/net/ce/seed2 has the classes of "
    with refuses(ConfigError, other, said):
        rows_of_banks(Study({"study": "s", "external": banks}, home))


def test_validation_rows_may_be_drawn_by_the_seed_and_must_be_shared_within_it(bank, home, refuses):
    own = entry("mine", 3)
    order = np.random.default_rng(1).permutation(VAL)
    npz(Path("data/mine3_val.npz"), logits=logits_of("mine", 3)[order], label=LABELS[order])
    taken = {**TAKEN, "methods": ["ce"], "seeds": [1]}
    plan = imported(home, "mine", {"bank": taken, "mine": own})
    aggregate._check_rows(plan.manifest()["runs"])
    (Path("data/mine3_val.npz")).rename("data/mine1_val.npz")
    same_seed = {**own, "val": "mine1_val.npz", "seed": 1}
    plan = imported(home, "other", {"bank": taken, "mine": same_seed})
    with refuses(StateError, "mine/seed1", "other val images"):
        aggregate._check_rows(plan.manifest()["runs"])


def mark(files, fact):
    """Say of all runs of a bank how they were trained."""
    content = json.loads(files["bank.json"])
    for run in content["runs"]:
        run[fact] = True
    files["bank.json"] = checked(content)


def as_trained(bank):
    """Let the runs of the bank have the protocol, data set and network of the smallest study."""

    def change(files):
        def moved(text):
            return text.replace("external/blobs/net", "digits/digits/resnet8")

        for name in list(files):
            files[moved(name)] = files.pop(name)
        content = json.loads(moved(files["bank.json"].decode()))
        for run in content["runs"]:
            run["key"].update(protocol="digits", dataset="digits", backbone="resnet8")
        files["bank.json"] = checked(content)

    rewritten(bank, change)


def test_another_number_of_rows_than_that_of_a_trained_run_is_refused_before_any_job(
    bank, home, make_config, refuses
):
    as_trained(bank)
    config = make_config(external={"b": {**TAKEN, "methods": ["sure"]}}, data_root="data")
    with refuses(ConfigError, "external.b", "has 60 val rows", "same split"):
        rows_of_banks(Study(config, home))


@pytest.mark.parametrize(("method", "said"), [("ce", "makes digits/"), ("tst", "as a first stage")])
def test_a_run_that_the_study_trains_itself_is_not_taken_from_a_bank(
    bank, home, make_config, refuses, method, said
):
    as_trained(bank)
    external = {"b": {**TAKEN, "methods": ["ce"]}}
    config = make_config({"methods": [method]}, external=external, data_root="data")
    with refuses(ConfigError, "external.b", said, "leave its method or seed out"):
        Study(config, home)


def test_ensembles_pool_runs_of_a_bank_and_imported_logits(bank, home):
    methods = ["ens2(ce)", "ens2(sure,logit)", "ens2(mine,ts)"]
    ensembles = {"methods": methods, "calibrators": ["none", "ts"]}
    own = {f"mine{seed}": entry("mine", seed) for seed in (1, 2, 3)}
    plan = imported(home, "pooled", {"bank": TAKEN, **own}, ensembles=ensembles)
    keys = {key.method: key for key in plan.study.ensembles}
    assert set(keys) == set(methods)
    for key, made in plan.study.ensembles.items():
        reads = tuple(Path(plan.predicted(each).folder, PREDICT) for each in made.members)
        run_ensemble(Call(plan.ensemble(key).spec, Path(plan.predicted(key).folder), reads))

    def logits(key):
        path = Path(plan.predicted(key).folder, logits_file("last", "test"))
        return read_logits(path).logits.astype(float)

    def members(method):
        return [logits_of(method, seed)[VAL:].astype(float) for seed in (1, 2)]

    mean = np.mean([softmax(z) for z in members("ce")], axis=0)
    np.testing.assert_allclose(softmax(logits(keys["ens2(ce)"])), mean, atol=1e-6)
    np.testing.assert_allclose(
        logits(keys["ens2(sure,logit)"]), np.mean(members("sure"), axis=0), atol=1e-5
    )
    calibrated = []
    for seed, z in enumerate(members("mine"), 1):
        fitted = build_calibrator("ts").fit(logits_of("mine", seed)[:VAL], LABELS[:VAL])
        calibrated.append(fitted.predict_proba(z))
    mean = np.mean(calibrated, axis=0)
    np.testing.assert_allclose(softmax(logits(keys["ens2(mine,ts)"])), mean, atol=1e-6)
    (run,) = [run for run in plan.manifest()["runs"] if run["key"]["method"] == "ens2(ce)"]
    assert run["external"]
    assert "members" not in run


def test_validation_images_of_each_seed_cannot_be_pooled(bank, home, refuses):
    rewritten(bank, lambda files: mark(files, "draws_validation"))
    config = {"study": "s", "external": {"b": TAKEN}, "ensembles": {"methods": ["ens2(ce)"]}}
    with refuses(ConfigError, "ens2(ce)", "need the same validation images"):
        Study(config, home)


def test_seeds_of_a_bank_and_of_a_grid_are_members_of_one_ensemble(bank, home, make_config):
    as_trained(bank)
    taken = {**TAKEN, "methods": ["ce"], "seeds": [2]}
    config = make_config(
        {"shifts": ["digits_c"], "fit_on": ["val"]},
        external={"b": taken},
        data_root="data",
        ensembles={"methods": ["ens2(ce)"]},
    )
    plan = Plan(Study(config, home))
    ((key, made),) = plan.study.ensembles.items()
    assert sorted(member.seed for member in made.members) == [1, 2]
    assert made.checkpoints == ("last",)
    spec = plan.ensemble(key).spec
    assert spec["families"] == []
    own, taken_run = spec["members"]
    assert own["logits"] == plan.predict(made.members[0]).spec["files"]
    assert taken_run["logits"]["test"] == plan.external(made.members[1]).fingerprint


@pytest.mark.parametrize(
    ("ensembles", "parts"),
    cases(
        """
methods: [ens3(ce)]
    ensembles.methods: 'ens3(ce)' needs 3 seeds ... at most 2
methods: [ens2(cf)]
    Unknown method 'cf' in ensembles.methods: valid: ce,
methods: [ce]
    ensembles.methods: 'ce' is no ensemble; write ens3(ce)
{methods: [ens2(ce)], calibrators: [procal_dr]}
    ensembles: 'procal_dr' needs features
"""
    ),
)
def test_mistakes_in_ensembles_are_reported_before_any_job(bank, home, refuses, ensembles, parts):
    with refuses(ConfigError, *parts):
        Study({"study": "s", "external": {"b": TAKEN}, "ensembles": ensembles}, home)


def test_an_ensemble_among_the_methods_of_a_bank_is_said_where_it_belongs(bank, home, refuses):
    taken = {**TAKEN, "methods": ["ens2(ce)"]}
    with refuses(ConfigError, "external.b.methods: the bank has no run 'ens2(ce)'", "'ensembles:"):
        Study({"study": "s", "external": {"b": taken}}, home)


@pytest.mark.parametrize("changed", [None, "val", "test"])
def test_other_rows_than_those_of_the_bank_are_refused_before_the_training(
    make_config, home, tmp_path, monkeypatch, capsys, changed
):
    monkeypatch.chdir(tmp_path)
    labels = {"val": LABELS[:VAL].copy(), "test": LABELS[VAL:].copy()}
    key = RunKey("digits", "digits", "resnet8", "ls", 1)  # of the bank; those here are ce and mbls
    known = {
        sharing_rows(key, split): (key, identity_of_rows(np.arange(len(rows)), rows))
        for split, rows in labels.items()
    }
    monkeypatch.setattr("calgrid.plan.plan.check_external", lambda _: known)
    if changed:
        labels[changed] = np.roll(labels[changed], 1)
    splits = {name: SimpleNamespace(labels=rows) for name, rows in labels.items()}
    monkeypatch.setattr("calgrid.datasets.open_prepared", lambda _: SimpleNamespace(splits=splits))
    trained = []
    monkeypatch.setattr(Call, "make", lambda call: trained.append(call.spec))
    plan = Plan(Study(make_config(), home))
    write_record(Path("plan.json"), plan.file())
    folder = next(job.folder for job in plan.jobs if job.kind == "train")
    command = ["job", "train", "--plan", "plan.json", "--out", folder]
    assert main(command) == (2 if changed else 0)
    assert len(trained) == (not changed)
    if changed:
        assert f"have other {changed} rows or labels than digits" in capsys.readouterr().err


def test_rows_that_fitted_the_network_do_not_count_for_conformal_sets(bank, home, refuses):
    config = {"study": "s", "external": {"b": TAKEN}, "statistics": {"conformal": ["thr"]}}
    rows_of_banks(Study(config, home))

    rewritten(bank, lambda files: mark(files, "disjoint_validation"))
    with refuses(ConfigError, "statistics.conformal: external/blobs/net/ce/seed1", "got 7"):
        rows_of_banks(Study(config, home))


def test_the_study_in_the_bank_that_the_project_ships_takes_all_of_its_runs(home):
    folder = home / "docs/cifar10"
    with zipfile.ZipFile(folder / "bank.zip") as archive:
        config = yaml.safe_load(archive.read("study.yaml"))
        runs = json.loads(archive.read("bank.json"))["runs"]
    study = Study({**config, "data_root": str(folder)}, home)
    assert {*study.runs} == {RunKey(**run["key"]) for run in runs}
    assert len(rows_of_banks(study)) > 0
