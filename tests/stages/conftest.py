"""The small study, planned once, and its data, prepared once."""

import pytest
from tests.stages.small import HOME, small_study

from calgrid.configuration.plan import Plan
from calgrid.configuration.study import Study
from calgrid.datasets import prepare


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    prepare("digits", root / "digits")
    prepare("digits_c", root / "digits_c", base_dir=root / "digits")
    prepare("photos", root / "photos")
    return root


@pytest.fixture(scope="session")
def plan():
    return Plan(Study(small_study(), HOME))
