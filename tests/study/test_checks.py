"""Every mistake in a configuration is refused before anything runs, with a way to mend it."""

import numpy as np
import pytest
from tests.datasets.pictures import write_parquet
from tests.mistakes import cases

from calgrid.errors import ConfigError
from calgrid.study import checks
from calgrid.study.checks import check_published
from calgrid.study.slow_checks import check_all, check_external
from calgrid.study.study import Study

GRIDS = cases(
    r"""
calibrators: [smrt]
    Unknown calibrator 'smrt' in grids[0].calibrators ... did you mean 'smart'?
methods: [CE]
    Unknown method 'CE' in grids[0].methods ... did you mean 'ce'?
methods: ["ce\n"]
    Unknown method 'ce\n' in grids[0].methods
datasets: [digit]
    Unknown dataset 'digit' in grids[0].datasets ... did you mean 'digits'?
backbones: [resnet7]
    Unknown backbone 'resnet7' in grids[0].backbones ... did you mean 'resnet
protocol: digts
    Unknown protocol 'digts' in grids[0].protocol ... did you mean 'digits'?
shifts: [ood/foto]
    Unknown shift 'ood/foto' in grids[0].shifts ... did you mean 'ood/photos'?
probes: [profile]
    Unknown probe 'profile' in grids[0].probes ... did you mean 'profiles'?
{probes: [masking], methods: [tst]}
    grids[0].probes: 'masking' needs a linear last ... 'tst' does not
shifts: [ood/svhn]
    grids[0].shifts: 'ood/svhn' is not among the shifts of digits ... families: [ood/svhn]
shifts: [cifar10_c]
    grids[0].shifts: 'cifar10_c' is not among the shifts of digits
shifts: [svhn]
    Unknown shift 'svhn' in grids[0].shifts
shifts: [snow]
    Unknown shift 'snow' in grids[0].shifts ... valid: digits_c,
datasets: [digits_c]
    grids[0].datasets: 'digits_c' is for testing only ... move it to 'shifts'
{protocol: drawn, datasets: [digits_ambiguous]}
    grids[0].datasets: protocol 'drawn' draws validation images by ... val_draw: fixed
{protocol: drawn, methods: [ens2(ce)], seeds: [1, 2]}
    grids[0]: the members of 'ens2(ce)' need the same validation images
{fit_on: [same_shift], shifts: [ood/photos]}
    grids[0].fit_on: 'same_shift' needs a shift family
fit_on: [val, redrawn]
    grids[0].fit_on: 'redrawn' mixes val and test ... 'digits' are drawn from training
methods: []
    grids[0].methods must not be empty
seeds: [1, 2, 1]
    grids[0].seeds contains 1 twice
methods: ce
    grids[0].methods must be of type array, got 'ce' (write [ce])
seeds: [-1]
    grids[0].seeds[0] must be at least 0, got -1
seeds: ['1']
    grids[0].seeds[0] must be of type integer, got '1' ... without quotes and in digits alone
seeds: [1.0]
    grids[0].seeds[0] must be of type integer, got 1.0 (write 1)
methods: [tst+mblss]
    Unknown method 'mblss' in 'tst+mblss' in grids[0].methods ... 'mbls'?
methods: [tst+mbls+ls]
    'mbls+ls' in 'tst+mbls+ls' in grids[0].methods ... 'mbls' is a loss
methods: [tst+tst]
    'tst+tst' in grids[0].methods ... itself a second stage ... use a one-stage method
methods: [tst+ce]
    'tst+ce' in grids[0].methods: write 'tst'
methods: [mixup+tst]
    'mixup+tst' in grids[0].methods: 'tst' is not a loss ... put a loss after
{methods: [ce, mit_l], protocol: on_two_gpus}
    grids[0]: protocol 'on_two_gpus' trains on several GPUs, which procedure 'mit_l' cannot; leave
    out gpus for it, or use one of cutmix, mixup, plp, rankmixup_mndcg, rankmixup_mrl, regmixup,
    standard.
{methods: [ce, mit_a], protocol: as_graph}
    grids[0]: protocol 'as_graph' uses a CUDA graph, which procedure 'mit_a' cannot; leave out
    cuda_graph for it, or use one of balcal, cutmix, maccal, mixup,
{methods: [ce, balcal], protocol: compiled}
    'compiled' compiles its network, which procedure 'balcal' cannot; leave out compile
{methods: [ce], protocol: compiled_on_two_gpus}
    'compiled_on_two_gpus' has gpus and compile; leave one of them out.
{methods: [ce], protocol: compiled_to_the_bit}
    'compiled_to_the_bit' has deterministic and compile; leave one of them out.
{methods: [ce, tst, maccal], protocol: averaged}
    grids[0]: protocol 'averaged' tests averaged weights, which procedure 'maccal' cannot; leave
    out ema, swa of the checkpoints for it, or use one of cutmix, mit_a, mit_l,
{methods: [ce], protocol: as_graphs_on_two_gpus}
    'as_graphs_on_two_gpus' has gpus and cuda_graph; leave one of them out.
methods: [mit_l+adafocal]
    'mit_l' computes its loss twice a step ... it can train: acls, brier, bsce_gra, ce
methods: [maccal+mixup+fl3]
    'mixup+fl3' in 'maccal+mixup+fl3' in grids[0].methods: 'mixup' mixes
    it can train: acls, brier, cals_alm
methods: [maccal+balcal]
    'maccal+balcal' ... 'balcal' does not end in a linear layer
methods: [standard]
    Unknown method 'standard' in grids[0].methods
"""
)


TOP_LEVEL = cases(
    r"""
study: runs
    study: the name 'runs' is reserved
study: a/b
    study: 'a/b' is not a valid name
external: {}
    external must not be empty
device: gpu
    device must be one of auto, cpu, cuda, got 'gpu'
results: '{x}'
    results: the path must not contain '{'
results: <b>x
    results: the path must not contain '<'
results: .
    results: '.' must be a folder of its own
results: -rf
    results: '-rf' must be a folder of its own ... does not start with '-'
results: ~/x
    results: '~' is not expanded ... write the full path
results: ''
    results must not be empty
data_root: no/such/folder
    data_root: the folder 'no/such/folder' does not exist ... correct the path
published: [no.csv]
    published[0]: the file ' ... no.csv' does not exist
results: /etc/passwd/mine
    results: '/etc/passwd' is a file; give a folder
results: "a\uD800b"
    results: 'a\ud800b' contains a character that is invalid in paths
data_root: /etc/passwd
    data_root: '/etc/passwd' is a file; give a folder
statistics: {bins: 1}
    statistics.bins must be at least 2, got 1
statistics: {level: .nan}
    statistics.level must be a finite number, got nan
statistics: {baseline: mbl}
    Unknown method 'mbl' in statistics.baseline ... did you mean 'mbls'?
methods: {mine: {base: mbsl}}
    Unknown method 'mbsl' in methods.mine.base ... 'mbls'?
methods: {mine: {base: mixup+ls}}
    methods.mine.base: 'mixup+ls' has two parts ... variant of 'mixup' and write 'mine+ls'
methods: {mine: {base: mbls, margn: 1}}
    hyper-parameter 'margn' in methods.mine ... 'margin'?
methods: {mine: {base: mbls, margin: 1e-3}}
    methods.mine: margin must be a number ... 1.0e-3
methods: {mbls: {base: mbls}}
    methods.mbls: 'mbls' is a registered method ... another name
methods: {1: {base: mbls}}
    methods: 1 is not a valid name ... starts with a letter
methods: {"a\n": {base: mbls}}
    methods: 'a\n' is not a valid name
calibrators: {mine: {base: smart, seed: 1}}
    calibrators.mine ... calibrator_seeds
protocols: {p: {base: p}}
    Unknown protocol 'p' in protocols.p.base: valid: aclsline
protocols: {p: {base: digits, epochs: 30, schedule: {milestones: [30]}}}
    protocol 'p': schedule.milestones has 30, which is not before the last of 30 epochs
    train longer
protocols: {p: {base: digits, epochs: 5}}
    it inherits 'schedule: {milestones: [40, 50]}' from 'digits' ... under protocols.p
protocols: {p: {base: digits, schedule: {milestones: [50, 40]}}}
    protocol 'p': schedule.milestones must ascend, got [50, 40]
protocols: {p: {base: digits, schedule: {warmup_epochs: 1000}}}
    protocol 'p': schedule.warmup_epochs must be fewer than the 60 epochs, got 1000
protocols: {p: {base: digits, optimizer: {lr: 1.0e+30}}}
    protocol 'p': optimizer.lr must be at most 100
protocols: {p: {base: digits, crop_size: 6, augmentation: {crop_padding: 0, resized_crop: true}}}
    protocol 'p': augmentation.resized_crop gives ... remove crop_padding and crop_size
protocols: {p: {base: digits, optimizer: {nesterov: true, momentum: 0.0}}}
    protocol 'p': optimizer.nesterov needs a momentum
protocols: {p: {base: digits, optimizer: {lr: 1e-3}}}
    protocol 'p': optimizer.lr must be of type number, got '1e-3' ... as in 1.0e-3
protocols: {p: {base: digits, second_stage: {schedule: {name: step, milestones: [9999]}}}}
    protocol 'p': second_stage: schedule.milestones has 9999, which is not before the last
protocols: {p: {base: digits, ema: {decay: 1.0}}}
    protocol 'p': ema.decay must be below 1.0, got 1.0
protocols: {p: {base: digits, augmentation: {augmix: {severty: 3}}}}
    'severty' ... augmentation.augmix ... 'severity'?
protocols: {p: {base: digits, augmentation: {augmix: {}, randaugment: {}}}}
    protocol 'p': augmentation has randaugment and augmix; leave one of them out
protocols: {digits: {base: digits}}
    protocols.digits ... choose another one
overrides: [{match: {method: mbls}, set: {margn: 1}}]
    'margn' in overrides[0].set for method 'mbls' ... 'margin'?
overrides: [{match: {dataset: digits}, set: {margin: x}}]
    overrides[0].set: margin must be a number, got 'x'
overrides: [{match: {method: mbl}, set: {margin: 1}}]
    'mbl' in overrides[0].match ... 'mbls'?
overrides: [{match: {protocol: [digts]}, set: {margin: 1}}]
    'digts' in overrides[0].match
overrides: [{match: {methods: ce}, set: {margin: 1}}]
    Unknown key 'methods' ... 'method'?
overrides: [{match: {method: 3}, set: {margin: 1}}]
    an identifier or a list of identifiers, got 3
overrides: [{match: {}, set: {margin: 1}}]
    overrides[0].match must not be empty
"""
)
TOP_LEVEL += [
    ({"study": "x" * 300}, ["study must have at most 100 characters, got 300"]),
    ({"results": "a/" * 1500}, ["results: the path has 3,000 characters", "write a shorter one"]),
    (
        {"methods": {"mine": {"base": "mbls", "margin": 10**400}}},
        ["must be a finite number, got one beyond"],
    ),
]


@pytest.mark.parametrize(("grid", "parts"), GRIDS, ids=[str(grid)[:70] for grid, _ in GRIDS])
def test_mistakes_in_a_grid(study, refuses, grid, parts):
    with refuses(ConfigError, *parts):
        variants = {
            "drawn": {"val_draw": "seed"},
            "on_two_gpus": {"gpus": 2},
            "as_graph": {"cuda_graph": True},
            "compiled": {"compile": True},
            "compiled_on_two_gpus": {"gpus": 2, "compile": True},
            "compiled_to_the_bit": {"deterministic": True, "compile": True},
            "averaged": {"checkpoints": ["last", "ema", "swa"]},
            "as_graphs_on_two_gpus": {"gpus": 2, "cuda_graph": True},
        }
        study(grid, protocols={name: {"base": "digits", **each} for name, each in variants.items()})


def test_a_shift_whose_file_is_broken_is_not_called_unknown(
    study, tmp_path, refuses, without_plugins
):
    (tmp_path / "lab/datasets").mkdir(parents=True)
    (tmp_path / "lab/datasets/dim.py").write_text(
        "from calgrid.components.registry import register\n"
        "from calgrid.datasets import ShiftFamily\n"
        "@register(source='a test', role='shift', of='digits')\n"
        "class Dim(ShiftFamily):\n"
        '    """Darker."""\n'
    )
    with refuses(ConfigError, "Unknown fact 'of' in", "dim.py"):
        study({"shifts": ["dim"]}, plugins=[str(tmp_path / "lab")])


@pytest.mark.parametrize(
    ("changes", "parts"), TOP_LEVEL, ids=[str(changes)[:70] for changes, _ in TOP_LEVEL]
)
def test_mistakes_elsewhere(study, refuses, changes, parts):
    with refuses(ConfigError, *parts):
        study(**changes)


def test_a_misspelt_key_is_said_rather_than_that_one_is_missing(make_config, home, refuses):
    config = make_config()
    config["grid"] = config.pop("grids")
    with refuses(ConfigError, "Unknown key 'grid' in configuration", "did you mean 'grids'?"):
        Study(config, home)
    grid = {
        "datset" if key == "datasets" else key: value
        for key, value in make_config()["grids"][0].items()
    }
    with refuses(ConfigError, "key 'datset' in configuration: grids[0]", "mean 'datasets'?"):
        Study(make_config(grids=[grid]), home)


def test_missing_keys(make_config, home, refuses):
    config = make_config()
    for part, message in ((config, "{}"), (config["grids"][0], "grids[0]: {}")):
        for key in {*part} - {"grids"}:
            value = part.pop(key)
            with refuses(ConfigError, message.format(f"the key '{key}' is missing")):
                Study(config, home)
            part[key] = value
    del config["grids"]
    with refuses(ConfigError, "give 'grids', 'external' or both"):
        Study(config, home)


@pytest.mark.parametrize(
    ("change", "parts"),
    cases(
        """
batch_size: 17
    120 training images in batches of 17 leave a last batch ... drop_last
second_stage: {batch_size: 7}
    second stage of protocol 'p' ... batches of 7
{batch_size: 121, drop_last: true}
    leaves no batch of 121 of 120 training ... smaller batches
"""
    ),
)
def test_an_epoch_without_a_batch_or_with_one_of_a_single_image(study, refuses, change, parts):
    grid = {"protocol": "p", "methods": ["tst" if "second_stage" in change else "ce"]}
    with refuses(ConfigError, "grids[0]: ", *parts):
        study(grid, protocols={"p": {"base": "digits", **change}})


@pytest.mark.parametrize("change", [{"batch_size": 17, "drop_last": True}, {"batch_size": 1}])
def test_single_images_that_are_dropped_or_all_batches_are_taken(study, change):
    made = study({"protocol": "p"}, protocols={"p": {"base": "digits", **change}})
    assert {run.protocol.batch_size for run in made.trained.values()} == {change["batch_size"]}


def test_what_is_no_mapping(home, refuses):
    with refuses(ConfigError, "configuration must be of type object, got None"):
        Study(None, home)


@pytest.mark.parametrize(
    ("fit_on", "lacks", "needed"), [(["val"], False, True), (["val", "same_shift"], True, "all")]
)
def test_a_calibrator_that_needs_features_has_them_exported(study, refuses, fit_on, lacks, needed):
    """Of the shifts, too, if it is fitted on them."""
    grid = {"calibrators": ["gc_ts"], "protocol": "p", "fit_on": fit_on, "shifts": ["digits_c"]}
    message = f"set export_features: {str(needed).lower()} in the protocol"
    with refuses(ConfigError, "grids[0].calibrators: 'gc_ts' needs features", message):
        study(grid, protocols={"p": {"base": "digits", "export_features": lacks}})
    made = study(grid, protocols={"p": {"base": "digits", "export_features": needed}})
    assert all(wanted.fit_on == fit_on for wanted in made.evaluations.values())


@pytest.mark.parametrize(
    ("grid", "protocol", "message"),
    [
        (
            {"datasets": ["imagenet"], "backbones": ["imagenet_resnet50"], "methods": ["ce"]},
            {"base": "published", "export_features": "train"},
            "'imagenet' has no training images ... set export_features: all",
        ),
        (
            {"calibrators": ["dac"]},
            {"base": "digits", "export_features": "all"},
            "'dac' needs features of training images ... export_features: train",
        ),
    ],
)
def test_features_of_training_images_are_exported(study, refuses, grid, protocol, message):
    with refuses(ConfigError, message):
        study({**grid, "protocol": "p"}, protocols={"p": protocol}, data_root="data")


def test_feature_clipping_is_refused_where_the_head_is_not_linear(study, refuses):
    protocols = {"p": {"base": "digits", "export_features": True}}
    grid = {"calibrators": ["fc"], "protocol": "p", "methods": ["ce", "tst"]}
    with refuses(ConfigError, "'fc' needs a linear last layer, which 'tst' does not have"):
        study(grid, protocols=protocols)
    assert study({**grid, "methods": ["ce", "mixup"]}, protocols=protocols).evaluations


PAIR = {"test": "test.npz", "val": "val.npz", "kind": "logits"}
SPLIT = {"test": "test.npz", "split_seed": 1, "kind": "logits"}


class TestExternal:
    @pytest.fixture
    def external(self, home, tmp_path):
        for name in ("val.npz", "test.npz", "test.tsv"):
            (tmp_path / name).touch()
        return lambda **runs: Study(
            {"study": "s", "data_root": str(tmp_path), "external": runs}, home
        )

    @pytest.mark.parametrize(
        ("entry", "parts"),
        cases(
            r"""
{test: test.npz, kind: logits}
    external.a: give a 'val' file, or 'split_seed'
{test: test.npz, split_seed: 1, kind: logits, val: val.npz}
    external.a: 'val' and 'split_seed' exclude each other
{test: test.npz, val: ./test.npz, kind: logits}
    external.a: 'val' and 'test' are the same file ... tested on different rows ... 'split_seed'
{test: test.npz, val: val.npz, kind: logits, val_fraction: 0.5}
    external.a: 'val' and 'val_fraction' exclude each other
{test: test.npz, val: val.npz, kind: logits, val_seeds: [1, 2]}
    external.a.val_seeds has no effect without 'val_rows'
{test: test.npz, split_seed: 1}
    external.a: the key 'kind' is missing
{test: test.npz, split_seed: 1, kind: logits, val_labels: test.npz}
    external.a.val_labels has no effect without 'val'
{test: test.tsv, split_seed: 1, kind: logits}
    external.a.test: ... test.tsv must be .npz, ... pandas.read_csv(
{test: test.npz, split_seed: 1, kind: logits, classes: [cat]}
    external.a.classes must have at least 2 entries
{test: test.npz, split_seed: 1, kind: logits, calibrators: [fc]}
    external.a.calibrators: 'fc' needs the last linear layer ... 'head'
{test: test.npz, split_seed: 1, kind: logits, head: no.npz}
    external.a.head: the file ' ... no.npz' does not exist
{test: test.npz, split_seed: 1, kind: probs}
    one of logits, probabilities, got 'probs'
{test: test.npz, split_seed: 1, kind: logits, val_fraction: 1}
    external.a.val_fraction
{test: test.npz, split_seed: 1, kind: logits, method: a b}
    'a b' is not a valid name
"""
        ),
    )
    def test_mistakes(self, external, refuses, entry, parts):
        with refuses(ConfigError, *parts):
            external(a=entry)

    def test_two_under_the_same_key(self, external, refuses):
        one = {**SPLIT, "dataset": "cifar10"}
        with refuses(ConfigError, "external.b: another external run has the same dataset"):
            external(a=one, b=one)
        assert len(external(a=one, b={**one, "seed": 2}).runs) == 2

    @pytest.mark.parametrize(
        ("other", "parts"),
        [
            ({"split_seed": 2}, "external.b: ... other test rows or labels ... another 'dataset'"),
            ({"method": "mine", "seed": 2}, "external.b: ... has the files of ... no different"),
        ],
    )
    def test_rows_that_cannot_be_compared(self, tmp_path, home, refuses, other, parts):
        labels = np.random.default_rng(0).integers(3, size=60)
        np.savez(tmp_path / "test.npz", logits=3 * np.eye(3)[labels], label=labels)
        one = {**SPLIT, "dataset": "cifar10"}
        first = {**one, "method": "mine"}
        runs = {"a": first, "b": {**one, "method": "theirs", **other}, "c": {**first, "seed": 3}}
        if "seed" not in other:
            del runs["c"]
        config = {"study": "s", "data_root": str(tmp_path), "external": runs}
        with refuses(ConfigError, parts):
            check_external(Study(config, home))

    @pytest.mark.parametrize(
        ("rows", "said"),
        [
            (slice(None), None),
            (slice(None, None, -1), "other test rows or labels ... labels of own/mine/resnet8/ce"),
            (slice(59), "test.npz has 59 test rows, but the runs of this study have 60"),
        ],
    )
    def test_the_rows_of_trained_runs_count(self, tmp_path, home, make_config, refuses, rows, said):
        labels = np.random.default_rng(0).permutation(60) % 10
        for name, of_split in (("train", labels), ("test", labels)):
            write_parquet(tmp_path / f"{name}.parquet", [b""] * 60, of_split)
        for name in ("val", "test"):
            logits = np.random.default_rng(len(name)).normal(size=(60, 10))
            np.savez(tmp_path / f"{name}.npz", logits=logits[rows], label=labels[rows])
        config = make_config({"datasets": ["mine"], "protocol": "own", "methods": ["ce"]})
        config["protocols"] = {"own": {"base": "digits"}}
        config["datasets"] = {
            "mine": {"base": "image_parquet", "like": "digits", "image_size": 8, "val_size": 12}
        }
        files = {"val": "val.npz", "test": "test.npz", "kind": "logits", "protocol": "own"}
        theirs = {**files, "dataset": "mine", "backbone": "resnet8", "method": "ls", "seed": 2}
        study = Study({**config, "data_root": str(tmp_path), "external": {"x": theirs}}, home)
        if said is None:
            assert ("test", "own", "mine", "resnet8", None) in check_external(study)
        else:
            with refuses(ConfigError, "external.x: ", *said.split(" ... ")):
                check_external(study)

    @pytest.mark.parametrize("odd", ["a", "c"])
    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ("classes", "has 4 classes, but external/cifar10/b/{}/seed1 has 3"),
            ("labels", "has other test rows or labels than external/cifar10/b/{}/seed1"),
        ],
    )
    def test_the_odd_one_of_the_runs_is_named(self, tmp_path, home, refuses, odd, change, said):
        rng = np.random.default_rng(0)
        labels = rng.integers(3, size=60)
        external = {}
        for name in "abc":
            other = change if name == odd else ""
            logits = rng.normal(size=(60, 4 if other == "classes" else 3))
            label = labels[::-1] if other == "labels" else labels
            np.savez(tmp_path / f"{name}.npz", logits=logits, label=label)
            key = {"dataset": "cifar10", "backbone": "b", "method": name, "seed": 1}
            external[name] = {**SPLIT, "test": f"{name}.npz", **key}
        config = {"study": "s", "data_root": str(tmp_path), "external": external}
        usual = "b" if odd == "a" else "a"
        where = f"external.{odd}: external/cifar10/b/{odd}/seed1 "
        with refuses(ConfigError, where + said.format(usual)):
            check_external(Study(config, home))

    @pytest.mark.parametrize(
        ("rows", "entry", "statistics", "parts"),
        [
            (40, {}, {"conformal": ["thr"]}, "external.a: Conformal sets ... got 14"),
            (60, {"val_rows": [60, 40]}, {"conformal": ["thr"]}, "external.a ... got 14"),
            (60, {"val_rows": [61]}, {}, "external.a: val_rows 61 is more than the 60 val rows"),
            (60, {"kind": "probabilities"}, {}, "test.npz should contain probabilities, but row"),
        ],
    )
    def test_files_are_read_first(self, tmp_path, home, refuses, rows, entry, statistics, parts):
        def study(entry, statistics):
            files = {"data_root": str(tmp_path), "external": {"a": {**PAIR, **entry}}}
            check_all(Study({"study": "s", "statistics": statistics, **files}, home))

        draws = np.random.default_rng(0)
        for name in ("val", "test"):
            logits = draws.normal(size=(rows, 3)).astype(np.float32)
            np.savez(
                tmp_path / f"{name}.npz", logits=logits, probs=logits, label=np.arange(rows) % 3
            )
        study({}, {})
        with refuses(ConfigError, parts):
            study(entry, statistics)
        shares = np.full((rows, 3), 1 / 3)
        np.savez(tmp_path / "val.npz", logits=shares, label=np.arange(rows) % 3)
        with refuses(ConfigError, "external.a: ", "val.npz should contain logits, but every row"):
            study({}, {})


HEAD = "paper,table,dataset,backbone,method,calibrator,metric,shift,severity,value,unit,suspect"
ROW = "mine,1,digits,resnet8,ce,none,ece,,0,3.7,percent,"


@pytest.fixture
def published(tmp_path):
    def write(*lines):
        path = tmp_path / "numbers.csv"
        path.write_bytes("\n".join(lines).encode("latin-1"))
        return path

    return write


def test_published_numbers_are_taken(published, home):
    own = published(HEAD, ROW, "", ROW.replace("3.7", "3.7e1"))
    paths = [own, *(home / "config" / "papers").glob("*/published.csv")]
    assert len(paths) == 4
    for path in paths:
        check_published(path, "published[0]")


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        ((), "lacks the columns paper, table, dataset"),
        ((HEAD.replace("unit", "units"), ROW), "lacks the column unit of published numbers"),
        ((f"{HEAD},unit", f"{ROW},"), "has the column unit twice"),
        ((HEAD, ROW, f"{ROW},more"), "line 3, has 13 cells instead of 12"),
        ((HEAD, ROW.replace("3.7", "")), "line 2: value must be a number, got ''"),
        ((HEAD, ROW.replace(",0,", ",high,")), "line 2: severity must be a number, got 'high'"),
        ((HEAD, ROW.replace("percent", "%")), "line 2: unit must be one of percent, ... got '%'"),
        ((HEAD, ROW.replace("mine", "\xe9")), "is not a CSV file in UTF-8"),
    ],
)
def test_what_holds_no_published_numbers_is_refused(published, refuses, lines, parts):
    with refuses(ConfigError, "published[0]: '", parts):
        check_published(published(*lines), "published[0]")


def test_too_few_validation_rows_for_conformal_sets(refuses):
    with refuses(ConfigError, "conformal: digits: Conformal sets at level 0.05", "got 14"):
        checks.check_conformal(40, False, "digits")
    checks.check_conformal(54, False, "digits")


def test_names_are_of_the_study_and_tell_its_methods_apart(make_config, home, refuses):
    def study(**names):
        grid = {"methods": ["ce", "ls"], "calibrators": ["none", "ts"]}
        Study(make_config(grid, names=names), home)

    study(ls="Label smoothing", ts="Temperature")
    study(ce="ls", ls="ce")
    with refuses(ConfigError, "Unknown method or calibrator 'mbls' in names"):
        study(mbls="MbLS")
    with refuses(ConfigError, "names.ls: 'ce' is the name of 'ce'"):
        study(ls="ce")
    with refuses(ConfigError, "names.ts: 'A' is the name of 'ls'"):
        study(ls="A", ts="A")
