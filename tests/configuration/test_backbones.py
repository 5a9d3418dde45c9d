"""Backbones in a configuration: names, images of a size that they take, and how they are spelt in paths."""

import pytest

from calgrid.backbones._catalogue import check_image_size, describe
from calgrid.errors import ConfigError


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


@pytest.mark.parametrize(
    ("dataset", "backbone", "parts"),
    [
        ("digits", "resnet50_tiny", ["takes images of 64x64 pixels only", "these have 8x8"]),
        ("digits", "imagenet_resnet50", ["takes images of 32x32 pixels or more", "these have 8x8"]),
        ("cifar10", "vit_b16_384", ["takes images of 384x384 pixels only", "these have 32x32"]),
    ],
)
def test_images_of_a_size_that_a_network_cannot_take_are_refused(study, refuses, dataset, backbone, parts):
    place = f"grids[0].backbones for data set '{dataset}': backbone '{backbone}'"
    with refuses(ConfigError, place, *parts, "use another backbone or images of another size"):
        study(dataset, backbone)


@pytest.fixture
def images(tmp_path):
    (tmp_path / "pictures.parquet").touch()
    return {"base": "image_parquet", "train": "pictures.parquet", "test": "pictures.parquet", "val_size": 10}


def test_crops_and_padding_fit_the_images_and_the_network(study, refuses, images):
    wide = {"protocols": {"p": {"base": "digits", "augmentation": {"crop_padding": 9}}}}
    with refuses(ConfigError, "the protocol pads images by 9 pixels, but these have 8x8"):
        study("digits", "resnet8", protocol="p", **wide)
    small = {"datasets": {"mine": images}, "protocols": {"p": {"base": "digits", "crop_size": 16}}}
    with refuses(ConfigError, "backbone 'imagenet_resnet50' takes images of 32x32 pixels or more", "these have 16x16"):
        study("mine", "imagenet_resnet50", protocol="p", **small)


def test_sizes_at_the_bounds_are_taken_and_both_sides_count(refuses):
    check_image_size(describe("imagenet_resnet50"), 32, 500, "here")
    check_image_size(describe("resnet50_tiny"), 64, 64, "here")
    with refuses(ConfigError, "these have 64x65"):
        check_image_size(describe("resnet50_tiny"), 64, 65, "here")
    with refuses(ConfigError, "these have 500x31"):
        check_image_size(describe("imagenet_resnet50"), 500, 31, "here")


def test_own_images_are_refused_by_their_size_where_it_is_given(study, refuses, images):
    assert study("mine", "imagenet_vit_b16", datasets={"mine": images}).runs
    with refuses(ConfigError, "takes images of 224x224 pixels only", "these have 64x64"):
        study("mine", "imagenet_vit_b16", datasets={"mine": {**images, "image_size": 64}})


def test_unknown_models_of_timm_are_refused_before_any_job(study, refuses):
    with refuses(ConfigError, "Unknown timm model 'resnet51' in grids[0].backbones: did you mean ", "resnet50"):
        study(backbone="timm/resnet51")
    with refuses(ConfigError, "grids[0].backbones: 'timm' is a library"):
        study(backbone="timm")
    override = {"match": {"backbone": "timm/resnt50"}, "set": {"margin": 1.0}}
    with refuses(ConfigError, "'resnt50' in overrides[0].match", "resnet50"):
        study(overrides=[override])


def test_a_protocol_that_starts_from_published_weights_needs_backbones_that_have_them(study, refuses):
    tuned = {"protocol": "tuned", "protocols": {"tuned": {"base": "digits", "pretrained": True}}}
    made = study(backbone="timm/test_resnet", **tuned)
    assert [run.protocol["pretrained"] for run in made.runs.values()] == [True, True]
    with refuses(ConfigError, "protocol 'tuned' starts", "'resnet8' has none", "pretrained: false"):
        study(**tuned)
    assert [run.protocol["pretrained"] for run in study().runs.values()] == [False, False]


def test_models_of_timm_can_be_matched_by_overrides(study):
    override = {"match": {"backbone": "timm/test_vit", "method": "mbls"}, "set": {"margin": 3.0}}
    runs = study(backbone="timm/test_vit", overrides=[override]).runs
    (run,) = (run for key, run in runs.items() if key.method == "mbls")
    assert run.method.loss_options["margin"] == 3.0


def test_a_network_of_one_size_takes_larger_images_through_a_crop(study, refuses):
    made = study("large", "vit_b16_384", "finegrained_vit", datasets={"large": {"base": "cub200", "size": 448}})
    assert {run.protocol["crop_size"] for run in made.runs.values()} == {384}
    with refuses(ConfigError, "the protocol crops images to 384x384 pixels, but these have 256x256"):
        study("cub200", "vit_b16_384", "finegrained_vit")
