"""Downloads from a server of our own: interrupted, wrong, moved, refused, killed."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from calgrid.datasets import downloads
from calgrid.datasets.downloads import download
from calgrid.errors import DataError

CONTENT = bytes(range(256)) * 10_000  # 2.56 MB


class Server:
    """Serves CONTENT at every path; ``plan`` has a function a request, of which the last stays."""

    def __init__(self):
        self.requests, self.plan = [], [whole]
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.requests.append(self.path)
                outer.plan[min(len(outer.requests), len(outer.plan)) - 1](self)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/data.tar"


def answer(handler, content, length=None):
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(content) if length is None else length))
    handler.end_headers()
    handler.wfile.write(content)


def whole(handler):
    answer(handler, CONTENT)


def cut(handler):
    """Send less than promised."""
    answer(handler, CONTENT[:1_000_000], length=len(CONTENT))


def other(handler):
    answer(handler, bytes(len(CONTENT)))


def longer(handler):
    answer(handler, CONTENT + b"0")


def drop(handler):
    handler.connection.close()


def slow(handler):
    time.sleep(0.3)
    whole(handler)


def endless(handler):
    """Send the first half, and nothing more for a minute."""
    answer(handler, CONTENT[: len(CONTENT) // 2], length=len(CONTENT))
    time.sleep(60)


def refuse(status):
    return lambda handler: handler.send_error(status)


def move(url):
    def redirect(handler):
        handler.send_response(302)
        handler.send_header("Location", url)
        handler.end_headers()

    return redirect


@pytest.fixture
def server():
    made = Server()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture(autouse=True)
def no_pauses_and_no_encryption(monkeypatch):
    monkeypatch.setattr("pooch.core.time", SimpleNamespace(sleep=lambda _: None))
    monkeypatch.setattr(downloads, "SCHEMES", ("http",))  # the server here has no certificate
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def file(server):
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    return {"name": "data.tar", "url": server.url, "size": len(CONTENT), "sha256": sha256}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_downloaded_once_and_then_used_without_network(server, file, tmp_path, capfd):
    path = download(file, tmp_path)
    assert path.read_bytes() == CONTENT
    assert names(tmp_path) == ["data.tar"]
    assert "download data.tar: 100%" in capfd.readouterr().err
    (tmp_path / "mine").touch()
    assert path.stat().st_mode == (tmp_path / "mine").stat().st_mode
    assert download({**file, "url": "https://127.0.0.1:1/none"}, tmp_path) == path
    assert len(server.requests) == 1


def test_an_md5_is_verified_where_no_sha256_is_published(server, file, tmp_path, refuses):
    del file["sha256"]
    right = {**file, "md5": hashlib.md5(CONTENT).hexdigest()}
    assert download(right, tmp_path).read_bytes() == CONTENT
    with refuses(DataError, "is not the published file (md5 ", f"instead of {'0' * 32}"):
        download({**file, "name": "wrong.tar", "md5": "0" * 32}, tmp_path)


def test_another_file_of_that_name_is_refused_and_kept(server, file, tmp_path, refuses):
    (tmp_path / "data.tar").write_bytes(b"mine")
    message = "data.tar is not the published file (4 bytes instead of 2,560,000)"
    with refuses(DataError, message, "remove it or replace"):
        download(file, tmp_path)
    assert (tmp_path / "data.tar").read_bytes() == b"mine"
    (tmp_path / "data.tar").write_bytes(bytes(len(CONTENT)))
    with refuses(DataError, "is not the published file (sha256 "):
        download(file, tmp_path)
    assert server.requests == []


@pytest.mark.parametrize("failure", [cut, drop, refuse(503)], ids=["cut", "dropped", "busy"])
def test_a_broken_connection_is_tried_again(server, file, tmp_path, failure):
    server.plan = [failure, whole]
    assert download(file, tmp_path).read_bytes() == CONTENT
    assert len(server.requests) == 2


@pytest.mark.parametrize("content", [other, longer])
def test_another_content_leaves_nothing_behind(server, file, tmp_path, refuses, content):
    server.plan = [content]
    message = "is not the published file ("
    with refuses(DataError, message, "put data.tar of 2,560,000 bytes (sha256 ", "by hand"):
        download(file, tmp_path)
    assert names(tmp_path) == []
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (cut, "1560000 more expected"),
        (drop, "Remote end closed connection"),
        (refuse(404), "HTTP 404 Not Found"),
    ],
    ids=["cut", "dropped", "missing"],
)
def test_a_failure_says_how_to_get_a_file_by_hand(server, file, tmp_path, refuses, failure, reason):
    server.plan = [failure]
    by_hand = f"or put data.tar of 2,560,000 bytes (sha256 {file['sha256']}) from {server.url} into"
    with refuses(DataError, f"{server.url} could not be downloaded (", reason, by_hand):
        download(file, tmp_path)
    assert names(tmp_path) == []


def test_a_silent_server_is_given_up(server, file, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "TIMEOUT", 0.05)
    monkeypatch.setattr(downloads, "RETRIES", 1)
    server.plan = [slow]
    with pytest.raises(DataError, match="could not be downloaded"):
        download(file, tmp_path)
    assert len(server.requests) == 2


def test_a_redirection_is_followed(server, file, tmp_path):
    server.plan = [move("/elsewhere"), whole]
    assert download(file, tmp_path).read_bytes() == CONTENT
    assert server.requests == ["/data.tar", "/elsewhere"]


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/data.tar", "file:///etc/hostname"])
def test_an_unencrypted_connection_is_refused(server, file, tmp_path, monkeypatch, url):
    server.plan = [move(url)]
    for requests in (1, 0):
        with pytest.raises(DataError, match=r"data.tar .* over an unencrypted connection"):
            download(file, tmp_path)
        assert names(tmp_path) == []
        assert len(server.requests) == requests
        server.requests.clear()
        monkeypatch.setattr(downloads, "SCHEMES", ("https",))


def test_without_a_folder_the_file_is_named(file, refuses):
    message = "Give a data_root, the folder to which to download data.tar of 2,560,000 bytes ("
    with refuses(DataError, message):
        download(file, None)


def test_two_callers_download_once(server, file, tmp_path):
    server.plan = [slow]
    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(lambda _: download(file, tmp_path), range(2)))
    assert paths == [tmp_path / "data.tar"] * 2
    assert len(server.requests) == 1


def test_what_a_killed_download_leaves_is_removed_by_the_next_one(server, file, tmp_path):
    server.plan = [endless, whole]
    program = (
        "from pathlib import Path\n"
        "from calgrid.datasets import downloads\n"
        "downloads.SCHEMES = ('http',)\n"
        f"downloads.download({file!r}, Path({str(tmp_path)!r}))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL)
    for _ in range(600):
        if any(path.stat().st_size >= 1_000_000 for path in tmp_path.glob(".data.tar.partial/*")):
            break
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert names(tmp_path)
    assert not (tmp_path / "data.tar").exists()
    assert download(file, tmp_path).read_bytes() == CONTENT
    assert names(tmp_path) == ["data.tar"]


def test_a_checksum_of_which_the_first_digits_are_published(server, file, tmp_path, refuses):
    weights = {"name": "net.pth", "url": file["url"], "sha256": file["sha256"][:8]}
    assert download(weights, tmp_path).read_bytes() == CONTENT
    wrong = {**weights, "name": "other.pth", "sha256": "00000000"}
    with refuses(DataError, "instead of 00000000...", "put other.pth (sha256 00000000...) from"):
        download(wrong, tmp_path)
    assert names(tmp_path) == ["net.pth"]


# files without a published checksum


def test_a_checksum_is_recorded_at_first_use_and_verified_ever_after(server, tmp_path, refuses):
    file = {"name": "data.tar", "url": server.url}
    path = download(file, tmp_path)
    digest = hashlib.sha256(CONTENT).hexdigest()
    assert path.read_bytes() == CONTENT
    assert (tmp_path / "data.tar.sha256").read_text() == f"{digest}  data.tar\n"
    assert download(file, tmp_path) == path
    assert len(server.requests) == 1
    path.write_bytes(b"another content")
    with refuses(DataError, "data.tar has changed since", f"of {digest}", "put the old file back"):
        download(file, tmp_path)
    path.unlink()
    server.plan = [lambda handler: answer(handler, b"x" * 100)]
    with refuses(DataError, "is not the published file", digest):
        download(file, tmp_path)
    assert not path.exists()


def test_a_file_that_was_brought_is_recorded_too(tmp_path, refuses):
    (tmp_path / "data.tar").write_bytes(CONTENT)
    file, note = (
        {"name": "data.tar", "url": "https://example.org/data.tar"},
        tmp_path / "data.tar.sha256",
    )
    download(file, tmp_path)
    assert hashlib.sha256(CONTENT).hexdigest() in note.read_text()
    note.write_text("")
    with refuses(DataError, "data.tar.sha256 does not begin with a SHA-256", "remove it to trust"):
        download(file, tmp_path)


def test_a_missing_file_without_a_checksum_is_one_sentence(server, tmp_path, refuses):
    server.plan = [refuse(404)]
    file = {"name": "data.tar", "url": server.url}
    with refuses(DataError, "HTTP 404", "put data.tar (no published checksum) from", "by hand"):
        download(file, tmp_path)
    assert not (tmp_path / "data.tar.sha256").exists()
