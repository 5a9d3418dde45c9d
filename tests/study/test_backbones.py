"""Backbones in a configuration: names, and images of a size that they take."""

import pytest
from tests.mistakes import cases

from calgrid.backbones import build_backbone as build
from calgrid.backbones import trial
from calgrid.backbones.catalogue import check_image_size, describe
from calgrid.components import fingerprint
from calgrid.errors import ConfigError
from calgrid.study.slow_checks import check_networks
from calgrid.study.study import Study


@pytest.fixture
def study(study, tmp_path):
    def make(dataset="digits", backbone="resnet8", protocol="digits", **changes):
        grid = {"datasets": [dataset], "backbones": [backbone], "protocol": protocol}
        return study(grid, data_root=str(tmp_path), **changes)

    return make


@pytest.mark.parametrize("backbone", ["resnet50", "wrn26_10", "densenet121", "timm/test_vit"])
def test_networks_for_cifar_take_the_embedded_digits_too(study, backbone):
    """They pool the whole last map; what a model of timm takes is not known before it is built."""
    assert {key.backbone for key in study(backbone=backbone).runs} == {backbone}


@pytest.fixture
def images(tmp_path):
    for name in ("train", "test"):
        (tmp_path / f"{name}.parquet").touch()
    return {"base": "image_parquet", "val_size": 10}


@pytest.mark.parametrize(
    ("given", "parts"),
    cases(
        """
[digits, resnet50_tiny, {}]
    takes images of 64x64 pixels only ... these have 8x8
[digits, imagenet_resnet50, {}]
    takes images of 32x32 pixels or more ... these have 8x8
[own, imagenet_vit_b16, {}]
    takes images of 224x224 pixels only ... these have 64x64
[own, imagenet_resnet50, {crop_size: 16}]
    takes images of 32x32 pixels or more ... these have 16x16
[digits, resnet8, {augmentation: {crop_padding: 9}}]
    pads images by 9 pixels, but these have 8x8
[digits, resnet8, {augmentation: {crop_padding: 8, padding_mode: reflect}}]
    pads images by 8 reflected pixels, but these have 8x8
[digits, resnet8, {crop_size: 16}]
    the protocol crops images to 16x16 pixels, but these have 8x8
"""
    ),
)
def test_sizes_no_network_or_protocol_takes_are_refused(study, refuses, images, given, parts):
    dataset, backbone, protocol = given
    own = {"own": {**images, "image_size": 64}}
    protocols = {"p": {"base": "digits", **protocol}}
    with refuses(ConfigError, f"grids[0].backbones for data set '{dataset}': ", *parts, "; use "):
        study(dataset, backbone, protocol="p", datasets=own, protocols=protocols)


def test_sizes_at_the_bounds_are_taken_and_both_sides_count(refuses):
    def check(id, height, width):
        check_image_size(id, describe(id).info, height, width, "here")

    check("imagenet_resnet50", 32, 500)
    check("resnet50_tiny", 64, 64)
    with refuses(ConfigError, "these have 64x65"):
        check("resnet50_tiny", 64, 65)
    with refuses(ConfigError, "these have 500x31"):
        check("imagenet_resnet50", 500, 31)


def test_images_of_unknown_size_and_larger_ones_through_a_crop_are_taken(study, images):
    assert study("mine", "imagenet_vit_b16", datasets={"mine": images}).runs
    large = {"large": {"base": "cub200", "size": 448}}
    made = study("large", "vit_b16_384", "finegrained_vit", datasets=large)
    assert {run.protocol.crop_size for run in made.runs.values()} == {384}


@pytest.mark.parametrize(
    ("changes", "parts"),
    cases(
        """
backbone: timm/resnet51
    Unknown timm model 'resnet51' in grids[0].backbones: did you mean ... resnet50
backbone: timm
    grids[0].backbones: 'timm' is a library
backbone: mobilenetv3_small_050
    grids[0].backbones: did you mean 'timm/mobilenetv3_small_050'?
overrides: [{match: {backbone: timm/resnt50}, set: {margin: 1.0}}]
    'resnt50' in overrides[0].match ... resnet50
{protocols: {tuned: {base: digits, pretrained: true}}, protocol: tuned}
    protocol 'tuned' starts from published weights, and 'resnet8' has none
    pretrained: false
"""
    ),
)
def test_backbones_not_there_or_without_weights_are_refused(study, refuses, changes, parts):
    with refuses(ConfigError, *parts):
        study(**changes)


def test_models_of_timm_have_published_weights_and_can_be_matched_by_overrides(study):
    override = {"match": {"backbone": "timm/test_vit", "method": "mbls"}, "set": {"margin": 3.0}}
    tuned = {"protocol": "tuned", "protocols": {"tuned": {"base": "digits", "pretrained": True}}}
    plain, mbls = study(backbone="timm/test_vit", overrides=[override], **tuned).runs.values()
    assert plain.protocol.pretrained
    assert mbls.method.loss_options["margin"] == 3.0


def test_backbones_may_be_listed_in_a_file(make_config, home, tmp_path, monkeypatch, refuses):
    monkeypatch.chdir(tmp_path)
    listed = tmp_path / "networks.txt"
    listed.write_text("# small ones\nresnet8\n\nresnet20  # as published\n")
    made = Study(make_config({"backbones": "networks.txt"}), home)
    assert {key.backbone for key in made.runs} == {"resnet8", "resnet20"}
    assert made.config.grids[0].backbones == ["resnet8", "resnet20"]
    listed.write_text("# none\n")
    with refuses(ConfigError, "grids[0].backbones: the list networks.txt has no names"):
        Study(make_config({"backbones": "networks.txt"}), home)
    with refuses(ConfigError, "grids[0].backbones: the list no.txt is no readable text file"):
        Study(make_config({"backbones": "no.txt"}), home)


@pytest.mark.parametrize(
    ("backbone", "dataset", "parts"),
    [
        ("timm/resnet18.tv_in1k", "imagenet", None),
        ("timm/resnet18.tv_in1k", "cifar10", "are for images with classes 1000 ... have 10"),
        ("timm/vit_base_patch16_224.augreg_in1k", "imagenet", "with mean (0.5, 0.5, 0.5)"),
        ("timm/vit_base_patch16_384.augreg_in1k", "imagenet", "have 224x224"),
        ("timm/resnet200", "imagenet", "'timm/resnet200' has no published weights"),
    ],
)
def test_published_weights_of_timm_are_for_the_images_of_the_data_set(
    make_config, home, refuses, backbone, dataset, parts
):
    grid = {"protocol": "published", "datasets": [dataset], "backbones": [backbone]}
    made = Study(make_config({**grid, "methods": ["ce"]}), home)
    if not parts:
        check_networks(made)
    else:
        with refuses(ConfigError, f"Backbone '{backbone}'", parts):
            check_networks(made)


@pytest.mark.parametrize(
    ("backbone", "reason"),
    [
        ("test_resnet", None),
        ("mobilenetv3_small_050", None),
        ("vit_tiny_patch16_224", "takes images of 224x224 pixels only, and these have 32x32"),
        ("levit_128s", "does not end in one linear layer"),
        ("inception_v4", "does not take images of 32x32 pixels (RuntimeError: "),
    ],
)
def test_networks_of_timm_are_tried_with_two_images_at_planning(study, refuses, backbone, reason):
    made = study(backbone=f"timm/{backbone}", dataset="cifar10", protocol="cifar10_cpu")
    if reason is None:
        check_networks(made)
    else:
        with refuses(ConfigError, f"'timm/{backbone}'", reason):
            check_networks(made)


def test_all_networks_that_cannot_run_are_named_at_once_and_one_that_works_is_tried_once_per_code(
    make_config, home, monkeypatch, tmp_path
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tried = []

    def counted(id, n_classes):
        tried.append(id)
        return build(id, n_classes)

    monkeypatch.setattr(trial, "build_backbone", counted)
    grid = {
        "protocol": "cifar10_cpu",
        "datasets": ["cifar10"],
        "backbones": ["timm/test_resnet", "timm/levit_128s", "timm/vit_tiny_patch16_224"],
        "methods": ["ce"],
        "seeds": [1],
    }
    made = Study(make_config(grid), home)
    for number, code in ((3, "as it is"), (2, "as it is"), (3, "edited")):
        monkeypatch.setattr(
            fingerprint, "code_digest", lambda modules, code=code: f"{modules} {code}"
        )
        tried.clear()
        with pytest.raises(ConfigError, match=r"does not end in one .*\n.* images of 224x224"):
            check_networks(made)
        assert len(tried) == number
