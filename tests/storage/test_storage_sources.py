"""Digest of files of users: of their whole content, wherever they were copied, and read once."""

import hashlib
import os
import socket
from pathlib import Path

import pytest

from calgrid.errors import ConfigError
from calgrid.storage import sources
from calgrid.storage.sources import KEPT_BYTES, files_below, record, source_digest


def test_time_and_place_do_not_count(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.parquet").write_bytes(b"content")
    os.utime(tmp_path / "b" / "x.parquet", (1, 1))
    assert source_digest(tmp_path / "a", "x.parquet") == source_digest(tmp_path / "b", "x.parquet")


def test_a_file_has_the_sha256_of_its_whole_content(tmp_path):
    content = bytes(range(256)) * 8192
    for changed in (0, 100_000, len(content) - 1):
        other = bytearray(content)
        other[changed] ^= 1
        (tmp_path / "x").write_bytes(other)
        assert source_digest(tmp_path, "x") == hashlib.sha256(other).hexdigest()


def test_names_and_content_below_a_folder_count(tmp_path):
    folder = tmp_path / "images"
    (folder / "cat").mkdir(parents=True)
    found = []
    written = [("cat/1.png", b"12"), ("cat/2.png", b"12"), ("cat/1.png", b"21"), ("3.png", b"")]
    for name, content in written:
        (folder / name).write_bytes(content)
        found.append(source_digest(tmp_path, "images"))
    assert len(set(found)) == 4
    (folder / ".hidden").write_bytes(b"x")
    assert source_digest(tmp_path, "images") == found[-1]
    assert files_below(folder) == [("3.png", 0), ("cat/1.png", 2), ("cat/2.png", 2)]


class TestKeptDigests:
    """A large file is read once, and again as soon as anything of it changes."""

    @pytest.fixture
    def file(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setattr(sources, "SETTLED_SECONDS", -1.0)
        path = tmp_path / "x"
        path.write_bytes(b"0" * KEPT_BYTES)
        source_digest(None, str(path))
        return path

    @pytest.fixture
    def read(self, monkeypatch):
        """Paths that were read completely."""
        paths = []

        def sha256_of(path):
            paths.append(path)
            return hashlib.sha256(path.read_bytes()).hexdigest()

        monkeypatch.setattr(sources, "sha256_of", sha256_of)
        return paths

    def test_it_is_not_read_again(self, file, read):
        expected = hashlib.sha256(file.read_bytes()).hexdigest()
        assert source_digest(None, str(file)) == expected
        assert read == []

    def test_the_same_size_and_time_with_another_content(self, file, read):
        status = file.stat()
        file.write_bytes(b"1" * KEPT_BYTES)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert source_digest(None, str(file)) == hashlib.sha256(file.read_bytes()).hexdigest()
        assert read == [file]

    @pytest.mark.parametrize("content", ["", "[]", "{"])
    def test_a_damaged_cache_is_not_used(self, file, read, tmp_path, content):
        (kept,) = (tmp_path / "cache/calgrid/sources").iterdir()
        kept.write_text(content)
        assert source_digest(None, str(file)) == hashlib.sha256(file.read_bytes()).hexdigest()
        assert read == [file]

    def test_what_was_written_a_moment_ago_is_read_again(self, file, read, monkeypatch):
        monkeypatch.setattr(sources, "SETTLED_SECONDS", 60.0)
        file.write_bytes(b"2" * KEPT_BYTES)
        for _ in range(2):
            source_digest(None, str(file))
        assert read == [file, file]

    def test_a_folder_and_one_of_its_files(self, file, read):
        folder = file.parent / "images"
        folder.mkdir()
        (folder / "a").write_bytes(b"0" * KEPT_BYTES)
        (folder / "b").write_bytes(b"0")
        first = source_digest(None, str(folder))
        read.clear()
        assert source_digest(None, str(folder)) == first
        assert read == []
        (folder / "b").write_bytes(b"1")
        assert source_digest(None, str(folder)) != first


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch, refuses):
    path = tmp_path / "x"
    path.write_bytes(b"0")

    def growing(read):
        read.write_bytes(read.read_bytes() + b"1")
        return ""

    monkeypatch.setattr(sources, "sha256_of", growing)
    with refuses(ConfigError, "x' changes while it is read; wait until it is complete"):
        source_digest(tmp_path, "x")


def test_without_a_data_root_paths_are_relative_and_the_line_is_named(
    tmp_path, monkeypatch, refuses
):
    monkeypatch.chdir(tmp_path)
    with refuses(ConfigError, "folder 'data/x' does not exist", "a line 'data_root: FOLDER'"):
        source_digest("data", "x")
    (tmp_path / "x").touch()
    with refuses(
        ConfigError,
        "the file or folder 'data/x' does not exist",
        "line 'data_root: .', if no other file of the study is below another folder",
    ):
        source_digest("data", "x")
    (tmp_path / "x").write_bytes(b"1")
    assert source_digest(None, "x") == source_digest(tmp_path, "x")


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
            (lambda path: path.symlink_to("nothing"), "cannot be read (it is a broken link); mend"),
            (lambda path: path.symlink_to(path), "cannot be read (Too many levels of symbolic"),
        ],
        ids=["fifo", "device", "broken link", "link to itself"],
    )
    def test_special_files(self, folder, refuses, make, message):
        make(folder / "cat" / "z.png")
        with refuses(ConfigError, message):
            source_digest(folder.parent, "train")
        with pytest.raises(ConfigError, match=r"no regular file|does not exist|cannot be read"):
            source_digest(folder.parent, "train/cat/z.png")

    def test_a_socket(self, folder, refuses, monkeypatch):
        monkeypatch.chdir(folder / "cat")  # names of sockets are short
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("z.png")
        with refuses(ConfigError, "z.png' is a socket"):
            source_digest(folder.parent, "train")

    def test_a_name_that_is_not_utf_8(self, folder, refuses):
        Path(os.fsdecode(bytes(folder / "cat") + b"/\xff.png")).write_bytes(b"1")
        with refuses(ConfigError, r"cat/\xff.png' is not UTF-8; rename it"):
            source_digest(folder.parent, "train")

    def test_a_link_to_a_folder_above_or_to_one_twice(self, folder, refuses):
        """Without end, or the same pictures in two classes."""
        (folder / "dog").symlink_to(folder.parent / "pool" / "dog")
        (folder.parent / "pool" / "dog").mkdir(parents=True)
        (folder.parent / "pool" / "dog" / "2.png").symlink_to(folder / "cat" / "1.png")
        assert [name for name, _ in files_below(folder)] == ["cat/1.png", "dog/2.png"]
        for target in ("/", folder, folder / "cat", folder / "dog"):
            (folder / "root").symlink_to(target)
            said = f"The link '{folder / 'root'}' leads to ... read already ... remove the link"
            with refuses(ConfigError, said):
                files_below(folder)
            (folder / "root").unlink()


@pytest.mark.parametrize("content", [b"", b"some content" * 1000])
def test_the_record_has_size_and_sha256_of_the_whole_file(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    found = record(tmp_path / "x", "images/x")
    digest = hashlib.sha256(content).hexdigest()
    assert found == {"path": "images/x", "size": len(content), "sha256": digest}
