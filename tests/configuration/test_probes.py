"""Probes in configurations: what is planned, what is refused, and that nobody else's fingerprint changes."""

import json

from tests.conftest import HOME

from calgrid.configuration.costs import study_cost
from calgrid.configuration.jobs import Jobs
from calgrid.errors import ConfigError

SMALL = {"few": {"base": "margin_attack", "samples": 20}}


def key_of(plan, method="ce"):
    return next(key for key in plan.study.runs if key.method == method)


def test_a_variant_has_all_options_and_its_own_name(plan):
    made = plan({"probes": ["few", "prototypes"]}, probes=SMALL)
    spec = made.probe(key_of(made), "few")
    assert spec["probe"] == {
        "name": "few",
        "id": "margin_attack",
        "options": {"samples": 20, "eps_max": 0.5, "steps": 21, "bisections": 10, "seed": 0},
    }
    assert spec["run_fingerprint"] == made.run_fingerprint(key_of(made))


def test_a_study_without_probes_says_nothing_of_them(plan):
    assert "probes" not in json.dumps(plan().manifest())


def test_a_fingerprint_depends_on_options_and_on_its_own_probe_only(plan):
    def fingerprint(name, variants):
        made = plan({"probes": ["prototypes", name]}, probes=variants)
        return made.probe(key_of(made), name)["fingerprint"], made.probe(key_of(made), "prototypes")["fingerprint"]

    few, angles = fingerprint("few", SMALL)
    more, same = fingerprint("few", {"few": {**SMALL["few"], "samples": 21}})
    assert few != more
    assert angles == same


def test_the_manifest_names_tables_by_run(plan):
    made = plan({"probes": ["few", "profiles"]}, probes=SMALL)
    for run in made.manifest()["runs"]:
        assert [(each["name"], each["id"]) for each in run["probes"]] == [
            ("few", "margin_attack"),
            ("profiles", "profiles"),
        ]
        assert all(each["fingerprint"] for each in run["probes"])


def test_blocks_of_a_grid_join_their_probes(study):
    made = study({"methods": ["ce", "mbls"], "probes": ["profiles"]}, {"methods": ["ce"], "probes": ["prototypes"]})
    wanted = {key.method: list(evaluation.probes) for key, evaluation in made.evaluations.items()}
    assert wanted == {"ce": ["profiles", "prototypes"], "mbls": ["profiles"]}
    assert study_cost(made).jobs["probe"] == 3


def test_rules_know_the_files_of_the_probes(make_config):
    jobs = Jobs(make_config({"probes": ["profiles"], "methods": ["ce"]}), HOME, local=True)
    run = "results/runs/digits/digits/resnet8/ce/seed1"
    assert jobs.probes() == [f"{run}/probes/profiles.json"]
    assert f"{run}/probes/profiles.json" in jobs.records()
    assert jobs.wildcard_constraints["probe"] == "profiles"


def test_a_first_stage_that_nobody_asked_about_is_not_probed(plan, refuses):
    made = plan({"methods": ["tst"], "probes": ["profiles"]})
    assert list(made.study.evaluations[key_of(made, "tst")].probes) == ["profiles"]
    with refuses(ConfigError, "Unknown probe 'profiles' in digits/digits/resnet8/ce/seed1"):
        made.probe(key_of(made, "ce"), "profiles")
