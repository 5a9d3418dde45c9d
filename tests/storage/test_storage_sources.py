"""Identity of source files: cheap, by content, the same wherever and whenever the files were
copied.
"""

import hashlib
import os
import socket
from pathlib import Path

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
    for content in (
        b"0" * 2 * TAIL,
        b"0" * 2 * TAIL + b"0",
        b"0" * (2 * TAIL - 1) + b"1",
        b"0" * TAIL + b"1" * TAIL,
    ):
        (tmp_path / "x").write_bytes(content)
        found.append(identity(tmp_path, "x"))
    assert len(set(found)) == 4


def test_names_and_sizes_below_a_folder_count(tmp_path):
    folder = tmp_path / "images"
    (folder / "cat").mkdir(parents=True)
    found = []
    for name, content in (
        ("cat/1.png", b"12"),
        ("cat/2.png", b"12"),
        ("cat/1.png", b"123"),
        ("3.png", b""),
    ):
        (folder / name).write_bytes(content)
        found.append(identity(tmp_path, "images"))
    assert len(set(found)) == 4
    (folder / ".hidden").write_bytes(b"x")
    assert identity(tmp_path, "images") == found[-1]
    assert files_below(folder) == [("3.png", 0), ("cat/1.png", 3), ("cat/2.png", 2)]


def test_without_a_data_root_paths_are_relative_to_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "x").write_bytes(b"1")
    monkeypatch.chdir(tmp_path)
    assert identity(None, "x") == identity(tmp_path, "x")


def test_the_line_to_write_is_named(tmp_path, monkeypatch, refuses):
    monkeypatch.chdir(tmp_path)
    with refuses(
        ConfigError, "the file or folder 'data/x' does not exist", "add a line 'data_root: FOLDER'"
    ):
        identity("data", "x")
    (tmp_path / "x").touch()
    with refuses(
        ConfigError,
        "the file or folder 'data/x' does not exist",
        "so write the line 'data_root: .'",
    ):
        identity("data", "x")


class TestWhatIsNoFileOrFolder:
    """One sentence at once, whether it lies in a folder or is named itself."""

    @pytest.fixture
    def folder(self, tmp_path):
        (tmp_path / "train" / "cat").mkdir(parents=True)
        (tmp_path / "train" / "cat" / "1.png").write_bytes(b"1")
        return tmp_path / "train"

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (os.mkfifo, "z.png' is a FIFO and no regular file; remove it"),
            (lambda path: path.symlink_to("/dev/zero"), "z.png' is a device"),
            (
                lambda path: path.symlink_to("nothing"),
                "z.png' cannot be read (it is a broken link); mend",
            ),
            (
                lambda path: path.symlink_to(path),
                "z.png' cannot be read (Too many levels of symbolic links)",
            ),
        ],
        ids=["fifo", "device", "broken link", "link to itself"],
    )
    def test_special_files(self, folder, refuses, make, message):
        make(folder / "cat" / "z.png")
        with refuses(ConfigError, message):
            identity(folder.parent, "train")
        with pytest.raises(ConfigError, match=r"no regular file|does not exist|cannot be read"):
            identity(folder.parent, "train/cat/z.png")

    def test_a_socket(self, folder, refuses, monkeypatch):
        monkeypatch.chdir(folder / "cat")  # names of sockets are short
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("z.png")
        with refuses(ConfigError, "z.png' is a socket"):
            identity(folder.parent, "train")

    def test_a_name_that_is_not_utf_8(self, folder, refuses):
        Path(os.fsdecode(bytes(folder / "cat") + b"/\xff.png")).write_bytes(b"1")
        with refuses(ConfigError, r"cat/\xff.png' is not UTF-8; rename it"):
            identity(folder.parent, "train")

    def test_a_link_to_a_folder_above_or_to_one_twice(self, folder, refuses):
        """Without end, or the same pictures in two classes."""
        (folder / "dog").symlink_to(folder.parent / "pool" / "dog")
        (folder.parent / "pool" / "dog").mkdir(parents=True)
        (folder.parent / "pool" / "dog" / "2.png").symlink_to(folder / "cat" / "1.png")
        assert [name for name, _ in files_below(folder)] == ["cat/1.png", "dog/2.png"]
        for target in ("/", folder, folder / "cat", folder / "dog"):
            (folder / "root").symlink_to(target)
            with refuses(
                ConfigError,
                f"The link '{folder / 'root'}' leads to",
                "read already",
                "remove the link",
            ):
                files_below(folder)
            (folder / "root").unlink()


@pytest.mark.parametrize("content", [b"", b"some content" * 1000])
def test_the_record_has_size_and_sha256_of_the_whole_file(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    expected = {
        "path": "images/x",
        "size": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    assert record(tmp_path / "x", "images/x") == expected
