"""Downloads from a server of our own: interrupted, resumed, wrong, slow, moved, refused."""

import hashlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from calgrid.datasets import downloads
from calgrid.datasets.downloads import download, download_pinned
from calgrid.errors import DataError

CONTENT = bytes(range(256)) * 10_000  # 2.56 MB


class Server:
    """Serves CONTENT at every path; ``plan`` is a list of functions, one for each request, the last
    one stays.
    """

    def __init__(self):
        self.requests, self.plan = [], [whole]
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                begin = int((self.headers.get("Range") or "bytes=0-")[len("bytes=") : -1])
                outer.requests.append((self.path, begin))
                outer.plan[min(len(outer.requests), len(outer.plan)) - 1](self, begin)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/data.tar"

    @property
    def begins(self):
        return [begin for _, begin in self.requests]


def answer(handler, content, begin=0, status=None, length=None):
    handler.send_response(status or (206 if begin else 200))
    handler.send_header("Content-Length", str(len(content) if length is None else length))
    if begin:
        handler.send_header(
            "Content-Range", f"bytes {begin}-{begin + len(content) - 1}/{len(CONTENT)}"
        )
    handler.end_headers()
    handler.wfile.write(content)


def whole(handler, begin):
    answer(handler, CONTENT[begin:], begin)


def cut(count):
    """Send ``count`` bytes less than promised or than there are."""
    return lambda handler, begin: answer(
        handler, CONTENT[begin : begin + count], begin, length=len(CONTENT) - begin
    )


def without_ranges(handler, begin):
    answer(handler, CONTENT)


def refuse(status):
    return lambda handler, begin: handler.send_error(status)


def other(handler, begin):
    answer(handler, bytes(len(CONTENT) - begin), begin)


def drop(handler, begin):
    handler.connection.close()


def move(url):
    def redirect(handler, begin):
        handler.send_response(302)
        handler.send_header("Location", url)
        handler.end_headers()

    return redirect


def trickle(handler, begin):
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(CONTENT)))
    handler.end_headers()
    for start in range(0, len(CONTENT), 512_000):
        handler.wfile.write(CONTENT[start : start + 512_000])
        handler.wfile.flush()
        time.sleep(0.02)


@pytest.fixture
def server():
    made = Server()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture(autouse=True)
def no_pauses_and_no_encryption(monkeypatch):
    monkeypatch.setattr(downloads, "PAUSE", 0.0)
    monkeypatch.setattr(
        downloads, "SCHEMES", ("https", "http")
    )  # the server here has no certificate
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def file(server):
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    return {"name": "data.tar", "url": server.url, "size": len(CONTENT), "sha256": sha256}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_downloaded_once_and_then_taken_as_it_lies(server, file, tmp_path):
    assert download(file, tmp_path).read_bytes() == CONTENT
    assert download({**file, "url": "https://127.0.0.1:1/none"}, tmp_path) == tmp_path / "data.tar"
    assert server.begins == [0]
    assert names(tmp_path) == ["data.tar"]


def test_md5_vouches_where_nothing_better_is_published(file, tmp_path):
    md5 = {name: value for name, value in file.items() if name != "sha256"}
    assert (
        download({**md5, "md5": hashlib.md5(CONTENT).hexdigest()}, tmp_path).read_bytes() == CONTENT
    )


def test_another_file_of_that_name_is_refused_and_kept(server, file, tmp_path, refuses):
    (tmp_path / "data.tar").write_bytes(b"mine")
    said = "data.tar is not the published file (4 bytes instead of 2,560,000)"
    with refuses(DataError, said, "remove it or replace"):
        download(file, tmp_path)
    assert (tmp_path / "data.tar").read_bytes() == b"mine"
    (tmp_path / "data.tar").write_bytes(bytes(len(CONTENT)))
    with refuses(DataError, "is not the published file (sha256 "):
        download(file, tmp_path)
    assert server.begins == []


@pytest.mark.parametrize(
    ("plan", "begins"),
    [
        ([cut(1_000_000), cut(500_000), whole], [0, 1_000_000, 1_500_000]),
        ([cut(1_000_000), without_ranges], [0, 1_000_000]),
        ([refuse(503), refuse(500), whole], [0, 0, 0]),
        ([trickle], [0]),
    ],
    ids=["interrupted", "without ranges", "busy", "slow"],
)
def test_a_download_goes_on_where_it_stopped(server, file, tmp_path, plan, begins):
    server.plan = plan
    assert download(file, tmp_path).read_bytes() == CONTENT
    assert server.begins == begins


def test_a_later_call_goes_on_with_the_part_of_an_earlier_one(server, file, tmp_path):
    server.plan = [cut(1_000_000), refuse(404)]
    with pytest.raises(DataError, match="HTTP 404"):
        download(file, tmp_path)
    assert names(tmp_path) == [".data.tar.part"]
    server.plan = [whole]
    assert download(file, tmp_path).read_bytes() == CONTENT
    assert server.begins == [0, 1_000_000, 1_000_000]


def test_a_server_without_ranges_that_always_breaks_off_is_given_up(server, file, tmp_path):
    def broken(handler, begin):
        answer(
            handler,
            CONTENT[: 900_000 if len(server.requests) % 2 else 800_000],
            length=len(CONTENT),
        )

    server.plan = [broken]
    with pytest.raises(DataError, match="could not be downloaded"):
        download(file, tmp_path)
    assert len(server.requests) == 1 + downloads.ATTEMPTS


@pytest.mark.parametrize(("part", "begins"), [(b"x" * 1000, [1000, 0]), (CONTENT + b"more", [0])])
def test_the_part_of_another_file_and_one_that_is_too_long_are_thrown_away(
    server, file, tmp_path, part, begins
):
    (tmp_path / ".data.tar.part").write_bytes(part)
    assert download(file, tmp_path).read_bytes() == CONTENT
    assert server.begins == begins


@pytest.mark.parametrize(
    "wrong", [other, lambda handler, begin: answer(handler, b"0" + CONTENT)], ids=["", "longer"]
)
def test_another_content_leaves_nothing_behind(server, file, tmp_path, refuses, wrong):
    server.plan = [wrong]
    said = [
        "is not the published file (sha256 ",
        "put data.tar of 2,560,000 bytes (sha256 ",
        "by hand",
    ]
    with refuses(DataError, *said):
        download(file, tmp_path)
    assert names(tmp_path) == []


@pytest.mark.parametrize("status", [403, 404, 410])
def test_a_final_refusal_is_not_repeated(server, file, tmp_path, refuses, status):
    server.plan = [refuse(status)]
    said = [
        f"could not be downloaded (HTTP {status}",
        "run again to resume, or put data.tar of 2,560,000",
    ]
    with refuses(DataError, *said):
        download(file, tmp_path)
    assert len(server.requests) == 1
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "failure", [cut(0), drop, refuse(503)], ids=["nothing comes", "dropped", "busy"]
)
def test_a_server_that_never_sends_anything_is_given_up(server, file, tmp_path, refuses, failure):
    server.plan = [failure]
    with refuses(DataError, "could not be downloaded (", "put data.tar of 2,560,000 bytes"):
        download(file, tmp_path)
    assert len(server.requests) == downloads.ATTEMPTS
    with refuses(DataError, "could not be downloaded (", "put data.tar of 2,560,000 bytes"):
        download({**file, "url": "http://127.0.0.1:1/data.tar"}, tmp_path)


def test_a_silent_server_is_given_up(server, file, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "TIMEOUT", 0.05)
    monkeypatch.setattr(downloads, "ATTEMPTS", 2)
    server.plan = [lambda handler, begin: time.sleep(0.3)]
    with pytest.raises(DataError, match="could not be downloaded"):
        download(file, tmp_path)
    assert len(server.requests) == 2


def test_a_redirection_is_followed_with_the_range(server, file, tmp_path):
    server.plan = [cut(1_000_000), move("/elsewhere"), whole]
    assert download(file, tmp_path).read_bytes() == CONTENT
    assert server.requests[2] == ("/elsewhere", 1_000_000)


@pytest.mark.parametrize("place", ["ftp://127.0.0.1/data.tar", "file:///etc/hostname"])
def test_a_redirection_to_anything_but_the_web_is_refused(server, file, tmp_path, place):
    server.plan = [move(place)]
    with pytest.raises(DataError, match=r"unencrypted connection|could not be downloaded"):
        download(file, tmp_path)
    assert names(tmp_path) == []


def test_a_connection_in_the_clear_is_refused_also_after_a_redirection(
    server, file, tmp_path, refuses, monkeypatch
):
    monkeypatch.setattr(downloads, "SCHEMES", ("https",))
    with refuses(DataError, "data.tar would be downloaded over an unencrypted connection"):
        download(file, tmp_path)
    assert server.requests == []
    with pytest.raises(DataError, match="unencrypted connection"):
        downloads._Redirects(file).redirect_request(
            None, None, 302, "", {}, "http://example.org/data.tar"
        )


def test_without_a_folder_the_file_is_named(file, refuses):
    with refuses(
        DataError,
        "Give a data_root, the folder to which to download data.tar of 2,560,000 bytes (sha256 ",
    ):
        download(file, None)


def test_two_callers_download_once(server, file, tmp_path):
    server.plan = [trickle]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: download(file, tmp_path), range(2)))
    assert found == [tmp_path / "data.tar"] * 2
    assert server.begins == [0]


# files of which the publisher states the beginning of the checksum alone, and no size
# ------------------------------


@pytest.fixture
def weights(file):
    return {"name": "net.pth", "url": file["url"], "sha256_prefix": file["sha256"][:8]}


def without_length(handler, begin):
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(CONTENT)


@pytest.mark.parametrize(
    "plan", [[whole], [cut(1_000_000), whole], [drop, whole], [cut(500_000), without_ranges]]
)
def test_the_size_is_what_the_server_says(server, weights, tmp_path, plan):
    server.plan = plan
    assert download(weights, tmp_path).read_bytes() == CONTENT
    assert names(tmp_path) == ["net.pth"]


@pytest.mark.parametrize("have", [1_000, len(CONTENT)])
def test_a_part_of_unknown_size_is_continued_or_found_complete(server, weights, tmp_path, have):
    (tmp_path / ".net.pth.part").write_bytes(CONTENT[:have])
    server.plan = [whole if have < len(CONTENT) else refuse(416)]
    assert download(weights, tmp_path).read_bytes() == CONTENT
    assert server.begins == [have]


def test_the_wrong_beginning_of_a_checksum_leaves_nothing_behind(
    server, weights, tmp_path, refuses
):
    weights["sha256_prefix"] = "00000000"
    with refuses(
        DataError, "is not the published file", "instead of beginning with 00000000", "put net.pth"
    ):
        download(weights, tmp_path)
    assert names(tmp_path) == []


def test_a_complete_part_of_another_file_is_thrown_away(server, weights, tmp_path):
    (tmp_path / ".net.pth.part").write_bytes(bytes(len(CONTENT)))
    server.plan = [refuse(416), whole]
    assert download(weights, tmp_path).read_bytes() == CONTENT


def test_a_server_that_tells_no_size_is_given_up(server, weights, tmp_path, refuses):
    server.plan = [without_length]
    with refuses(
        DataError, "does not give the size of the file", "put net.pth (sha256 beginning with"
    ):
        download(weights, tmp_path)


# files without a published checksum


def test_a_checksum_is_recorded_at_first_use_and_verified_ever_after(server, tmp_path, refuses):
    file = {"name": "data.tar", "url": server.url}
    path = download_pinned(file, tmp_path)
    digest = hashlib.sha256(CONTENT).hexdigest()
    assert path.read_bytes() == CONTENT
    assert (tmp_path / "data.tar.sha256").read_text() == f"{digest}  data.tar\n"
    assert download_pinned(file, tmp_path) == path
    assert server.begins == [0]
    path.write_bytes(b"another content")
    with refuses(
        DataError,
        "data.tar has changed since its first use",
        f"of {digest}",
        "put the old file back",
    ):
        download_pinned(file, tmp_path)
    path.unlink()
    server.plan = [lambda handler, begin: answer(handler, b"x" * 100)]
    with refuses(DataError, "is not the published file", digest):
        download_pinned(file, tmp_path)
    assert not path.exists()


def test_a_file_that_was_brought_is_recorded_too(tmp_path, refuses):
    (tmp_path / "data.tar").write_bytes(CONTENT)
    file, note = (
        {"name": "data.tar", "url": "https://example.org/data.tar"},
        tmp_path / "data.tar.sha256",
    )
    download_pinned(file, tmp_path)
    assert hashlib.sha256(CONTENT).hexdigest() in note.read_text()
    note.write_text("")
    with refuses(DataError, "data.tar.sha256 does not begin with a SHA-256", "remove it to trust"):
        download_pinned(file, tmp_path)


def test_without_a_checksum_an_interrupted_download_goes_on_within_a_call_but_not_in_the_next(
    server, tmp_path
):
    """Nothing would tell that its beginning was that of another file."""
    (tmp_path / ".data.tar.part").write_bytes(b"x" * 100)
    server.plan = [cut(1000), whole]
    path = download_pinned({"name": "data.tar", "url": server.url}, tmp_path)
    assert path.read_bytes() == CONTENT
    assert server.begins == [0, 1000]


def test_a_missing_file_without_a_checksum_is_one_sentence(server, tmp_path, refuses):
    server.plan = [lambda handler, begin: handler.send_error(404)]
    file = {"name": "data.tar", "url": server.url}
    with refuses(DataError, "HTTP 404", "put data.tar (no published checksum) from", "by hand"):
        download_pinned(file, tmp_path)
    assert not (tmp_path / "data.tar.sha256").exists()
