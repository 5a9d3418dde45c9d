"""One small grid, run once; tests plan changes of it and put things back, or run in copies."""

import pytest
from tests.workflow.dag import Repository, edits


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
    with edits(finished.root) as replace:
        yield replace
