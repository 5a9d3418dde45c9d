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
    # of six corruptions, and of five severities
    few = {name: corruptions.DIGITS_STRENGTHS[name][:2] for name in ("gaussian_noise", "contrast")}
    entry = registry.describe("dataset", "digits_c")
    fewer = dataclasses.replace(entry, info={**entry.info, "shifts": (*few,), "severities": (1, 2)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corruptions, "DIGITS_STRENGTHS", few)
        patch.setattr(preparation, "describe", lambda *_: fewer)
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
