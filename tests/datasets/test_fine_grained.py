"""CUB-200-2011 and FGVC-Aircraft from tiny archives in the original format."""

import numpy as np
import pytest
from tests.datasets.archives import expect, write_tar
from tests.datasets.pictures import colour, encoded, plain, sizes

from calgrid.components import registry
from calgrid.datasets import open_prepared, prepare
from calgrid.errors import DataError
from calgrid.plan.plan import Plan
from calgrid.study.study import Study

BIRDS, PLANES = "CUB_200_2011", "fgvc-aircraft-2013b/data"
SPECIES = ["001.Black_footed_Albatross", "002.Laysan_Albatross", "003.Sooty_Albatross"]
#: as in the original, names hold spaces and slashes, and their order is not the sorted one
VARIANTS = ["707-320", "F/A-18", "Falcon 900", "A300B4"]
SIZE = 16


def jpeg(seed):
    """A picture of its own colour and proportions; every fifth is grey."""
    return plain(seed, np.random.default_rng(seed).integers(20, 50, 2), grey=seed % 5 == 0)


def text(lines):
    return ("\n".join(lines) + "\n").encode()


@pytest.fixture
def birds():
    """36 pictures: ids 1.., species in turn, every third for testing; lists out of order."""
    ids = list(range(1, 37))
    names = {id: f"{SPECIES[id % 3]}/Bird_{id:04d}_{id * 7}.jpg" for id in ids}
    members = {f"{BIRDS}/images/{names[id]}": jpeg(id) for id in reversed(ids)}
    members["attributes.txt"] = b"1 has_bill_shape\n"
    members[f"./{BIRDS}/images.txt"] = text([f"{id} {names[id]}" for id in reversed(ids)])
    members[f"./{BIRDS}/image_class_labels.txt"] = text([f"{id} {id % 3 + 1}" for id in ids])
    members[f"./{BIRDS}/train_test_split.txt"] = text([f"{id} {int(id % 4 != 0)}" for id in ids])
    members[f"./{BIRDS}/classes.txt"] = text(
        [f"{number} {name}" for number, name in enumerate(SPECIES, 1)]
    )
    return members


@pytest.fixture
def planes():
    """28 pictures, seven of each variant; five of them in trainval."""
    ids = [f"{1_000_000 + 37 * number % 991:07d}" for number in range(28)]
    variant = dict(zip(ids, VARIANTS * 7, strict=True))
    members = {f"{PLANES}/images/{id}.jpg": jpeg(number) for number, id in enumerate(ids)}
    members[f"{PLANES}/variants.txt"] = text(VARIANTS)
    members[f"{PLANES}/images_variant_trainval.txt"] = text(
        [f"{id} {variant[id]}" for id in ids[:20]]
    )
    members[f"{PLANES}/images_variant_test.txt"] = text([f"{id} {variant[id]}" for id in ids[20:]])
    members[f"{PLANES}/images_family_test.txt"] = text([f"{ids[20]} Boeing 707"])
    return members


SIZES = {
    "cub200": {"train": 21, "val": 6, "test": 9},
    "fgvc_aircraft": {"train": 16, "val": 4, "test": 8},
}


def expect_tiny(monkeypatch, folder, name, members):
    """Let a data set expect a tiny archive of these members; returns its class."""
    cls = registry.load("dataset", name)
    path = write_tar(folder / cls.registered["files"][0]["name"], members)
    rule = {"split": "stratified", "val_size": SIZES[name]["val"], "split_seed": 1}
    expect(monkeypatch, cls, [path], sizes=SIZES[name], drawn_val=rule)
    return cls


def in_order(splits, names):
    """Images and labels of several splits in the order of their rows."""
    order = np.argsort(np.concatenate([splits[name].rows for name in names]))
    return [
        np.concatenate([getattr(splits[name], part) for name in names])[order]
        for part in ("images", "labels")
    ]


def test_birds_are_joined_by_their_ids(tmp_path, monkeypatch, birds):
    splits = expect_tiny(monkeypatch, tmp_path, "cub200", birds)(size=SIZE).build(tmp_path)
    train = [id for id in range(1, 37) if id % 4]
    test = [id for id in range(1, 37) if id % 4 == 0]
    for ids, names in ((train, ("train", "val")), (test, ("test",))):
        images, labels = in_order(splits, names)
        assert labels.tolist() == [id % 3 for id in ids]
        for image, id in zip(images, ids, strict=True):
            (content,) = (content for name, content in birds.items() if f"/Bird_{id:04d}_" in name)
            assert (image == colour(content)[:, None, None]).all()


def test_planes_are_in_the_order_of_the_lists_and_variants(tmp_path, monkeypatch, planes):
    splits = expect_tiny(monkeypatch, tmp_path, "fgvc_aircraft", planes)(size=SIZE).build(tmp_path)
    contents = [content for name, content in planes.items() if name.endswith(".jpg")]
    for first, last, names in ((0, 20, ("train", "val")), (20, 28, ("test",))):
        images, labels = in_order(splits, names)
        assert labels.tolist() == [number % 4 for number in range(first, last)]
        for image, content in zip(images, contents[first:last], strict=True):
            assert (image == colour(content)[:, None, None]).all()


@pytest.mark.parametrize(("name", "of_a_class"), [("cub200", [2] * 3), ("fgvc_aircraft", [1] * 4)])
def test_prepared_they_have_disjoint_stratified_splits_in_the_registered_size(
    tmp_path, monkeypatch, birds, planes, name, of_a_class
):
    members = {"cub200": birds, "fgvc_aircraft": planes}[name]
    expect_tiny(monkeypatch, tmp_path, name, members)
    prepare(name, tmp_path / "out", data_root=tmp_path)
    made = open_prepared(tmp_path / "out").verify()
    assert sizes(made) == SIZES[name]
    assert np.bincount(made.splits["val"].labels).tolist() == of_a_class
    assert made.splits["train"].images.shape[1:] == (3, 256, 256)


def test_proportions_are_not_kept(tmp_path, monkeypatch, planes):
    """The left half of a wide picture stays the left half of the square."""
    halves = np.zeros((20, 60, 3), np.uint8)
    halves[:, :30, 0] = 255
    name = next(name for name in planes if name.endswith(".jpg"))
    wide = expect_tiny(
        monkeypatch, tmp_path, "fgvc_aircraft", {**planes, name: encoded(halves, "PNG")}
    )
    image = in_order(wide(size=SIZE).build(tmp_path), ("train", "val"))[0][0]
    assert (image[0, :, :7] > 250).all()
    assert (image[0, :, 9:] < 5).all()


def test_a_variant_of_another_size_is_a_data_set_of_its_own(
    tmp_path, monkeypatch, make_config, home, planes
):
    expect_tiny(monkeypatch, tmp_path, "fgvc_aircraft", planes)
    datasets = {"large": {"base": "fgvc_aircraft", "size": 24}}
    grid = {"datasets": ["large"], "methods": ["mbls"], "protocol": "p"}
    protocols = {"p": {"base": "digits", "drop_last": False}}
    study = Study(
        make_config(grid, protocols=protocols, datasets=datasets, data_root=str(tmp_path)), home
    )
    plan = Plan(study).data("large").spec["configured"]
    prepare("large", tmp_path / "out", data_root=tmp_path, configured=plan)
    made = open_prepared(tmp_path / "out")
    shape = study.datasets.describe("large").info["image_shape"]
    assert made.splits["test"].images.shape[1:] == (3, 24, 24) == shape
    assert made.manifest["options"] == {"size": 24}
    (key,) = study.evaluations
    options = study.trained[key].method.loss_options
    expected = registry.describe("loss", "mbls").resolve(dataset="fgvc_aircraft")
    assert expected.items() <= options.items()


@pytest.mark.parametrize(
    ("kind", "file", "content", "message"),
    [
        ("cub200", "/train_test_split.txt", ["1 1", "2 0"], "lists in .*_2011.tgz name different"),
        ("fgvc_aircraft", "_variant_test.txt", ["1000000 707-320"], "lists in .* an image twice"),
        ("fgvc_aircraft", "/variants.txt", VARIANTS[:3], "images of 'A300B4', which is"),
    ],
    ids=["ids", "twice", "variant"],
)
def test_lists_that_do_not_fit_together_are_refused(
    tmp_path, monkeypatch, birds, planes, kind, file, content, message
):
    members = {"cub200": birds, "fgvc_aircraft": planes}[kind]
    (path,) = (name for name in members if name.endswith(file))
    made = expect_tiny(monkeypatch, tmp_path, kind, {**members, path: text(content)})(size=SIZE)
    with pytest.raises(DataError, match=message):
        made.build(tmp_path)


@pytest.mark.parametrize(
    ("name", "train", "test"),
    [
        ("cub200", 5_994, 5_794),
        ("fgvc_aircraft", 6_667, 3_333),
        ("svhn", 73_257, 26_032),
        ("tiny_imagenet", 100_000, 10_000),
    ],
)
def test_registered_sizes_are_those_of_the_publication_and_a_tenth_is_val(name, train, test):
    info = registry.describe("dataset", name).info
    val = train // 10
    assert info["sizes"] == {"train": train - val, "val": val, "test": test}
    assert info["drawn_val"]["val_size"] == val
