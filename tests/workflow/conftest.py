"""One small grid, run once; tests plan changes of it and put things back, or run in copies."""

import pytest
from tests.workflow.dag import Repository


@pytest.fixture(scope="session")
def finished(finished_once, tmp_path_factory):
    """Of this test process."""
    return finished_once.copy(tmp_path_factory.mktemp("repository"))


@pytest.fixture
def twin(finished_once, tmp_path):
    """Of one test, which may leave it in any state."""
    return finished_once.copy(tmp_path / "twin")


@pytest.fixture
def fresh(tmp_path):
    """Without results."""
    return Repository(tmp_path / "fresh")


@pytest.fixture
def edit(finished):
    """Replace the first occurrence of a text in a file of the repository until the test ends."""
    originals = {}

    def replace(path, old, new):
        file = finished.root / path
        text = file.read_text()
        assert old in text, f"{old!r} is not in {path}"
        originals.setdefault(file, text)
        file.write_text(text.replace(old, new, 1))

    yield replace
    for file, text in originals.items():
        file.write_text(text)
