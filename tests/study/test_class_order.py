"""Networks that were trained elsewhere, on a user's pictures: the order of their outputs."""

import json

import pytest
import torch
from safetensors.torch import save_file
from tests.datasets.pictures import draw, encoded, write_folder, write_parquet

from calgrid.backbones import build_backbone
from calgrid.errors import ConfigError
from calgrid.study.slow_checks import check_labels, check_weights

NUMBERS = ("1", "2", "10")
MIXED = ("1_cat", "2_dog", "10_fox")
WORDS = ("ant", "bee", "cat")
STATE = build_backbone("resnet8", 3).state_dict()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder with the same pictures in numbered folders, in named ones, and in Parquet files."""
    tmp_path = tmp_path_factory.mktemp("pictures")
    for role in ("train", "test"):
        pixels, labels = draw(30, seed=len(role))
        write_parquet(tmp_path / f"{role}.parquet", map(encoded, pixels), labels)
        for folder, names in {"numbers": NUMBERS, "mixed": MIXED, "words": WORDS}.items():
            write_folder(tmp_path / folder / role, pixels, labels, names)
    return tmp_path


@pytest.fixture
def make(study, root):
    """A study of such pictures with a network of a file, or else a published one."""

    def run(pictures, content=None, name="net.pt", **given):
        if pictures == "parquet":
            mine = {"base": "image_parquet"}
        else:
            mine = {"base": "image_folder", "train": f"{pictures}/train"}
            mine["test"] = f"{pictures}/test"
        if content is None:
            protocol, backbone = {"base": "published"}, "imagenet_resnet50"
        else:
            protocol = {"base": "published", "weights": "file", "weights_file": name}
            backbone = "resnet8"
            if name.endswith(".pt"):
                torch.save(content, root / name)
            else:
                save_file(STATE, root / name, content)
        grid = {"protocol": "own", "datasets": ["mine"], "backbones": [backbone]}
        return study(
            {**grid, "methods": ["ce"], "seeds": [1]},
            protocols={"own": protocol},
            datasets={"mine": {**mine, "val_size": 6, "image_size": 32, **given}},
            data_root=str(root),
        )

    return run


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("net.pt", {**STATE, "classes": [1, 2, 10]}),
        ("net.pt", {"state_dict": STATE, "class_to_idx": {"10": 2, "1": 0, "2": 1}}),
        ("net.pt", {"model": STATE, "class_to_idx": {"10": 3, "1": 1, "2": 2}}),
        ("net.pt", {"state_dict": STATE, "idx_to_class": {0: "1", 1: "2", 2: "10"}}),
        ("net.pt", {"state_dict": STATE, "idx_to_class": {"0": 1, "2": 10, "1": 2}}),
        ("net.pt", {"state_dict": {**STATE, "class_names": ("1", "2", "10")}}),
        ("net.pt", {"state_dict": STATE, "meta": {"categories": ["1", "2", "10"]}}),
        ("net.safetensors", {"classes": '["1", "2", "10"]'}),
        ("net.safetensors", {"class_to_idx": json.dumps({"1": 0, "2": 1, "10": 2})}),
    ],
)
def test_a_network_may_name_its_classes(make, refuses, name, content):
    said = f"{name} has the classes of 'mine' in another order (class 1 is '2' instead of '10')"
    with refuses(ConfigError, said, "classes: [1, 2, 10]"):
        check_weights(make("numbers", content, name))


def test_a_network_that_names_its_classes_is_compared(make, refuses, capsys):
    content, name = {**STATE, "classes": [1, 2, 10]}, "net.pt"
    with refuses(ConfigError, "has outputs for the classes 1, 2, 10, but 'mine' has ant, bee, cat"):
        check_weights(make("words", content, name))
    check_weights(make("numbers", content, name, classes=[1, 2, 10]))
    assert capsys.readouterr().err == ""
    check_weights(make("parquet", content, name))
    assert "'mine' does not name its classes: its labels are taken in the order of" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "content",
    [
        STATE,
        {**STATE, "classes": [1.5, 2]},
        {**STATE, "classes": ["a", "a", "b"]},
        {**STATE, "class_to_idx": {"1": 0, "2": 5}},
    ],
)
def test_without_names_numbered_folders_need_their_order(make, refuses, content):
    said = "the classes of 'mine' are in the order of text (1, 10, 2)"
    order = "net.pt does not name its outputs; give the data set their order"
    with refuses(ConfigError, f"protocol 'own': {said}", order, "classes: [1, 2, 10]"):
        check_weights(make("numbers", content))


def test_without_names_folders_in_words_are_taken_and_said(make, refuses, capsys):
    content = STATE
    with refuses(ConfigError, "(10_fox, 1_cat, 2_dog)", "classes: [1_cat, 2_dog, 10_fox]"):
        check_weights(make("mixed", content))
    check_weights(make("numbers", content, classes=[1, 10, 2]))
    assert capsys.readouterr().err == ""
    check_weights(make("words", content))
    assert "net.pt does not name its classes: its outputs are taken in the order of 'mine'" in (
        capsys.readouterr().err
    )


def test_published_networks_do_not_know_the_order_of_numbered_folders_either(make, refuses):
    with refuses(ConfigError, "the published network of 'imagenet_resnet50' does not name"):
        check_weights(make("numbers"))


def test_labels_of_a_shift_of_another_data_set_are_said(study, root, capsys):
    folders = {"base": "image_folder", "train": "words/train", "test": "words/test"}
    mine = {**folders, "val_size": 6, "families": ["cifar10_c"], "image_size": 32}
    made = study(
        {"datasets": ["mine"], "methods": ["ce"], "shifts": ["cifar10_c"]},
        datasets={"mine": mine},
        data_root=str(root),
    )
    check_labels(made)
    said = "'cifar10_c', a shift of 'cifar10', does not name its classes"
    assert said in capsys.readouterr().err
