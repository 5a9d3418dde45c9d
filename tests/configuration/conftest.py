"""Studies of small configurations."""

import pytest

from calgrid.configuration.plan import Plan
from calgrid.configuration.study import Study


@pytest.fixture
def study(make_config, home):
    """A study of some grids, each given by its changes of the smallest one; keyword arguments are
    other keys.
    """

    def make(*grids, **changes):
        blocks = [make_config(grid)["grids"][0] for grid in grids or [{}]]
        return Study({"study": "small", "grids": blocks, **changes}, home)

    return make


@pytest.fixture
def plan(study):
    return lambda *grids, **changes: Plan(study(*grids, **changes))
