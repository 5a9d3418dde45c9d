"""One small grid, run once; tests plan changes of it and put things back."""

import pytest
from tests.workflow.dag import CONFIG, Repository


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    repository = Repository(tmp_path_factory.mktemp("repository"))
    repository.configure(CONFIG)
    repository.run()
    return repository


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
