"""Identity of source files: cheap, by content, the same wherever and whenever the files were copied."""

import hashlib
import os

import pytest

from calgrid.errors import ConfigError
from calgrid.storage.sources import TAIL, files_below, identity, record


def test_time_and_place_do_not_count(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.parquet").write_bytes(b"content")
    os.utime(tmp_path / "b" / "x.parquet", (1, 1))
    assert identity(tmp_path / "a", "x.parquet") == identity(tmp_path / "b", "x.parquet")


def test_size_and_end_of_a_file_count(tmp_path):
    found = []
    for content in (b"0" * 2 * TAIL, b"0" * 2 * TAIL + b"0", b"0" * (2 * TAIL - 1) + b"1", b"0" * TAIL + b"1" * TAIL):
        (tmp_path / "x").write_bytes(content)
        found.append(identity(tmp_path, "x"))
    assert len(set(found)) == 4


def test_names_and_sizes_below_a_folder_count(tmp_path):
    folder = tmp_path / "images"
    (folder / "cat").mkdir(parents=True)
    found = []
    for name, content in (("cat/1.png", b"12"), ("cat/2.png", b"12"), ("cat/1.png", b"123"), ("3.png", b"")):
        (folder / name).write_bytes(content)
        found.append(identity(tmp_path, "images"))
    assert len(set(found)) == 4
    (folder / ".hidden").write_bytes(b"x")
    assert identity(tmp_path, "images") == found[-1]


def test_files_are_listed_in_sorted_order_with_sizes(tmp_path):
    for name in ("b/2.png", "b/1.png", "a/z/3.png", "0.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    assert files_below(tmp_path) == [("0.txt", 5), ("a/z/3.png", 9), ("b/1.png", 7), ("b/2.png", 7)]


def test_without_a_data_root_paths_are_relative_to_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "x").write_bytes(b"1")
    monkeypatch.chdir(tmp_path)
    assert identity(None, "x") == identity(tmp_path, "x")


def test_a_missing_source_is_one_sentence(tmp_path, refuses):
    with refuses(
        ConfigError, "datasets.mine.train: the file or folder", "does not exist; correct the path or data_root"
    ):
        try:
            identity(tmp_path, "no.parquet")
        except ConfigError as error:
            raise ConfigError(f"datasets.mine.train: {error}") from None


@pytest.mark.parametrize("content", [b"", b"some content" * 1000])
def test_the_record_has_size_and_sha256_of_the_whole_file(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    expected = {"path": "images/x", "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert record(tmp_path / "x", "images/x") == expected
