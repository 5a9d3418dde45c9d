import functools
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType

import pytest

from calgrid.datasets import downloads, open_prepared, prepare


@pytest.fixture(scope="session")
def digits_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "digits"
    prepare("digits", folder)
    return folder


@pytest.fixture(scope="session")
def digits(digits_dir):
    return open_prepared(digits_dir)


@pytest.fixture(scope="session")
def digits_c(digits_dir):
    folder = digits_dir.parent / "digits_c"
    prepare("digits_c", folder, base_dir=digits_dir)
    return open_prepared(folder)


@pytest.fixture(scope="session")
def photos(digits_dir):
    folder = digits_dir.parent / "photos"
    prepare("photos", folder, base_dir=digits_dir)
    return open_prepared(folder)


class Web:
    """Called with a folder and the facts of a data set, moves its files from there onto a server
    and says so.
    """

    def __init__(self, folder, url):
        self.folder, self.url, self.asked = folder, url, []

    def __call__(self, root, registered):
        for file in registered["files"]:
            (root / file["name"]).rename(self.folder / file["name"])
        moved = tuple({**file, "url": f"{self.url}/{file['name']}"} for file in registered["files"])
        return MappingProxyType({**registered, "files": moved})


@pytest.fixture
def web(tmp_path_factory, monkeypatch):
    """A server of files; ``asked`` lists what it was asked for."""
    monkeypatch.setattr(downloads, "SCHEMES", ("http",))
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    class Handler(SimpleHTTPRequestHandler):
        def log_request(self, *_):
            made.asked.append(self.path)

    folder = tmp_path_factory.mktemp("web")
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
    made = Web(folder, f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield made
    server.shutdown()
    server.server_close()
