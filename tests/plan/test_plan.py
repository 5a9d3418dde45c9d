"""A plan: which change of the configuration reruns which job, and what rules are told."""

import json

import pytest

from calgrid.plan.kinds import Need, kind
from calgrid.plan.plan import Plan
from calgrid.study.study import Study

METHODS = ("ce", "mbls", "tst", "tst+mbls")
STAGES = ("train", "predict", "calibrate")
ALL = {f"{stage} {method}" for stage in STAGES for method in METHODS}


def of(*stages, methods=METHODS):
    return {f"{stage} {method}" for stage in stages for method in methods}


@pytest.fixture
def fingerprints(plan):
    """Fingerprint of every stage of every run of seed 1, for a study with the given changes."""

    def compute(grid=None, protocol=None, **changes):
        protocols = {"p": {"base": "digits", **(protocol or {})}}
        grid = {
            "methods": list(METHODS),
            "protocol": "p",
            "calibrators": ["none", "ts"],
            **(grid or {}),
        }
        made = plan(grid, protocols=protocols, **changes)
        return {
            f"{stage} {key.method}": getattr(made, stage)(key).fingerprint
            for key in made.study.evaluations
            for stage in STAGES
            if key.seed == 1
        }

    return compute


OVERRIDE = [{"match": {"method": "mbls"}, "set": {"margin": 3}}]
DEFAULT = [
    {"match": {"method": "mbls"}, "set": {"margin": 6}}
]  # an integer; the default is a float
SECOND = [{"match": {"method": "tst"}, "set": {"hidden": 32}}]
QUESTION = {"question": "Is it better?", "method": "mbls", "against": "ce"}
CHANGES = {
    "a calibrator more": ({"grid": {"calibrators": ["none", "ts", "iso"]}}, of("calibrate")),
    "a calibrator seed more": ({"grid": {"calibrator_seeds": [0, 1]}}, set()),
    "a seed more": ({"grid": {"seeds": [1, 2]}}, set()),
    "a method more": ({"grid": {"methods": [*METHODS, "ls"]}}, set()),
    "a shift family": ({"grid": {"shifts": ["digits_c"]}}, of("predict", "calibrate")),
    "other bootstrap": ({"statistics": {"bootstrap": 5}}, of("calibrate")),
    "other bins": ({"statistics": {"bins": 10}}, of("calibrate")),
    "other baseline": ({"statistics": {"baseline": "mbls"}}, set()),
    "a hyper-parameter": ({"overrides": OVERRIDE}, of(*STAGES, methods=("mbls", "tst+mbls"))),
    "a hyper-parameter at its default": ({"overrides": DEFAULT}, set()),
    "a hyper-parameter of a second stage": ({"overrides": SECOND}, of(*STAGES, methods=("tst",))),
    "features too": ({"protocol": {"export_features": True}}, of("predict", "calibrate")),
    "features of training images": (
        {"protocol": {"export_features": "train"}},
        of("predict", "calibrate"),
    ),
    "more views": ({"protocol": {"test_views": "mirror"}}, of("predict", "calibrate")),
    "test images normalised as ImageNet's": (
        {"protocol": {"test_normalisation": {"digits": "imagenet"}}},
        of("predict", "calibrate"),
    ),
    "those of another data set": (
        {"protocol": {"test_normalisation": {"cifar100": "imagenet"}}},
        set(),
    ),
    "other learning rate": ({"protocol": {"optimizer": {"lr": 0.123}}}, ALL),
    "validation images of each seed": ({"protocol": {"val_draw": "seed"}}, ALL),
    "dropout before the head": ({"protocol": {"head_dropout": 0.5}}, ALL),
    "two GPUs, which round otherwise": ({"protocol": {"gpus": 2}}, ALL),
    "one GPU": ({"protocol": {"gpus": 1}}, set()),
    "other second stage": (
        {"protocol": {"second_stage": {"epochs": 9}}},
        of(*STAGES, methods=("tst", "tst+mbls")),
    ),
    "other description": ({"protocol": {"description": "the same, in other words"}}, set()),
    "a default given": ({"protocol": {"export_features": False}}, set()),
    "other name of the study": ({"study": "other"}, set()),
    "lines": ({"lines": {"one": ["p"]}}, set()),
    "papers": ({"papers": ["smart", "maccal"]}, set()),
    "a question": ({"statistics": {"comparisons": [QUESTION]}}, set()),
    "a probe": (
        {"grid": {"probes": ["few"]}, "probes": {"few": {"base": "margin_attack", "samples": 20}}},
        set(),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_reruns_what_depends_on_it_and_nothing_else(fingerprints, change):
    options, expected = CHANGES[change]
    before, after = fingerprints(), fingerprints(**options)
    assert {name for name in before if before[name] != after[name]} == expected


def test_runs_of_a_seed_share_a_draw_of_validation_images_and_all_share_shifted_images(plan):
    grid = {"protocol": "p", "methods": ["ce", "tst"], "seeds": [1, 2], "shifts": ["digits_c"]}
    made = plan(grid, protocols={"p": {"base": "digits", "val_draw": "seed"}})
    data = {key: made.train(key).spec["data"] for key in made.study.trained}
    drawn = {seed: made.data("digits", seed).fingerprint for seed in (None, 1, 2)}
    assert len(set(drawn.values())) == 3
    assert all(data[key] == drawn[key.seed] for key in data)
    # the family corrupts the test images, which are those of all draws
    assert {(job.about, job.spec.get("val_seed")): job.spec["base"] for job in made.jobs[:4]} == {
        ("digits", None): None,
        ("digits", 1): None,
        ("digits", 2): None,
        ("digits_c", None): made.data("digits").folder,
    }


def test_a_job_depends_on_all_jobs_whose_results_it_reads_also_if_its_specification_does_not(plan):
    made = plan({"methods": ["ce", "mbls"]})
    key, *others = made.study.runs
    modules = ["calgrid.jobs.probe"]
    where, spec = {**key.wildcards, "probe": "p"}, {"key": None, "fingerprint": ""}
    found = {
        made._job("probe", key.path, where, {**spec}, modules, above=above).fingerprint
        for above in ([], [made.train(key)], [made.train(others[0])])
    }
    assert len(found) == 3


def test_the_order_of_calibrator_seeds_does_not_count(fingerprints):
    grids = [{"calibrators": ["smart"], "calibrator_seeds": seeds} for seeds in ([1, 2], [2, 1])]
    assert fingerprints(grids[0]) == fingerprints(grids[1])


def test_an_override_is_the_same_as_a_variant_but_for_its_name(plan):
    variant = plan({"methods": ["mine"]}, methods={"mine": {"base": "mbls", "margin": 3}})
    named = plan({"methods": ["mbls"]}, overrides=OVERRIDE)
    one, other = (
        {**made.train(*made.study.runs).spec, "key": None, "fingerprint": None}
        for made in (variant, named)
    )
    assert one == other


class TestSpecifications:
    @pytest.fixture
    def made(self, plan):
        grid = {
            "methods": ["ce", "tst"],
            "calibrators": ["none", "ts", "smart"],
            "calibrator_seeds": [3, 5],
        }
        return plan({**grid, "shifts": ["digits_c", "ood/photos"]})

    def test_of_a_training(self, made):
        first, second = map(made.train, made.study.runs)
        spec = second.spec
        assert first.spec["first_stage"] is None
        assert spec["first_stage"] == {"fingerprint": first.fingerprint, "checkpoint": "last"}
        assert spec["key"] == list(made.study.runs)[1]._asdict()
        assert (spec["procedure"]["id"], spec["loss"]["id"]) == ("tst", "ce")
        assert "export_features" not in spec["protocol"]

    def test_of_a_prediction_names_the_shift_families_of_its_grids(self, made, plan):
        key = next(iter(made.study.runs))
        assert set(made.predict(key).spec["shifts"]) == {"digits_c", "ood/photos"}
        fewer = plan({"methods": ["ce"]}).predict(key).spec
        assert fewer["shifts"] == {}
        # a file of logits is the same, whichever families are predicted beside it
        assert fewer["files"].items() < made.predict(key).spec["files"].items()
        assert made.predict(key).spec["run_fingerprint"] == made.train(key).fingerprint

    def test_of_a_calibration(self, made):
        spec = made.calibrate(next(iter(made.study.runs))).spec
        # one that is not stochastic is fitted once, whatever the seeds
        seeds = {entry["name"]: entry["seeds"] for entry in spec["calibrators"]}
        assert seeds == {"none": [3], "ts": [3], "smart": [3, 5]}
        assert spec["families"] == ["digits_c", "ood/photos"]
        assert spec["statistics"] == {"bins": 15, "bootstrap": 1000, "level": 0.95, "seed": 0}

    def test_the_manifest_lists_every_part_with_its_fingerprint(self, made):
        manifest = json.loads(json.dumps(made.manifest()))
        expected = [made.calibrate(key).fingerprint for key in made.study.evaluations]
        assert [run["fingerprint"] for run in manifest["runs"]] == expected
        folder = "results/runs/digits/digits/resnet8/ce/seed1/calibrate-"
        assert manifest["runs"][0]["calibrate"] == f"{folder}{expected[0][:10]}"
        assert manifest["configuration"]["study"] == "small"
        assert "device" not in manifest["configuration"]


def test_an_external_run_is_imported_again_when_its_description_changes_but_not_for_a_calibrator(
    home, tmp_path
):
    (tmp_path / "test.npz").touch()

    def fingerprint(**changes):
        one = {"test": str(tmp_path / "test.npz"), "kind": "logits", "split_seed": 1}
        one |= {"dataset": "d", **changes}
        plan = Plan(Study({"study": "s", "external": {"a": one}}, home))
        (key,) = plan.study.runs
        assert plan.run_fingerprint(key) == plan.external(key).fingerprint
        return plan.external(key).fingerprint

    assert fingerprint(calibrators=["ts"], calibrator_seeds=[1, 2]) == fingerprint()
    changes = ({}, {"split_seed": 2}, {"kind": "probabilities"}, {"seed": 1})
    assert len({fingerprint(**change) for change in changes}) == 4


class TestReductionOfTheProtocol:
    """The focal_calibration line sums its losses: the protocol says so, and what is trained must
    follow.
    """

    @pytest.fixture
    def reductions(self, plan):
        def of(protocol="fcline", **changes):
            made = plan({"protocol": protocol, "methods": ["mbls", "tst+mbls"]}, **changes)
            losses = (made.train(key).spec["loss"] for key in made.study.evaluations)
            return [loss["options"]["reduction"] for loss in losses]

        return of

    def test_reaches_the_losses_of_its_stage(self, reductions):
        assert reductions() == ["sum", "mean"]
        protocols = {"summed": {"base": "fcline", "second_stage": {"reduction": "sum"}}}
        assert reductions("summed", protocols=protocols) == ["sum", "sum"]

    def test_an_override_of_the_method_wins(self, reductions):
        override = {"match": {"method": "mbls"}, "set": {"reduction": "mean"}}
        assert reductions(overrides=[override]) == ["mean", "mean"]


def test_the_manifest_says_which_methods_see_validation_data(plan):
    seeing = ["adafocal", "tst+adafocal", "pcs", "tst+pcs"]
    runs = plan({"methods": ["ce", "tst", "mixup", *seeing]}).manifest()["runs"]
    # a second stage inherits what its first stage has seen
    assert [run["key"]["method"] for run in runs if run["sees_validation"]] == seeing


def test_shifts_that_have_some_classes_only_are_said_with_the_results(plan):
    grid = {
        "protocol": "published",
        "datasets": ["imagenet"],
        "backbones": ["imagenet_resnet50"],
        "methods": ["ce"],
        "shifts": ["imagenet_c", "imagenet_r"],
    }
    (run,) = plan(grid, data_root="data").manifest()["runs"]
    assert run["warning"].startswith("imagenet_r is scored among the classes that it has")
    assert "imagenet_c" not in run["warning"]


@pytest.mark.parametrize(
    ("name", "facts", "said"),
    [
        ("weight_norm", {"environment": "train"}, "a name of letters and digits alone"),
        ("sharpness", {}, "give its 'environment'"),
    ],
)
def test_a_kind_of_job_that_verify_or_snakemake_could_not_read_is_refused(name, facts, said):
    with pytest.raises(ValueError, match=said):
        kind(name, Need(1, 1), module="calgrid.jobs.probe", **facts)
