"""Packing a study and merging it elsewhere: what an archive holds, what is refused, no half
results.
"""

import hashlib
import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from calgrid.configuration.files import read_configuration
from calgrid.errors import CalgridError, ConfigError, DataError, StateError
from calgrid.files.merge import merge, merge_as
from calgrid.files.pack import pack
from calgrid.jobs.import_logits import import_run
from calgrid.storage import archive as archives
from calgrid.storage.layout import Layout, RunKey, logits_file
from calgrid.storage.logits import Logits, read_logits, write_logits
from calgrid.storage.records import HIDDEN, listed, read_record, sha256_of, write_record
from calgrid.storage.schema import METRIC_COLUMNS
from calgrid.storage.tables import as_table, read_frame, writing

OF_A = {"creators": ["Lab A"], "licence": "CC-BY-4.0", "cite": "https://doi.org/10.5281/zenodo.1"}
FIRST, SECOND = (
    RunKey("quick", "digits", "timm/resnet8", "ce", 1),
    RunKey("quick", "digits", "timm/resnet8", "tst", 1),
)
ROWS = {"val": 6, "test": 8}


def write_run(results, key, fingerprint, predicted=True, labels=0, first=None):
    """Records and files of a run as the stages write them, with a network that no archive may hold."""
    root = Path(Layout(str(results), "").run(key))
    made = {
        "environment": {
            "calgrid": "0.1.0",
            "commit": "abc+dirty",
            "python": "3.11",
            "torch": "2",
            "device": "cpu",
        }
    }
    made |= {"seconds": 1.5, "finished": "2026-01-02T23:30:00-0200"}
    spec = {
        "key": key._asdict(),
        "first_stage": first and {"fingerprint": first, "checkpoint": "last"},
    }
    root.mkdir(parents=True)
    (root / "model.safetensors").write_bytes(b"network")
    (root / "history.parquet").write_bytes(fingerprint.encode())
    files = listed(root, ["model.safetensors", "history.parquet"])
    write_record(
        root / "train.json", {**made, "spec": spec, "fingerprint": fingerprint, "files": files}
    )
    if predicted:
        rng = np.random.default_rng(len(fingerprint) + labels)
        names = {logits_file("last", split): split for split in ROWS}
        for name, split in names.items():
            rows = ROWS[split]
            label = (np.arange(rows, dtype=np.int32) + labels) % 3
            logits = rng.normal(size=(rows, 3)).astype(np.float32)
            write_logits(root / name, Logits(np.arange(rows, dtype=np.int32), label, logits))
        spec = {"key": key._asdict(), "run_fingerprint": fingerprint, "checkpoints": ["last"]}
        content = {
            **made,
            "spec": spec,
            "fingerprint": f"p{fingerprint}",
            "files": listed(root, names),
        }
        write_record(root / "predict.json", content)


def write_study(results, configuration=None, fingerprint="t2"):
    """A finished study of the second stage alone; its first stage was only trained."""
    write_run(results, FIRST, "t1", predicted=False)
    write_run(results, SECOND, fingerprint, first="t1")
    layout = Layout(str(results), "mine")
    spec = {"run_fingerprint": fingerprint, "logits_fingerprint": f"p{fingerprint}"}
    part = Path(layout.part(SECOND))
    part.mkdir(parents=True)
    write_record(part / "calibrate.json", {"spec": spec})
    run = {
        "key": SECOND._asdict(),
        "external": False,
        "first_stage": {"method": "ce", "run": "elsewhere"},
    }
    logits = {
        **run,
        "key": SECOND._replace(protocol="external")._asdict(),
        "external": True,
        "first_stage": None,
    }
    grids = [{"methods": ["tst"], "calibrators": ["none", "fc", "unheard_of", "ts"]}]
    config = {
        "study": "mine",
        "results": "results",
        "data_root": "data",
        "grids": grids,
        **(configuration or {}),
    }
    study = Path(layout.aggregate(""))
    manifest = {"runs": [run, logits], "configuration": config, "fingerprint": "m"}
    write_record(study / "manifest.json", manifest)
    rows = [
        {**dict.fromkeys(METRIC_COLUMNS, 0), **each["key"], "metric": "ece", "value": 0.1}
        for each in (run, logits)
    ]
    frame = pd.DataFrame(rows).astype(dict(METRIC_COLUMNS))
    with writing(study / "metrics.parquet") as writer:
        writer.add(as_table(frame, METRIC_COLUMNS))
    write_record(
        study / "aggregate.json", {"fingerprint": "m", "files": listed(study, ["metrics.parquet"])}
    )
    return study


@pytest.fixture
def study(tmp_path):
    return write_study(tmp_path / "a")


@pytest.fixture
def archive(study, tmp_path):
    assert pack(study, tmp_path / "study.zip", **OF_A) == 2
    return tmp_path / "study.zip"


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def rewrite(archive, target, **changes):
    """The same archive with other files, its sums made anew, as somebody would who means ill or
    well.
    """
    folder = target.with_suffix("")
    with zipfile.ZipFile(archive) as file:
        file.extractall(folder)
    (folder / "SHA256SUMS").unlink()
    for name, content in changes.items():
        if content is None:
            (folder / name).unlink()
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    files = {name: folder / name for name in contents(folder)}
    archives.write_archive(target, files, {name: sha256_of(path) for name, path in files.items()})
    return target


# packing
# ----------------------------------------------------------------------------------------------------------


def test_an_archive_holds_logits_records_and_their_sums_but_no_network_no_machine_and_no_external_run(
    archive, study
):
    with zipfile.ZipFile(archive) as file:
        found = {name: file.read(name) for name in file.namelist()}
    runs = [f"runs/quick/digits/timm+resnet8/{method}/seed1" for method in ("ce", "tst")]
    records = [
        f"{run}/{name}" for run in runs for name in ("train.json", "history.parquet", "origin.json")
    ]
    records += [
        f"{runs[1]}/{name}"
        for name in ("predict.json", "logits/last/val.parquet", "logits/last/test.parquet")
    ]
    whole = ["bank.json", "study.yaml", "metrics.parquet", "runs.parquet", "splits.parquet"]
    assert found.keys() == {*records, *whole, "SHA256SUMS", "ro-crate-metadata.json"}
    for run in runs:
        original = study.parent / run / "train.json"
        assert found[f"{run}/train.json"] == original.read_bytes()
    assert str(study.parent).encode() not in b"".join(found.values())
    about = {
        "schema": 1,
        "calgrid": "0.1.0",
        "created": "2026-01-03",
        "runs": 2,
        "sums": "SHA256SUMS",
    }
    assert json.loads(found["bank.json"]) == {**OF_A, **about}
    assert set(yaml.safe_load(found["study.yaml"])) == {"study", "grids"}


def test_tables_of_an_archive_say_what_each_run_and_each_split_is(archive, tmp_path):
    shutil.unpack_archive(archive, tmp_path / "open")
    runs, splits, metrics = (
        read_frame(tmp_path / f"open/{name}.parquet") for name in ("runs", "splits", "metrics")
    )
    assert runs[["method", "fingerprint", "commit", "dirty", "origin"]].values.tolist() == [
        ["ce", "t1", "abc", True, OF_A["cite"]],
        ["tst", "t2", "abc", True, OF_A["cite"]],
    ]
    assert json.loads(runs["spec"][1])["first_stage"]["fingerprint"] == "t1"
    assert metrics["protocol"].tolist() == ["quick"]
    # index and label of three rows, each number as four bytes, the least one first
    rows = np.array([0, 1, 2, 2, 0, 1], "<i4")
    assert archives.digest_of_rows(rows[:3], rows[3:]) == hashlib.sha256(rows.tobytes()).hexdigest()
    labels = {split: (np.arange(n), np.arange(n) % 3) for split, n in ROWS.items()}
    assert splits.values.tolist() == [
        ["digits", split, ROWS[split], archives.digest_of_rows(*labels[split])]
        for split in ("test", "val")
    ]


def test_the_metadata_have_what_rules_of_ro_crate_and_of_process_run_crates_demand(archive):
    with zipfile.ZipFile(archive) as file:
        content, names = json.loads(file.read("ro-crate-metadata.json")), set(file.namelist())
    assert content["@context"] == "https://w3id.org/ro/crate/1.1/context"
    graph = {entity["@id"]: entity for entity in content["@graph"]}
    assert len(graph) == len(content["@graph"])
    descriptor = graph["ro-crate-metadata.json"]
    assert (descriptor["@type"], descriptor["about"]) == ("CreativeWork", {"@id": "./"})
    assert descriptor["conformsTo"] == {"@id": "https://w3id.org/ro/crate/1.1"}
    root = graph["./"]
    assert root["@type"] == "Dataset"
    assert all(root[name] for name in ("name", "description", "datePublished"))
    assert graph[root["license"]["@id"]]["@id"] == "https://spdx.org/licenses/CC-BY-4.0"
    assert graph[root["conformsTo"]["@id"]]["@type"] == "CreativeWork"
    parts = {part["@id"] for part in root["hasPart"]}
    assert parts == names - {"ro-crate-metadata.json", "SHA256SUMS"}
    assert all(graph[part]["@type"] == "File" for part in parts)
    actions = [graph[each["@id"]] for each in root["mentions"]]
    assert len(actions) == 2
    for each in actions:
        assert each["@type"] == "CreateAction"
        assert graph[each["instrument"]["@id"]]["@type"] == "SoftwareApplication"
        assert graph[each["instrument"]["@id"]]["softwareVersion"] == "0.1.0@abc+dirty"
        assert {result["@id"] for result in each["result"]} <= parts
        assert each["endTime"] == "2026-01-02T23:30:00-02:00"


@pytest.mark.parametrize(
    "place", [{"plugins": ["/a/folder"]}, {"datasets": {"mine": {"train": "~/train.parquet"}}}]
)
def test_a_configuration_that_names_a_path_of_the_machine_is_refused(tmp_path, refuses, place):
    study = write_study(tmp_path / "a", place)
    with refuses(ConfigError, "contains the absolute path", "make it relative"):
        pack(study, tmp_path / "study.zip", **OF_A)
    assert not (tmp_path / "study.zip").exists()


def test_a_changed_file_and_a_run_made_again_are_not_packed(study, tmp_path, refuses):
    run = study.parent / "runs" / SECOND.path
    logits = run / "logits/last/test.parquet"
    before = logits.read_bytes()
    logits.write_bytes(before[:-1] + b"x")
    with refuses(StateError, "logits/last/test.parquet", "is damaged"):
        pack(study, tmp_path / "study.zip", **OF_A)
    logits.write_bytes(before)
    write_record(run / "train.json", {**read_record(run / "train.json"), "fingerprint": "other"})
    with refuses(StateError, SECOND.path, "has changed since"):
        pack(study, tmp_path / "study.zip", **OF_A)
    assert not (tmp_path / "study.zip").exists()


# merging
# ----------------------------------------------------------------------------------------------------------


def test_merged_runs_pack_to_equal_bytes_with_their_origin(archive, study, tmp_path):
    about, new, old = merge(archive, tmp_path / "b")
    assert (about["creators"], new, old) == (["Lab A"], 2, 0)
    shutil.copytree(
        study.parent / "mine", tmp_path / "b/mine"
    )  # what the workflow makes of them, which is the same
    pack(tmp_path / "b/mine", tmp_path / "again.zip", **OF_A)
    assert (tmp_path / "again.zip").read_bytes() == archive.read_bytes()
    pack(tmp_path / "b/mine", tmp_path / "of_b.zip", creators=["Lab B"], licence="CC0-1.0")
    shutil.unpack_archive(tmp_path / "of_b.zip", tmp_path / "of_b")
    assert read_frame(tmp_path / "of_b/runs.parquet")["origin"].tolist() == [OF_A["cite"]] * 2


def test_what_is_here_already_is_left_alone_also_where_it_was_made(archive, study, tmp_path):
    before = contents(study.parent)
    assert merge(archive, study.parent)[1:] == (0, 2)
    assert contents(study.parent) == before
    merge(archive, tmp_path / "b")
    merged = contents(tmp_path / "b")
    assert merge(archive, tmp_path / "b")[1:] == (0, 2)
    assert contents(tmp_path / "b") == merged


@pytest.mark.parametrize(
    ("fingerprint", "said"),
    [
        ("other", "another fingerprint in train.json"),
        ("t2", "the same fingerprint, but other records"),
    ],
)
def test_another_run_of_the_same_key_is_refused_and_nothing_merged(
    archive, tmp_path, refuses, fingerprint, said
):
    write_run(tmp_path / "b", SECOND, fingerprint, first="t1")
    record = tmp_path / "b/runs" / SECOND.path / "train.json"
    write_record(record, {**read_record(record), "seconds": 2.0})
    before = contents(tmp_path / "b")
    with refuses(StateError, SECOND.path, said, "--as NAME"):
        merge(archive, tmp_path / "b")
    assert contents(tmp_path / "b") == before


def test_a_run_that_is_being_trained_here_is_refused(archive, tmp_path, refuses):
    state = tmp_path / "b/runs" / FIRST.path / ".calgrid/train/t1.partial/state"
    state.parent.mkdir(parents=True)
    state.touch()
    with refuses(StateError, FIRST.path, "is not finished"):
        merge(archive, tmp_path / "b")


@pytest.mark.parametrize("here", ["logits", "prepared data"])
def test_logits_of_other_rows_than_those_here_are_refused(archive, data, tmp_path, refuses, here):
    if here == "logits":
        write_run(tmp_path / "b", SECOND._replace(method="ls"), "ours", labels=1)
    else:
        shutil.copytree(data / "digits", tmp_path / "b/data/digits")
    before = contents(tmp_path / "b")
    with refuses(StateError, "The logits of digits", "other rows", "--as NAME"):
        merge(archive, tmp_path / "b")
    assert contents(tmp_path / "b") == before


def test_a_merge_that_is_interrupted_leaves_whole_runs_and_goes_on(archive, tmp_path, monkeypatch):
    merge(archive, tmp_path / "whole")
    renamed = Path.rename

    def stopped(path, target):
        if "tst" in str(target):
            raise KeyboardInterrupt
        return renamed(path, target)

    monkeypatch.setattr(Path, "rename", stopped)
    with pytest.raises(KeyboardInterrupt):
        merge(archive, tmp_path / "b")
    monkeypatch.undo()
    whole = contents(tmp_path / "whole")
    assert contents(tmp_path / "b") == {
        name: content for name, content in whole.items() if "/ce/" in name
    }
    killed = (
        tmp_path / "b" / HIDDEN / ".merge" / "runs"
    )  # by a signal that leaves no time to clear up
    killed.mkdir(parents=True)
    assert merge(archive, tmp_path / "b")[1:] == (1, 1)
    assert contents(tmp_path / "b") == whole
    assert list((tmp_path / "b" / HIDDEN).iterdir()) == []


def test_a_job_never_changes_a_merged_run(archive, tmp_path, refuses):
    merge(archive, tmp_path / "b")
    run = tmp_path / "b/runs" / SECOND.path
    before = contents(run)
    spec = {
        "key": SECOND._asdict(),
        "external": {"test": "x", "kind": "logits"},
        "fingerprint": "f",
    }
    with refuses(
        StateError, "was merged from an archive, and no job changes it", "move its folder away"
    ):
        import_run(spec, [run / "logits/last/test.parquet"], run)
    assert contents(run) == before


# damage
# -----------------------------------------------------------------------------------------------------------


def test_a_flipped_byte_of_a_file_is_named(archive, tmp_path, refuses):
    content = bytearray(archive.read_bytes())
    with zipfile.ZipFile(archive) as file:
        entry = file.getinfo(f"runs/{SECOND.path}/logits/last/test.parquet")
    content[entry.header_offset + 30 + len(entry.filename) + entry.file_size // 2] ^= 1
    (tmp_path / "flipped.zip").write_bytes(content)
    with refuses(DataError, entry.filename, "is damaged", "fetch it again"):
        merge(tmp_path / "flipped.zip", tmp_path / "b")
    assert contents(tmp_path / "b") == {}


def test_no_flipped_bit_anywhere_changes_what_is_merged(archive, tmp_path):
    """Some are without meaning (the time of a file); all others are refused, and leave nothing."""
    merge(archive, tmp_path / "whole")
    whole, content, refused = contents(tmp_path / "whole"), archive.read_bytes(), 0
    positions = np.random.default_rng(0).permutation(len(content))[:60]
    directory = content.index(b"PK\x01\x02")
    for number, position in enumerate(
        [*positions, *range(directory, directory + 60), *range(len(content) - 22, len(content))]
    ):
        flipped = bytearray(content)
        flipped[position] ^= 1 << number % 8
        (tmp_path / "flipped.zip").write_bytes(flipped)
        try:
            merge(tmp_path / "flipped.zip", tmp_path / "b")
        except CalgridError:
            refused += 1
            assert contents(tmp_path / "b") == {}, position
        else:
            assert contents(tmp_path / "b") == whole, position
        shutil.rmtree(tmp_path / "b", ignore_errors=True)
    assert refused > 70


def test_a_truncated_archive_and_another_zip_file_are_refused(archive, tmp_path, refuses):
    for size in (0, 10, -1, -100):
        (tmp_path / "short.zip").write_bytes(archive.read_bytes()[:size])
        with refuses(DataError, "short.zip", "fetch it again"):
            merge(tmp_path / "short.zip", tmp_path / "b")
    np.savez(tmp_path / "logits.npz", logits=np.eye(3))
    with refuses(DataError, "is not an archive of calgrid", "calgrid pack"):
        merge(tmp_path / "logits.npz", tmp_path / "b")


RUN = f"runs/{SECOND.path}"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bank.json": None}, "bank.json is missing"),
        ({"bank.json": b'{"schema": 2}'}, "this calgrid reads schema 1; update calgrid"),
        ({"bank.json": b"[]"}, "is not an archive of calgrid"),
        (
            {f"{RUN}/origin.json": b'{"creators": [], "licence": "x", "cite": {}}'},
            "origin.json is invalid",
        ),
        ({"study.yaml": b"{"}, "is not an archive of calgrid"),
        ({f"{RUN}/predict.json": None}, f"the files of {RUN} differ from its records"),
        ({f"{RUN}/origin.json": None}, f"the files of {RUN} differ from its records"),
        ({f"{RUN}/more.parquet": b"x"}, f"the files of {RUN} differ from its records"),
        ({f"{RUN}/history.parquet": b"x"}, f"the files of {RUN} differ from its records"),
        ({f"{RUN}/train.json": b"{}"}, "has been changed"),
    ],
)
def test_an_archive_that_contradicts_itself_is_refused(archive, tmp_path, refuses, changes, said):
    rewritten = rewrite(archive, tmp_path / "rewritten.zip", **changes)
    with refuses(DataError, said):
        merge(rewritten, tmp_path / "b")
    assert contents(tmp_path / "b") == {}


def test_logits_of_other_rows_than_the_archive_says_are_refused(archive, study, tmp_path, refuses):
    write_run(tmp_path / "c", SECOND, "t2", first="t1", labels=1)
    other = {
        f"{RUN}/{name}": content
        for name, content in contents(tmp_path / "c" / RUN).items()
        if "model" not in name
    }
    rewritten = rewrite(archive, tmp_path / "rewritten.zip", **other)
    with refuses(DataError, "the rows of", "differ from splits.parquet"):
        merge(rewritten, tmp_path / "b")


@pytest.mark.parametrize("name", ["../outside", "/outside", "runs/../../outside", ".hidden"])
def test_no_file_of_an_archive_leaves_its_folder(archive, tmp_path, refuses, name):
    hostile = tmp_path / "hostile.zip"
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(hostile, "w") as target:
        target.writestr(name, "x")
        for each in source.namelist():
            own = f"{'0' * 64}  {name}\n".encode() if each == "SHA256SUMS" else b""
            target.writestr(each, source.read(each) + own)
    with refuses(DataError, "does not hold the files that its SHA256SUMS lists"):
        merge(hostile, tmp_path / "b")
    assert not list(tmp_path.rglob("outside"))


# logits made elsewhere
# --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("labels", "dataset"), [(0, "digits"), (1, "digits.lab_a")])
def test_as_logits_made_elsewhere_methods_have_the_label_and_data_sets_where_rows_differ(
    archive, tmp_path, refuses, labels, dataset
):
    write_run(tmp_path / "b", SECOND, "other", labels=labels)
    before = contents(tmp_path / "b")
    _, file, count = merge_as(archive, "lab_a", tmp_path / "data", tmp_path / "b")
    assert contents(tmp_path / "b") == before
    assert count == 1
    (entry,) = read_configuration(file)["external"].values()
    paths = {split: tmp_path / "data" / entry.pop(split) for split in ROWS}
    assert {split: len(read_logits(path)) for split, path in paths.items()} == ROWS
    assert entry == {
        "kind": "logits",
        "dataset": dataset,
        "backbone": "timm/resnet8",
        "method": "tst.last.lab_a",
        "seed": 1,
        "calibrators": ["none", "ts"],
    }
    with refuses(StateError, "lab_a exists already"):
        merge_as(archive, "lab_a", tmp_path / "data", tmp_path / "b")
