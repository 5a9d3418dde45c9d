"""``calgrid verify``, ``clean``, ``pack`` and ``merge`` on small handwritten results."""

import contextlib
import hashlib
import os
import shutil
import zipfile
from pathlib import Path

import pytest
from tests.conftest import HOME, flip, later_stages

from calgrid.cli import main
from calgrid.cli.maintenance import branch
from calgrid.plan.plan import Plan
from calgrid.storage.locks import OwnerLock
from calgrid.storage.publish import Call, make_result, replace_files
from calgrid.storage.records import MODEL, listing, read_record, write_record
from calgrid.study.study import Study

RUN = "runs/digits/digits/resnet8/ce/seed1"
CREATED = {"spec": {}, "finished": "2026-01-02T03:04:05+0000"}


@pytest.fixture
def results(once, tmp_path, monkeypatch):
    """Results of one finished study ``small`` with one run."""
    shutil.copytree(once, tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    return Path("results")


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """The same, never changed."""
    folder = tmp_path_factory.mktemp("once")
    with contextlib.chdir(folder):
        finished(Path("results"))
    return folder / "results"


def make(folder, record, fingerprint, outputs, results=(), **given):
    call = Call({"fingerprint": fingerprint}, folder, **given)
    make_result(call, record, outputs, writing(*outputs), dict(results))


def finished(root):
    training(root, "a" * 16)
    folder = root / RUN / f"calibrate-{'b' * 10}"
    make(folder, "calibrate.json", "b" * 16, ["metrics.parquet"])
    folders = [f"results/{RUN}/train-{'a' * 10}", str(folder)]
    configuration = {"study": "small", "results": "results"}
    manifest = {"folders": folders, "runs": [], "configuration": configuration}
    manifest["given"] = {"study": "small"}

    def produce(work):
        write_record(work / "manifest.json", manifest)
        (work / "metrics.parquet").write_text("metrics")
        return {}

    record = root / "small/.calgrid" / f"aggregate-{'c' * 10}.json"
    replace_files(Call({}, record), ["manifest.json", "metrics.parquet"], produce, {})
    later_stages(root / "small")


def training(root, fingerprint):
    folder = root / RUN / f"train-{fingerprint[:10]}"
    outputs = [MODEL, "history.parquet"]
    make(folder, "train.json", fingerprint, outputs)
    return folder


def writing(*names):
    def produce(work):
        for name in names:
            (work / name).write_text(f"content of {name}")
        return CREATED

    return produce


def test_intact_results_are_said_to_be_intact(results, capsys):
    assert main(["verify"]) == 0
    said = capsys.readouterr().out
    assert "all intact: 2 results in results (studies: 'small'); 13 inputs" in said


@pytest.mark.parametrize(
    "name",
    [
        f"{RUN}/train-{'a' * 10}/{MODEL}",
        f"{RUN}/train-{'a' * 10}/train.json",
        f"{RUN}/calibrate-{'b' * 10}/metrics.parquet",
        "small/metrics.parquet",
        f"small/.calgrid/aggregate-{'c' * 10}.json",
    ],
)
def test_a_flipped_bit_is_named_and_deleted(results, capsys, name):
    flip(results / name)
    assert main(["verify"]) == 2
    said = capsys.readouterr()
    assert Path(name).name in said.out
    assert "calgrid verify results --delete" in said.err
    assert main(["verify", "--delete"]) == 0
    capsys.readouterr()
    assert main(["verify"]) == 2
    assert "is missing; run again." in capsys.readouterr().err
    assert not (results / name).exists() or name.startswith("small/metrics")


@pytest.mark.parametrize("name", ["manifest.json", ".calgrid/plan-1.json"])
def test_a_study_whose_list_of_results_is_damaged(results, capsys, name):
    manifest = read_record(results / "small/manifest.json")
    write_record(results / "small/.calgrid/plan-1.json", {"manifest": manifest})
    flip(results / "small" / name)
    assert main(["verify", "results/small"]) == 2
    said = capsys.readouterr()
    assert f"results/small/{name}: " in said.out
    assert "'calgrid verify results/small --delete'" in said.err
    assert main(["verify", "results/small", "--delete"]) == 0
    assert main(["verify", "results/small"]) == 0
    assert "all intact: 2 results of study 'small'" in capsys.readouterr().out


def test_a_record_of_another_form_is_named(results, capsys):
    record = results / RUN / f"train-{'a' * 10}" / "train.json"
    record.write_text("[]")
    assert main(["verify"]) == 2
    assert str(record) in capsys.readouterr().out
    write_record(record, {"fingerprint": 3})
    assert main(["verify"]) == 2
    assert "it holds the result with the fingerprint 3" in capsys.readouterr().out


class TestChain:
    """``verify`` compares what a record names with what is there now."""

    @pytest.fixture
    def calibrated(self, results):
        """A calibration of the study that was made from a prediction and a file."""
        (results / "labels.csv").write_text("labels")
        predicted = results / RUN / f"predict-{'e' * 10}"
        make(predicted, "predict.json", "e" * 16, ["logits"])
        folder = results / RUN / f"calibrate-{'b' * 10}"
        digest = hashlib.sha256(b"labels").hexdigest()
        given = {"files": {"results/labels.csv": digest}, "root": "."}
        read = {predicted: listing(predicted)}
        make(folder, "calibrate.json", "b" * 16, ["metrics.parquet"], read, **given)
        return predicted

    def test_another_result_above_and_another_file(self, calibrated, results, capsys):
        shutil.rmtree(calibrated)
        make(calibrated, "predict.json", "e" * 16, ["other"])
        (results / "labels.csv").write_text("corrected")
        assert main(["verify", "results/small", "--delete"]) == 2
        said = capsys.readouterr()
        named = f"{calibrated}/predict.json, results/labels.csv"
        assert f"calibrate-{'b' * 10}: {named} had another content when it was made" in said.out
        assert "1 result of study 'small' is made from other inputs than are there now" in said.err

    def test_what_is_gone_is_not_compared(self, calibrated, results, capsys):
        shutil.rmtree(calibrated)
        (results / "labels.csv").unlink()
        assert main(["verify", "results/small"]) == 0
        assert "3 inputs not there, so not compared (the first: " in capsys.readouterr().out


def test_a_model_may_be_deleted(results):
    (results / RUN / f"train-{'a' * 10}" / MODEL).unlink()
    assert main(["verify"]) == 0


def test_a_study_is_verified_alone(results):
    flip(training(results, "d" * 16) / MODEL)
    assert main(["verify", "results/small"]) == 0
    assert main(["verify"]) == 2


def test_clean_lists_what_no_study_uses_and_removes_it_after_a_yes(results, capsys):
    old = training(results, "d" * 16)
    assert main(["clean"]) == 0  # nobody can answer the question here
    said = capsys.readouterr().out
    assert str(old) in said
    assert "Nothing was removed" in said
    assert old.is_dir()
    assert main(["clean", "--yes"]) == 0
    assert not old.exists()
    assert main(["verify"]) == 0


def test_clean_removes_fits_without_a_calibration_and_older_plans_with_their_plugins(results):
    manifest = {"folders": [], "configuration": {"results": "results"}}
    fits = []
    for run in (RUN, RUN.replace("ce", "ls")):
        fits.append(results / run / "fits")
        fits[-1].mkdir(parents=True)
        (fits[-1] / "ts.safetensors").write_text("a fit")
    plans = [results / f"small/.calgrid/plan-{number}.json" for number in (1, 2)]
    copies = [results / f".plugins/{number}" for number in (1, 2)]
    for moment, (path, copy) in enumerate(zip(plans, copies, strict=True)):
        write_record(path, {"manifest": manifest, "inputs": {"a": {"plugins": str(copy)}}})
        copy.mkdir(parents=True)
        os.utime(path, (moment, moment))
    unfinished = fits[1].with_name(f"calibrate-{'e' * 10}")
    unfinished.with_name(f"{unfinished.name}.partial").mkdir()
    with OwnerLock(unfinished.with_name(f"{unfinished.name}.lock"), "result"):
        assert main(["clean", "--yes"]) == 0
    assert [path.exists() for path in (*fits, *plans)] == [True, True, False, True]
    assert [copy.exists() for copy in copies] == [False, True]
    assert main(["clean", "--yes"]) == 0
    assert [path.exists() for path in fits] == [True, False]


def test_clean_keeps_what_a_live_process_writes(results):
    partial = results / RUN / f"train-{'d' * 10}.partial"
    partial.mkdir()
    with OwnerLock(partial.with_name(f"train-{'d' * 10}.lock"), "result"):
        main(["clean", "--yes"])
        assert partial.is_dir()
    main(["clean", "--yes"])
    assert not partial.exists()


@pytest.mark.parametrize(
    ("pattern", "removed"),
    [
        ("ls", {"ls/seed1", "ls/seed2", "ens2(ls)/seed1", "tst+ls/seed1", "tst+ls/seed2"}),
        ("ls/seed2", {"ls/seed2", "tst+ls/seed2", "ens2(ls)/seed1"}),
        ("tst+ls/seed1", {"tst+ls/seed1"}),
    ],
)
def test_a_branch_is_a_run_and_all_that_is_made_from_it(pattern, removed):
    grid = {"datasets": ["digits"], "backbones": ["resnet8"], "seeds": [1, 2]}
    grids = [
        {**grid, "protocol": "digits", "methods": ["ce", "ls", "tst+ls", "ens2(ls)"]},
        # these test the trainings of the first grid
        {**grid, "protocol": "tested", "methods": ["ls"]},
    ]
    tested = {"base": "digits", "test_normalisation": {"digits": "imagenet"}}
    plan = Plan(Study({"study": "s", "protocols": {"tested": tested}, "grids": grids}, HOME))
    folders = branch(plan, [pattern])
    found = {"/".join(folder.parts[-3:-1]) for folder in folders if folder.name != "fits"}
    assert found == removed
    stages = {folder.name.split("-")[0] for folder in folders}
    assert stages == {"train", "predict", "calibrate", "fits"}
    of_other_protocol = [folder for folder in folders if "tested" in folder.parts]
    assert bool(of_other_protocol) == (pattern != "tst+ls/seed1")


def pack(*options):
    origin = ["--creator", "A", "--licence", "CC0-1.0"]
    return main(["pack", "results/small", "bank.zip", *origin, *options])


def test_networks_are_packed_if_wanted_and_equal_results_give_equal_bytes(results):
    assert pack("--models") == 0
    first = Path("bank.zip").read_bytes()
    with zipfile.ZipFile("bank.zip") as archive:
        assert f"{RUN}/train-{'a' * 10}/{MODEL}" in archive.namelist()
    pack("--models")
    assert Path("bank.zip").read_bytes() == first


def test_an_unpacked_archive_is_verified(results, capsys):
    pack()
    zipfile.ZipFile("bank.zip").extractall("archive")
    assert not list(Path("archive").rglob(MODEL))
    assert main(["verify", "archive"]) == 0
    assert main(["verify", "archive/small"]) == 0
    assert "all intact: 2 results of study 'small'" in capsys.readouterr().out
    Path("archive/study.yaml").write_text("study: large\n")
    assert main(["verify", "archive/small"]) == 2
    assert "archive/bank.json: damaged or missing: study.yaml" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["report.html", "tables/index.json"])
def test_an_edited_file_of_an_archive_is_named(results, capsys, name):
    pack()
    assert main(["verify", "bank.zip"]) == 0
    assert "all intact: 2 results" in capsys.readouterr().out
    with zipfile.ZipFile("bank.zip") as archive:
        content = {each: archive.read(each) for each in archive.namelist()}
    with zipfile.ZipFile("edited.zip", "w") as archive:
        for each, data in content.items():
            archive.writestr(each, b"[1]" if each == f"small/{name}" else data)
    assert main(["verify", "edited.zip"]) == 2
    said = capsys.readouterr()
    assert name in said.out
    assert "The archive edited.zip is damaged" in said.err


@pytest.mark.parametrize("name", ["report.html", "tables", "figures"])
def test_a_missing_part_of_a_study_is_named_and_not_packed(results, capsys, name):
    path = results / "small" / name
    path.unlink() if path.is_file() else shutil.rmtree(path)
    for record in (results / "small/.calgrid").glob(f"{Path(name).stem}-*.json"):
        record.unlink()
    assert main(["verify", "results/small"]) == 2
    assert f"{Path(name).stem}-*.json: missing" in capsys.readouterr().out
    assert pack() == 2
    assert "belong together" in capsys.readouterr().err
    assert not Path("bank.zip").exists()


def test_tables_of_other_metrics_than_are_there_now_are_not_packed(results, capsys):
    """As after a call of the rule ``aggregate`` alone."""
    record = results / "small/.calgrid" / f"aggregate-{'c' * 10}.json"
    record.unlink()
    manifest = (results / "small/manifest.json").read_text()

    def produce(work):
        (work / "manifest.json").write_text(manifest)
        (work / "metrics.parquet").write_text("other metrics")
        return {}

    replace_files(Call({}, record), ["manifest.json", "metrics.parquet"], produce, {})
    assert pack() == 2
    said = capsys.readouterr().err
    assert "'tables' was made from other files of the study than are there now" in said


def test_folders_of_this_machine_are_not_packed(results):
    record = results / "small/.calgrid" / f"aggregate-{'c' * 10}.json"
    manifest = read_record(results / "small/manifest.json")
    here = str(results.absolute())
    manifest["configuration"] = {"study": "small", "results": here, "data_root": "/data/me"}
    manifest["given"] = {**manifest["configuration"], "device": "cpu", "plugins": []}
    manifest["folders"] = [f"{Path.cwd()}/{folder}" for folder in manifest["folders"]]
    published = HOME / "config/papers/smart/published.csv"
    manifest["papers"] = [{"name": "smart", "published": str(published)}]

    def produce(work):
        write_record(work / "manifest.json", manifest)
        return {}

    record.unlink()
    replace_files(Call({}, record), ["manifest.json"], produce, {})
    later_stages(results / "small")
    assert pack() == 0
    zipfile.ZipFile("bank.zip").extractall("archive")
    packed = read_record(Path("archive/small/manifest.json"))
    assert packed["folders"][0] == f"results/{RUN}/train-{'a' * 10}"
    assert packed["papers"][0]["published"] == "config/papers/smart/published.csv"
    assert Path("archive/study.yaml").read_text() == "keep_models: false\nstudy: small\n"
    for path in Path("archive").rglob("*.*"):
        assert not path.is_file() or "/data/me" not in path.read_text()
        assert not path.is_file() or here not in path.read_text()


def test_a_changed_file_is_not_packed(results, capsys):
    flip(results / RUN / f"train-{'a' * 10}" / "history.parquet")
    assert pack() == 2
    assert "history.parquet" in capsys.readouterr().err
    assert not Path("bank.zip").exists()
