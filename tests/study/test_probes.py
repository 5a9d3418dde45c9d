"""Probes in configurations: what is planned and refused; others' fingerprints stay."""

import pytest
from tests.conftest import HOME

from calgrid.plan.plan import Plan
from calgrid.plan.rules import Jobs
from calgrid.storage.records import RunKey
from calgrid.study.study import Study

KEY = RunKey("digits", "digits", "resnet8", "ce", 1)


@pytest.fixture
def made(plan):
    """Function that makes a plan with two probes, one of them a variant."""

    def make(samples=20):
        probes = {"few": {"base": "margin_attack", "samples": samples}}
        return plan({"methods": ["ce"], "probes": ["few", "prototypes"]}, probes=probes)

    return make


def test_a_variant_has_all_options_and_its_own_name_in_specification_and_manifest(made):
    spec = made().probe(KEY, "few").spec
    assert spec["probe"] == {
        "name": "few",
        "id": "margin_attack",
        "options": {"samples": 20, "eps_max": 0.5, "steps": 21, "bisections": 10, "seed": 0},
    }
    assert spec["run_fingerprint"] == made().run_fingerprint(KEY)
    (run,) = made().manifest()["runs"]
    folder = made().probe(KEY, "few").folder
    place = {"fingerprint": spec["fingerprint"], "folder": folder}
    assert run["probes"][0] == {**spec["probe"], **place}
    assert [each["name"] for each in run["probes"]] == ["few", "prototypes"]


def test_a_study_without_probes_says_nothing_of_them(plan):
    assert not any("probes" in run for run in plan().manifest()["runs"])


def test_a_fingerprint_depends_on_options_and_on_its_own_probe_only(made):
    few, more = (
        [made(n).probe(KEY, name).fingerprint for name in ("few", "prototypes")] for n in (20, 21)
    )
    assert few[0] != more[0]
    assert few[1] == more[1]


def test_blocks_of_a_grid_join_their_probes(study):
    made = study(
        {"methods": ["ce", "mbls"], "probes": ["profiles"]},
        {"methods": ["ce"], "probes": ["prototypes"]},
    )
    wanted = {key.method: list(evaluation.probes) for key, evaluation in made.evaluations.items()}
    assert wanted == {"ce": ["profiles", "prototypes"], "mbls": ["profiles"]}
    assert sum(job.kind == "probe" for job in Plan(made).jobs) == 3


def test_rules_know_the_files_of_the_probes(make_config):
    config = make_config({"probes": ["profiles"], "methods": ["ce"]})
    jobs = Jobs(Plan(Study(config, HOME)), local=True)
    record = next(name for name in jobs.results_of_runs() if name.endswith("/probe.json"))
    assert record.startswith("results/runs/digits/digits/resnet8/ce/seed1/probe_profiles-")
    assert jobs.wildcard_constraints["probe"] == "profiles"


def test_a_first_stage_that_nobody_asked_about_is_not_probed(plan):
    made = plan({"methods": ["tst"], "probes": ["profiles"]})
    probed = [job.about for job in made.jobs if job.kind == "probe"]
    assert probed == [KEY._replace(method="tst").path]
