"""The ImageNet family from tiny archives and folders in the original layouts."""

import io

import numpy as np
import pytest
import scipy.io
import torchvision
from PIL import Image
from tests.datasets.archives import expect, write_files, write_tar, write_zip
from tests.datasets.pictures import colour, encoded, plain, sizes

from calgrid.datasets import open_prepared, prepare
from calgrid.datasets._archives import open_archive
from calgrid.datasets._imagenet import draw_fifth
from calgrid.datasets.imagenet import META, TRUTH, Imagenet, ImagenetLt
from calgrid.datasets.imagenet_sketch import ImagenetSketch
from calgrid.errors import DataError
from calgrid.plan.costs import image_counts
from calgrid.study.study import Study

#: numbers of the devkit from 1: another order than the sorted one; the fourth is no class but a
#: group of classes
SYNSETS = ["n02000003", "n02000001", "n02000002", "n01000000"]
CLASSES = sorted(SYNSETS[:3])
COUNT = 20
SIZES = {"val": 4, "test": 16}


def jpeg(seed):
    """A picture of one colour, of its own size."""
    return plain(seed, np.random.default_rng(seed).integers(40, 60, 2))


@pytest.fixture(scope="module")
def pictures():
    """File name -> content, in the order of the numbers in the names."""
    return {f"ILSVRC2012_val_{number:08d}.JPEG": jpeg(number) for number in range(1, COUNT + 1)}


def numbers():
    """Ground truth: the devkit's number of each picture."""
    return [number % 3 + 1 for number in range(COUNT)]


def wnid_of(row):
    return SYNSETS[numbers()[row] - 1]


def devkit():
    kind = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("num_children", "O")]
    table = np.array(
        [(n, wnid, "a, b", 0 if n < 4 else 3) for n, wnid in enumerate(SYNSETS, 1)], dtype=kind
    )
    stream = io.BytesIO()
    scipy.io.savemat(stream, {"synsets": table[:, None]})
    return {META: stream.getvalue(), TRUTH: "\n".join(map(str, numbers())).encode() + b"\n"}


def expect_tiny(monkeypatch, cls, paths=(), sizes=SIZES, **changes):
    changes |= {"n_classes": 3} if sizes is None else {"n_classes": 3, "sizes": sizes}
    expect(monkeypatch, cls, paths, **changes)


@pytest.fixture
def archives(tmp_path, monkeypatch, pictures):
    """The published archives, the pictures in any order."""
    root = tmp_path / "archives"
    tar = write_tar(root / "ILSVRC2012_img_val.tar", dict(reversed(pictures.items())), "w")
    expect_tiny(
        monkeypatch, Imagenet, [tar, write_tar(root / "ILSVRC2012_devkit_t12.tar.gz", devkit())]
    )
    return root


@pytest.fixture
def folder(tmp_path, monkeypatch, pictures):
    members = {
        f"imagenet/val/{wnid_of(row)}/{name}": content
        for row, (name, content) in enumerate(pictures.items())
    }
    expect_tiny(monkeypatch, Imagenet)
    return write_files(tmp_path / "folder", {**members, "imagenet/val/n02000001/.hidden.JPEG": b""})


def expected(pictures):
    """Colours and labels in the sorted order of the paths."""
    rows = sorted((wnid_of(row), name) for row, name in enumerate(pictures))
    return np.array([colour(pictures[name]) for _, name in rows]), [
        CLASSES.index(wnid) for wnid, _ in rows
    ]


def assert_rows(splits, pictures):
    colours, labels = expected(pictures)
    rows = np.concatenate([splits[name].rows for name in ("val", "test")])
    assert np.array_equal(np.sort(rows), np.arange(COUNT))
    for split in splits.values():
        assert split.images.shape[1:] == (3, 224, 224)
        assert split.labels.tolist() == [labels[row] for row in split.rows]
        assert (split.images == colours[split.rows][:, :, None, None]).all()


def test_archives_give_sorted_paths_and_classes(archives, pictures):
    assert_rows(Imagenet().build(archives), pictures)


@pytest.mark.parametrize("place", ["imagenet/val", "val"])
def test_a_folder_gives_the_same_rows(folder, pictures, place):
    (folder / "imagenet" / "val").rename(folder / "moved")
    (folder / "moved").rename(folder / place)
    assert_rows(Imagenet().build(folder), pictures)


def test_a_fifth_is_drawn_by_the_seed(archives):
    labels = np.zeros(50_000, np.int64)
    first, again, other = (draw_fifth(labels, seed) for seed in (1, 1, 2))
    assert (len(first["val"]), len(first["test"])) == (10_000, 40_000)
    assert len(np.intersect1d(first["val"], first["test"])) == 0
    assert np.array_equal(first["val"], again["val"])
    assert not np.array_equal(first["val"], other["val"])
    mine, plain = Imagenet(split_seed=5).build(archives)["val"], Imagenet().build(archives)["val"]
    assert not np.array_equal(mine.rows, plain.rows)


@pytest.mark.parametrize(
    "missing", ["ILSVRC2012_img_val.tar", "ILSVRC2012_devkit_t12.tar.gz", None]
)
def test_what_no_program_can_download_is_asked_for_in_one_sentence(tmp_path, refuses, missing):
    with refuses(
        DataError,
        "put ILSVRC2012_img_val.tar of 6,744,924,160 bytes (md5 "
        "29b22e2961454d5413ddabcf34fc5622) from",
        "and ILSVRC2012_devkit_t12.tar.gz (md5 fa75699e90414af021442c21a62c3abf)",
        "imagenet/val, in one folder per WordNet id",
    ):
        Imagenet().build(None if missing is None else tmp_path)


def test_a_folder_without_all_pictures_or_classes_is_refused(folder, refuses):
    first, *rest = (folder / "imagenet" / "val" / "n02000003").iterdir()
    first.unlink()
    with refuses(DataError, "'val': 3, 'test': 16", "the source is incomplete"):
        prepare("imagenet", folder / "out", data_root=folder)
    for path in rest:
        path.unlink()
    with refuses(DataError, "has images of 2 classes instead of 3"):
        Imagenet().build(folder)


def test_a_devkit_of_another_content_is_refused(tmp_path, monkeypatch, pictures, refuses):
    tar = write_tar(tmp_path / "ILSVRC2012_img_val.tar", pictures, "w")
    for change, message in (
        ({META: b"nothing"}, "has no valid ground truth and class table"),
        ({TRUTH: b"1\n2\n"}, "has 20 images"),
        ({TRUTH: b"7\n" * COUNT}, "has no valid ground truth and class table"),
    ):
        kit = write_tar(tmp_path / "ILSVRC2012_devkit_t12.tar.gz", {**devkit(), **change})
        expect_tiny(monkeypatch, Imagenet, [tar, kit])
        with refuses(DataError, message):
            Imagenet().build(tmp_path)


# ImageNet-LT and ImageNet-Sketch


def test_imagenet_lt_is_imagenet_under_another_draw_with_a_warning(archives, monkeypatch, pictures):
    expect_tiny(
        monkeypatch, ImagenetLt, [archives / file["name"] for file in Imagenet.registered["files"]]
    )
    second = ImagenetLt().build(archives)
    assert_rows(second, pictures)
    assert not np.array_equal(Imagenet().build(archives)["val"].rows, second["val"].rows)
    prepare("imagenet_lt", archives / "out", data_root=archives)
    assert "no class is rare" in open_prepared(archives / "out").manifest["warning"]


@pytest.fixture
def members(monkeypatch, pictures):
    """Drawings by their names in the archive, in the order of rows."""
    expect_tiny(monkeypatch, ImagenetSketch, sizes=None, files=ImagenetSketch.registered["files"])
    return {
        f"sketch/{wnid_of(row)}/sketch_{row:02d}.JPEG": content
        for row, content in enumerate(pictures.values())
    }


@pytest.mark.parametrize("packed", [True, False])
def test_drawings_come_from_the_archive_or_a_folder(tmp_path, members, packed):
    if packed:
        write_zip(
            tmp_path / "ImageNet-Sketch.zip",
            {**dict(reversed(members.items())), "sketch/readme.txt": b""},
        )
    else:
        write_files(tmp_path / "imagenet_sketch", members)
    prepare("imagenet_sketch", tmp_path / "out", data_root=tmp_path)
    made = open_prepared(tmp_path / "out").verify()
    assert sizes(made) == SIZES
    assert_rows(
        ImagenetSketch().build(tmp_path),
        {f"{name[-7:]}": content for name, content in members.items()},
    )
    (source,) = made.manifest["sources"]
    assert set(source) == ({"path", "size", "sha256"} if packed else {"path", "files"})


def test_an_archive_of_drawings_is_trusted_once(tmp_path, members, refuses):
    archive = write_zip(tmp_path / "ImageNet-Sketch.zip", members)
    ImagenetSketch().build(tmp_path)
    write_zip(archive, {**members, "readme.txt": b""})
    with refuses(DataError, "ImageNet-Sketch.zip has changed since its first use"):
        ImagenetSketch().build(tmp_path)


def test_a_picture_that_is_there_twice_is_refused(tmp_path, members, refuses):
    content = next(iter(members.values()))
    write_zip(
        tmp_path / "ImageNet-Sketch.zip",
        {f"{top}/n02000001/a.JPEG": content for top in ("one", "two")},
    )
    with refuses(DataError, "image twice, 'one/n02000001/a.JPEG' and 'two/n02000001/a.JPEG'"):
        ImagenetSketch().build(tmp_path)


# in a study


def test_no_training_images_are_counted_where_there_are_none(make_config, home):
    study = Study(make_config(), home)
    for name in ("imagenet", "imagenet_lt"):
        assert image_counts(study, name) == {"train": 0, "val": 10_000, "test": 40_000}


# files by name


@pytest.mark.parametrize("kind", ["folder", "tar", "zip"])
def test_files_are_read_in_any_order(tmp_path, kind):
    members = {"a/b.txt": b"1", "c.txt": b"22", "a/d/e.txt": b"333"}
    place = tmp_path / "store"
    if kind == "folder":
        write_files(place, members)
    elif kind == "tar":
        write_tar(place, {f"./{name}": content for name, content in members.items()}, "w")
    else:
        write_zip(place, members)
    store = open_archive(place)
    assert sorted(store.sizes) == sorted(members)
    assert {name: store.read(name) for name in reversed(members)} == members


def test_damaged_stores_are_named(tmp_path, refuses):
    content = np.random.default_rng(0).bytes(20_000)
    (tmp_path / "a").write_bytes(content)
    with refuses(DataError, "is damaged"):
        open_archive(tmp_path / "a")
    store = open_archive(write_tar(tmp_path / "b.tar", {"one": content}, "w"))
    (tmp_path / "b.tar").write_bytes((tmp_path / "b.tar").read_bytes()[:10_000])
    with refuses(DataError, "b.tar is truncated within 'one'"):
        store.read("one")
    path = write_zip(tmp_path / "c.zip", {"one": content})
    whole = path.read_bytes()
    path.write_bytes(whole[:5_000] + bytes(100) + whole[5_100:])
    with refuses(DataError, "'one' in", "c.zip is damaged"):
        open_archive(path).read("one")


# presets of weights


@pytest.mark.parametrize(
    ("name", "options"), [("ResNet50", {}), ("Swin_B", {"resize": 238, "interpolation": "bicubic"})]
)
def test_options_give_the_transform_that_weights_are_published_with(name, options, folder):
    preset = getattr(torchvision.models, f"{name}_Weights").IMAGENET1K_V1.transforms()
    rng = np.random.default_rng(0)
    picture = rng.integers(0, 256, (300, 411, 3), dtype=np.uint8)
    path = sorted((folder / "imagenet" / "val" / CLASSES[0]).glob("I*.JPEG"))[0]
    path.write_bytes(encoded(picture, "PNG"))
    splits = Imagenet(**options).build(folder)
    images = {
        row: image
        for split in splits.values()
        for row, image in zip(split.rows, split.images, strict=True)
    }
    scaled = torchvision.transforms.functional.resize(
        Image.fromarray(picture),
        preset.resize_size,
        interpolation=preset.interpolation,
        antialias=preset.antialias,
    )
    cut = torchvision.transforms.functional.center_crop(scaled, preset.crop_size)
    assert np.array_equal(images[0], np.asarray(cut).transpose(2, 0, 1))
