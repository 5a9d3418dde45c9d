"""Atomic files: the old file or the new one, whatever happens in between."""

import errno
import os

import numpy as np
import pytest
import torch

from calgrid.errors import DataError, StateError
from calgrid.storage.atomic import (
    disk_error,
    new_folder,
    read_json,
    replacing,
    require_writable,
    write_bytes,
    write_json,
    write_text,
)
from calgrid.storage.checkpoint import save_checkpoint, save_resume_state
from calgrid.storage.logits import Logits, write_logits


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_readers_see_the_old_file_until_the_end(tmp_path):
    path = tmp_path / "a" / "b" / ("a" * 251 + ".txt")  # the longest name of a file system
    write_text(path, "öld\n")
    with replacing(path) as temporary:
        temporary.write_text("new, half wri")
        assert path.read_bytes() == "öld\n".encode()
        assert temporary.parent == path.parent  # a rename across file systems would not be atomic
        temporary.write_text("new")
    assert path.read_text() == "new"
    assert names(path.parent) == [path.name]


@pytest.mark.parametrize(
    "crash", [ValueError("bad"), OSError(errno.EIO, "I/O error"), KeyboardInterrupt()]
)
def test_a_crash_inside_leaves_the_old_file_and_no_other(tmp_path, crash):
    path = tmp_path / "file"
    write_text(path, "old")
    with pytest.raises(type(crash)), replacing(path) as temporary:
        temporary.write_text("half")
        raise crash
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


def logits(path, size):
    values = np.random.default_rng(0).normal(size=(size, 3))
    write_logits(path, Logits(np.arange(size), np.zeros(size, int), values))


@pytest.mark.parametrize(
    "write",
    [
        lambda path, size: write_bytes(path, b"x" * size),
        lambda path, size: save_checkpoint(path, {"a": {"w": torch.ones(size)}}, {}),
        lambda path, size: save_resume_state(path, {"w": torch.ones(size)}),
        logits,
    ],
    ids=["bytes", "checkpoint", "resume state", "logits"],
)
def test_a_full_disk_is_one_sentence_and_keeps_the_old_file(full_disk, refuses, write):
    path = full_disk / "file"
    write(path, 10)
    old = path.read_bytes()
    with refuses(StateError, f"The disk is full while writing {path}", "free some space and run"):
        write(path, 100_000)
    assert path.read_bytes() == old
    assert names(full_disk) == ["file"]


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, "The disk is full while writing {}"),
        (errno.EDQUOT, "The disk is full while writing {}"),
        (errno.EFBIG, "The disk is full while writing {}"),
        (errno.EROFS, "The path {} is on a file system that can only be read"),
    ],
)
def test_errors_of_disks_are_told_apart_from_others(number, message, tmp_path, refuses):
    with refuses(StateError, message.format(tmp_path)):
        raise disk_error(OSError(number, "no"), tmp_path)
    other = PermissionError(errno.EACCES, "no")
    assert disk_error(other, tmp_path) is other


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_file_modes_follow_the_umask(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        write_text(tmp_path / "file", "x")
        with replacing(tmp_path / "private") as temporary:
            temporary.write_text("x")
            temporary.chmod(0o600)  # as safetensors does
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode
    assert (tmp_path / "private").stat().st_mode & 0o777 == mode


def test_a_link_is_replaced_and_what_it_names_is_kept(tmp_path):
    """Published outputs are hard links: writing one must not change the other's content."""
    (tmp_path / "one").write_text("old")
    os.link(tmp_path / "one", tmp_path / "two")
    write_text(tmp_path / "two", "new")
    assert (tmp_path / "one").read_text() == "old"


def test_json_round_trip_and_equal_content_has_equal_bytes(tmp_path):
    value = {"z": float("inf"), "ö": None, "n": [2**70, -0.1], "a": {"y": "x", "b": True}}
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    write_json(one, value)
    write_json(two, dict(reversed(value.items())))
    assert read_json(one) == value
    assert one.read_bytes() == two.read_bytes()
    assert len(one.read_text().splitlines()) == 12  # people can read it


@pytest.mark.parametrize(
    "content", [b"", b'{"a": 1', b"\xff\xfe\x00"], ids=["empty", "cut off", "binary"]
)
def test_missing_or_damaged_json_is_refused_by_name(tmp_path, refuses, content):
    path = tmp_path / "manifest.json"
    with refuses(DataError, f"The manifest {path} does not exist"):
        read_json(path, "manifest")
    path.write_bytes(content)
    with refuses(DataError, f"The manifest {path} is not valid JSON", "delete it and run again"):
        read_json(path, "manifest")


def test_a_name_that_is_too_long_is_one_sentence(tmp_path, refuses, monkeypatch):
    path = tmp_path / ("a" * 300)
    with refuses(StateError, f"The path {path} is too long for this file system"):
        write_text(path, "x")
    is_dir = type(path).is_dir  # newer versions of Python answer False
    monkeypatch.setattr("pathlib.Path.is_dir", lambda each: each != path and is_dir(each))
    with refuses(StateError, f"The path {path} is too long for this file system"):
        require_writable(path)
    assert names(tmp_path) == []


def test_errors_name_the_file_and_not_the_temporary_one(tmp_path, monkeypatch):
    path = tmp_path / "file"

    def closed(temporary, *_args, **_options):
        raise PermissionError(errno.EACCES, "Permission denied", str(temporary))

    monkeypatch.setattr("pathlib.Path.touch", closed)
    for write in (require_writable, lambda path: write_text(path, "x")):
        with pytest.raises(PermissionError) as caught:
            write(path)
        assert caught.value.filename == str(path)


def test_a_file_is_tried_before_it_is_written(tmp_path):
    require_writable(tmp_path / "new" / "file")
    assert names(tmp_path / "new") == []
    with pytest.raises(IsADirectoryError):
        require_writable(tmp_path)


def test_a_new_folder_is_whole_or_not_there(tmp_path):
    with pytest.raises(ValueError, match="half"), new_folder(tmp_path / "tables") as temporary:
        (temporary / "a.csv").write_text("1")
        raise ValueError("half")
    assert not list(tmp_path.iterdir())
    with new_folder(tmp_path / "tables") as temporary:
        (temporary / "a.csv").write_text("1")
        assert not (tmp_path / "tables").exists()
    assert [path.name for path in tmp_path.rglob("*")] == ["tables", "a.csv"]
