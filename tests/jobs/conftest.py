"""The small study, planned once, its data, prepared once, and one of its runs, trained and
predicted once.
"""

import dataclasses

import pytest
from tests.jobs.small import FAMILIES, HOME, predicted, small_study, trained

from calgrid.components import registry
from calgrid.datasets import corruptions, preparation, prepare
from calgrid.plan.plan import Plan
from calgrid.study.study import Study


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    prepare("digits", root / "digits")
    few = (
        "gaussian_noise",
        "contrast",
    )  # of six corruptions: all of these tests are three times as fast
    entry = registry.describe("dataset", "digits_c")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            corruptions,
            "DIGITS_STRENGTHS",
            {name: corruptions.DIGITS_STRENGTHS[name] for name in few},
        )
        patch.setattr(
            preparation,
            "describe",
            lambda *_: dataclasses.replace(entry, info={**entry.info, "shifts": few}),
        )
        prepare("digits_c", root / "digits_c", base_dir=root / "digits")
    prepare("photos", root / "photos")
    return root


@pytest.fixture(scope="session")
def plan():
    return Plan(Study(small_study(), HOME))


@pytest.fixture(scope="session")
def run(plan, data, tmp_path_factory):
    """The run ``ce``; tests may add files to its folder, but change none."""
    out = tmp_path_factory.mktemp("ce") / "run"
    trained(plan, data, out)
    predicted(plan, data, out, families=FAMILIES)
    return out
