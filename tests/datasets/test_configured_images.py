"""Data sets of a user's own pictures: Parquet files, folders, splits, normalisation, damage."""

import os
import subprocess

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tests.conftest import is_one_sentence
from tests.datasets.pictures import (
    draw,
    encoded,
    prepared,
    sizes,
    specification,
    write_folder,
    write_parquet,
)

from calgrid.datasets import _image_files, base, image_parquet, open_prepared, prepare
from calgrid.datasets.base import stratified_order
from calgrid.datasets.encoded import decode
from calgrid.errors import ConfigError, DataError, StateError
from calgrid.study.datasets import DatasetCatalog

NAMES = ("ant", "bee", "cat")
PARQUET = {"base": "image_parquet", "val_size": 9}
FOLDERS = {"base": "image_folder", "val_size": 9}


@pytest.fixture(scope="module")
def pictures():
    return {"train": draw(60, seed=1), "test": draw(30, seed=2), "val": draw(12, seed=3)}


@pytest.fixture
def files(tmp_path, pictures):
    """A folder with the same pictures as Parquet files and as folders."""
    for role, (pixels, labels) in pictures.items():
        write_parquet(tmp_path / f"{role}.parquet", map(encoded, pixels), labels, row_group_size=17)
        write_folder(tmp_path / role, pixels, labels, NAMES)
    return tmp_path


def chw(pixels):
    return pixels.transpose(0, 3, 1, 2)


def identities(images):
    return {image.tobytes() for image in images}


def test_parquet_files_give_the_pixels_and_labels_that_were_written(files, pictures, tmp_path):
    made = prepared(files, tmp_path / "out", **PARQUET)
    assert np.array_equal(made.splits["test"].images, chw(pictures["test"][0]))
    assert np.array_equal(made.splits["test"].labels, pictures["test"][1])
    assert sizes(made) == {"train": 51, "val": 9, "test": 30}
    order = stratified_order(pictures["train"][1], 1)
    for name, rows in (("val", order[:9]), ("train", order[9:])):
        assert np.array_equal(made.splits[name].images, chw(pictures["train"][0])[np.sort(rows)])
        assert np.array_equal(made.splits[name].labels, pictures["train"][1][np.sort(rows)])
    assert (made.id, made.role, made.n_classes) == ("mine", "dataset", 3)


def test_folders_give_the_same_pictures_sorted_by_class(files, pictures, tmp_path):
    made = prepared(files, tmp_path / "out", **FOLDERS)
    pixels, labels = pictures["test"]
    order = np.argsort(labels, kind="stable")
    assert np.array_equal(made.splits["test"].images, chw(pixels)[order])
    assert np.array_equal(made.splits["test"].labels, labels[order])
    assert made.manifest["classes"] == list(NAMES)


@pytest.mark.parametrize("kind", [PARQUET, FOLDERS])
def test_many_pictures_stay_encoded_unless_arrays_are_smaller(kind, files, tmp_path, monkeypatch):
    larger = {**kind, "image_size": 16}
    arrays = prepared(files, tmp_path / "arrays", **larger)
    monkeypatch.setattr("calgrid.datasets.encoded.ENCODED_ABOVE", 0)
    made = prepared(files, tmp_path / "encoded", **larger)
    assert (made.mean, made.std) == (arrays.mean, arrays.std)
    for name, split in made.splits.items():
        assert np.array_equal(split.images[:], arrays.splits[name].images)
    names = {path.name for path in (tmp_path / "encoded").glob("*_images.*")}
    assert names == {f"{split}_images.bin" for split in ("train", "val", "test")}
    # the arrays of 8x8 pixels take less than the files
    small = prepared(files, tmp_path / "small", **kind)
    assert not list((tmp_path / "small").glob("*.bin"))
    assert isinstance(small.splits["train"].images, np.ndarray)


def test_val_is_the_beginning_of_the_shuffle_or_has_files_of_its_own(files, pictures, tmp_path):
    made = prepared(files, tmp_path / "b", **PARQUET, split="shuffled", split_seed=5)
    shuffled = made.splits["val"]
    rows = np.sort(np.random.RandomState(5).permutation(60)[:9])
    assert np.array_equal(shuffled.images, chw(pictures["train"][0])[rows])
    assert np.array_equal(shuffled.labels, pictures["train"][1][rows])
    again = prepared(files, tmp_path / "c", **PARQUET, split="shuffled", val_seed=5).splits["val"]
    assert np.array_equal(again.images, shuffled.images)
    made = prepared(files, tmp_path / "out", base="image_parquet", val="val.parquet")
    assert sizes(made) == {"train": 60, "val": 12, "test": 30}
    assert np.array_equal(made.splits["val"].images, chw(pictures["val"][0]))


@pytest.mark.parametrize("kind", ["image_parquet", "image_folder"])
def test_one_set_of_files_is_dealt_to_three_splits(files, pictures, tmp_path, kind):
    train = "train.parquet" if kind == "image_parquet" else "train"
    made = prepared(files, tmp_path / "out", base=kind, train=train, test_size=12, val_size=9)
    assert sizes(made) == {"train": 39, "val": 9, "test": 12}
    parts = [identities(split.images) for split in made.splits.values()]
    assert set.union(*parts) == identities(chw(pictures["train"][0]))
    assert np.bincount(made.splits["test"].labels).tolist() == [4, 4, 4]


def test_smaller_subsets_lie_within_larger_ones_and_leave_val_and_test_alone(files, tmp_path):
    whole, larger, smaller = (
        prepared(files, tmp_path / str(size), **PARQUET, subset=size).splits
        for size in (None, 30, 12)
    )
    parts = [identities(splits["train"].images) for splits in (smaller, larger, whole)]
    assert [len(part) for part in parts] == [12, 30, 51]
    assert parts[0] < parts[1] < parts[2]
    assert np.bincount(smaller["train"].labels).tolist() == [4, 4, 4]
    for name in ("val", "test"):
        assert np.array_equal(smaller[name].images, whole[name].images)


@pytest.mark.parametrize(
    ("image", "label"), [("img", "labels"), ("image", "fine_label"), ("picture", "kind")]
)
def test_columns_are_found_by_their_usual_names_or_named(pictures, tmp_path, image, label):
    for role in ("train", "test"):
        pixels, labels = pictures[role]
        write_parquet(tmp_path / f"{role}.parquet", map(encoded, pixels), labels, image, label)
    named = {"image_column": image, "label_column": label} if image == "picture" else {}
    made = prepared(tmp_path, tmp_path / "out", **PARQUET, **named)
    assert np.array_equal(made.splits["test"].images, chw(pictures["test"][0]))


def test_plain_bytes_are_pictures_too(files, pictures, tmp_path):
    pixels, labels = pictures["test"]
    contents = pa.array(list(map(encoded, pixels)), pa.large_binary())
    pq.write_table(
        pa.table({"image": contents, "label": labels.astype(np.int8)}), files / "test.parquet"
    )
    assert np.array_equal(
        prepared(files, tmp_path / "out", **PARQUET).splits["test"].images, chw(pixels)
    )


# facts


def test_normalisation_is_of_training_images_unless_given_and_classes_may_be_more(files, tmp_path):
    made = prepared(files, tmp_path / "own", **PARQUET)
    images = made.splits["train"].images / 255
    assert made.mean == pytest.approx(images.mean(axis=(0, 2, 3)), abs=6e-5)
    assert made.std == pytest.approx(images.std(axis=(0, 2, 3)), abs=6e-5)
    facts = {"mean": [0.1, 0.2, 0.3], "std": [1, 2, 3], "n_classes": 7}
    given = prepared(files, tmp_path / "given", **PARQUET, **facts)
    assert (given.mean, given.std, given.n_classes) == ((0.1, 0.2, 0.3), (1.0, 2.0, 3.0), 7)


def test_sums_over_chunks_are_exact(monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (50, 3, 4, 4), dtype=np.uint8)
    whole = _image_files.channel_statistics(images)
    monkeypatch.setattr(base, "CHUNK_VALUES", 7 * 48)
    assert _image_files.channel_statistics(images) == whole


def test_the_manifest_records_options_files_and_fingerprint(files, tmp_path):
    manifest = prepared(files, tmp_path / "out", **PARQUET).manifest
    found = manifest["kind"], manifest["options"]["val_size"], manifest["fingerprint"]
    assert found == ("image_parquet", 9, "0" * 16)
    assert open_prepared(tmp_path / "out", fingerprint="0" * 16).id == "mine"
    with pytest.raises(StateError, match="holds 'mine' of another configuration or code version"):
        open_prepared(tmp_path / "out", fingerprint="1" * 16)
    assert [file["path"] for file in manifest["sources"]] == ["train.parquet", "test.parquet"]
    assert manifest["sources"][0]["size"] == (files / "train.parquet").stat().st_size
    folders = prepared(files, tmp_path / "folders", **FOLDERS).manifest["sources"]
    assert [(file["path"], file["files"]) for file in folders] == [("train", 60), ("test", 30)]


def test_an_interrupted_preparation_leaves_nothing_behind(files, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_image_files, "channel_statistics", stop)
    with pytest.raises(KeyboardInterrupt):
        prepared(files, tmp_path / "out", **PARQUET)
    assert list((tmp_path / "out").iterdir()) == []


def test_pictures_are_decoded_into_a_file_and_not_into_memory(files, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(
        _image_files, "scratch_array", lambda *a: made.append(_scratch(*a)) or made[-1]
    )
    prepared(files, tmp_path / "out", **PARQUET)
    assert all(isinstance(array, np.memmap) for array in made)
    assert len(made) == 3


_scratch = _image_files.scratch_array


# sizes and formats of pictures


def one(tmp_path, content, **options):
    """The first test image of a data set whose first test picture has this content."""
    pixels, labels = draw(12, seed=4)
    rest = [encoded(picture) for picture in pixels]
    write_parquet(tmp_path / "train.parquet", rest, labels)
    others = [encoded(picture) for picture in draw(12, seed=5)[0]]
    write_parquet(tmp_path / "test.parquet", [content, *others[1:]], labels)
    made = prepared(
        tmp_path, tmp_path / "out", base="image_parquet", val_size=3, image_size=8, **options
    )
    return made.splits["test"].images[0]


def test_grey_transparent_and_indexed_pictures_become_colours(tmp_path):
    grey = np.arange(64, dtype=np.uint8).reshape(8, 8)
    assert all(np.array_equal(channel, grey) for channel in one(tmp_path, encoded(grey)))
    colours = np.zeros((8, 8, 4), dtype=np.uint8)
    colours[..., 0], colours[..., 3] = 200, 7
    assert np.array_equal(one(tmp_path, encoded(colours))[:, 0, 0], [200, 0, 0])
    Image.fromarray(colours[..., :3]).quantize(4).save(tmp_path / "p.png")
    assert np.array_equal(one(tmp_path, (tmp_path / "p.png").read_bytes())[:, 0, 0], [200, 0, 0])


@pytest.mark.parametrize(
    ("size", "resize"), [((13, 31), 10), ((31, 13), 8), ((7, 9), 9), ((8, 8), None)]
)
def test_scaling_and_cutting_are_those_of_torchvision(tmp_path, size, resize):
    transforms = pytest.importorskip("torchvision.transforms")
    pixels = np.random.default_rng(3).integers(0, 256, (*size, 3), dtype=np.uint8)
    image = one(tmp_path, encoded(pixels), **({"resize": resize} if resize else {}))
    theirs = transforms.CenterCrop(8)(transforms.Resize(resize or 8)(Image.fromarray(pixels)))
    assert np.array_equal(image, np.asarray(theirs).transpose(2, 0, 1))


def test_pictures_of_several_sizes_need_a_size(files, tmp_path, refuses):
    pixels, labels = draw(30, size=9, seed=6)
    contents = [*map(encoded, draw(29, seed=2)[0]), encoded(pixels[0])]
    write_parquet(files / "test.parquet", contents, labels)
    message = "test.parquet: row 29 (counted from 0) has 9x9 pixels, the images before it have 8x8"
    with refuses(DataError, f"{message}; give image_size"):
        prepared(files, tmp_path / "out", **PARQUET)


# refusals


def spoil(files, content):
    pixels, labels = draw(30, seed=2)
    contents = list(map(encoded, pixels))
    contents[3] = content
    write_parquet(files / "test.parquet", contents, labels)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not a picture", "is not an image (BMP, GIF, JPEG"),
        (b"", "is not an image"),
        (encoded(draw(1)[0][0])[:60], "cannot be decoded"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n", "is not an image"),
        (None, "has no image bytes in 'image'"),
        (encoded(np.full((8, 8), 40_000, np.uint16)), "has more than 8 bits per channel"),
    ],
    ids=["text", "empty", "cut off", "postscript", "null", "deep"],
)
def test_pictures_that_cannot_be_decoded_are_named(files, tmp_path, refuses, content, message):
    spoil(files, content)
    with refuses(DataError, f"test.parquet: row 3 (counted from 0) {message}"):
        prepared(files, tmp_path / "out", threads=3, **PARQUET)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_damaged_pictures_of_all_splits_are_named_at_once_up_to_twenty(files, tmp_path):
    damaged = [
        files / name for name in ("train/ant/000.png", "train/bee/001.png", "test/bee/001.png")
    ]
    for path in damaged:
        path.write_bytes(b"broken")
    with pytest.raises(DataError, match=r"^3 images cannot be used \(.*is not an image") as caught:
        prepared(files, tmp_path / "out", **FOLDERS)
    assert is_one_sentence(str(caught.value))
    for path in damaged:
        assert str(path) in str(caught.value)
    for path in (files / "train").rglob("*.png"):
        path.write_bytes(b"broken")
    with pytest.raises(DataError, match=r"^At least 20 images cannot be used \(") as caught:
        prepared(files, tmp_path / "out", **FOLDERS)
    assert str(caught.value).count(".png") == 21


@pytest.mark.parametrize("kind", [PARQUET, FOLDERS], ids=["parquet", "folder"])
def test_preparing_twice_gives_equal_bytes_with_any_threads_and_no_scratch(kind, files, tmp_path):
    for threads in (1, 3):
        prepared(files, tmp_path / str(threads), threads=threads, **kind)
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "13"
    )
    assert first == second
    assert len(first) == 7


def test_pictures_that_are_or_would_be_too_large_are_refused(refuses, files, tmp_path, monkeypatch):
    wide = encoded(np.zeros((1, 20_000), np.uint8))
    message = "wide.png has 20000 x 1 pixels, which would be scaled to 81920000 x 4096; crop it"
    with refuses(DataError, message):
        decode(wide, 8, 4096, "wide.png")
    monkeypatch.setattr("calgrid.datasets.encoded.MAX_PIXELS", 50)
    with refuses(DataError, "cannot be decoded (8 x 8 pixels are too many)"):
        prepared(files, tmp_path / "out", **PARQUET)


def test_a_folder_that_is_no_folder_of_class_folders_is_refused(files, tmp_path, refuses):
    with refuses(DataError, "train/bee has 20 images, but no folder of a class"):
        prepared(files, tmp_path / "out", train="train/bee", **FOLDERS)
    (files / "high/train").mkdir(parents=True)
    (files / "train").rename(files / "high/train/birds")
    with refuses(DataError, "high/train has images of one class only", "one folder per class"):
        prepared(files, tmp_path / "out", train="high/train", test_size=9, **FOLDERS)


def test_a_link_to_what_is_no_file_is_refused(files, tmp_path, refuses):
    link = files / "test/bee/001.png"
    link.unlink()
    link.symlink_to("/proc/self/mem")
    with refuses(ConfigError, "test/bee/001.png' cannot be read (Input/output error)"):
        prepared(files, tmp_path / "out", **FOLDERS)
    link.unlink()
    os.mkfifo(link)
    with refuses(ConfigError, "001.png' is a FIFO and no regular file"):
        prepared(files, tmp_path / "out", **FOLDERS)


@pytest.mark.parametrize("keep", [0, 10, -20])
def test_a_damaged_parquet_file_is_named(files, tmp_path, keep):
    path = files / "test.parquet"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"test.parquet is not a readable Parquet file"):
        prepared(files, tmp_path / "out", **PARQUET)


def test_a_folder_of_save_to_disk_gets_the_line_that_converts_it(files, tmp_path):
    (files / "test.parquet").unlink()
    (files / "test.parquet").mkdir()
    with pytest.raises(DataError, match=r"is a folder, .*load_from_disk\(.*parquet'\).to_parquet"):
        prepared(files, tmp_path / "out", **PARQUET)


PNG = encoded(draw(1, seed=9)[0][0])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"image": None, "picture": [PNG]}, "or 'img' (it has label, picture); ... image_column"),
        ({"img": [PNG]}, "has several of the columns 'image' or 'img'"),
        ({"label": None, "kind": [0]}, "'labels' or 'fine_label' ... its name as label_column"),
        ({"image": ["a.png"]}, "column 'image' ... bytes or structs with a field 'bytes'"),
        ({"image": [{"path": "a.png"}]}, "must have bytes or structs with a field 'bytes'"),
        ({"label": ["cat"]}, "column 'label' ... must have an integer label in every row"),
        ({"label": pa.array([None], pa.int64())}, "must have an integer label in every row"),
        ({"label": [-1]}, "row 0 (counted from 0) has the label -1, but there are 3 classes"),
        ({"label": [3]}, "row 0 (counted from 0) has the label 3, but there are 3 classes"),
        ({"image": pa.array([], pa.binary()), "label": pa.array([], pa.int64())}, "no images"),
    ],
)
def test_columns_that_do_not_fit_are_named(files, tmp_path, refuses, table, message):
    table = {"image": [PNG], "label": [0], **table}
    given = {name: values for name, values in table.items() if values is not None}
    pq.write_table(pa.table(given), files / "test.parquet")
    with refuses(DataError, "test.parquet", message):
        prepared(files, tmp_path / "out", **PARQUET)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"val_size": 60}, "val_size is 60, but the training files have 60 rows"),
        ({"like": "cifar10"}, "val_size is 5000, but the training files have 60 rows"),
        ({"val_size": 9, "test_size": 60}, "test_size is 60, but the training files have 60 rows"),
        ({"val_size": 9, "subset": 52}, "subset is 52, but 51 training rows are left"),
        (
            {"val_size": 9, "n_classes": 2},
            "row 2 (counted from 0) has the label 2, but there are 2",
        ),
        (
            {"val_size": 9, "base": "image_folder", "n_classes": 2},
            "train has images of 3 classes, but n_classes is 2",
        ),
    ],
)
def test_what_labels_do_not_hold_cannot_be_asked_for(files, refuses, monkeypatch, options, message):
    monkeypatch.setattr(_image_files, "decode", None)  # no picture is read
    book = DatasetCatalog({"mine": {"base": "image_parquet", **options}}, str(files))
    with refuses(ConfigError, "datasets.mine: ", message):
        book.sizes("mine")


def test_labels_that_fit_pass_the_check(files):
    book = DatasetCatalog({"mine": PARQUET, "folders": FOLDERS}, str(files))
    found = [book.sizes(name) for name in ("mine", "folders")]
    assert found == [{"train": 51, "val": 9, "test": 30}] * 2
    assert book.sizes("cifar10") == {"train": 45_000, "val": 5_000, "test": 10_000}
    assert book.sizes("imagenet_sketch") is None
    assert book.class_counts("folders")["val"] == {"ant": 3, "bee": 3, "cat": 3}
    assert book.class_counts("mine")["train"] == {"0": 17, "1": 17, "2": 17}


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, 2, 0, 1, 2**62], "the label 4611686018427387904, but none with 3; correct"),
        ([1, 2, 3] * 2, "has images with the label 3, but none with 0; ... or give n_classes"),
        (np.arange(6, dtype=np.uint64) + np.uint64(2**63), "must have labels from 0 to K - 1"),
    ],
    ids=["2^62", "from 1", "64 bits without sign"],
)
def test_a_class_without_training_images_must_be_stated(files, tmp_path, refuses, labels, message):
    write_parquet(files / "train.parquet", map(encoded, draw(6)[0]), labels)
    with refuses(DataError, message):
        prepared(files, tmp_path / "out", base="image_parquet", val_size=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("mv test/ant test/dog", "the class 'dog' has no folder in the training"),
        ("mkdir train/dog", "dog contains no image"),
        ("rm -r test; touch test", "test must be a folder with one folder per class; unpack it"),
    ],
)
def test_folders_that_do_not_fit_are_named(files, tmp_path, refuses, change, message):
    subprocess.run(change, shell=True, check=True, cwd=files)
    with refuses(DataError, message):
        prepared(files, tmp_path / "out", **FOLDERS)


def test_other_files_are_left_out_and_counted_and_links_followed(files, tmp_path, capsys):
    for name in ("1.heic", "2.HEIC", "3.jfif", "a/4"):
        path = files / "train" / "cat" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    prepared(files, tmp_path / "out", **FOLDERS)
    said = "train: files of class folders are left out, 2 .heic, 1 .jfif, 1 without suffix;"
    assert f"Warning: {files}/{said} images must be .bmp, .gif, .jpeg" in capsys.readouterr().err
    (files / "train" / "cat").rename(tmp_path / "elsewhere")
    (files / "train" / "cat").symlink_to(tmp_path / "elsewhere")
    (files / "train" / "ant" / "boxes.txt").write_text("0 0 8 8")
    (files / "train" / ".cache").mkdir()
    (files / "train" / "README.md").write_text("about")
    made = prepared(files, tmp_path / "linked", **FOLDERS)
    assert sum(len(made.splits[name]) for name in ("train", "val")) == 60


def test_a_constant_channel_needs_constants(files, tmp_path):
    black = np.zeros((12, 8, 8, 3), dtype=np.uint8)
    black[:, 0, 0, 0] = np.arange(12)
    write_parquet(files / "train.parquet", map(encoded, black), np.arange(12) % 3)
    with pytest.raises(DataError, match="training images is constant; give mean and std"):
        prepared(files, tmp_path / "out", **PARQUET)


@pytest.mark.parametrize(
    ("kind", "first"),
    [(PARQUET, "rows 11 and 64"), (FOLDERS, r"/cat/011\.png and .*/bee/004\.png")],
)
def test_duplicates_are_refused_with_their_place_or_counted(files, pictures, tmp_path, kind, first):
    pixels, labels = draw(30, seed=2)
    pixels[4] = pictures["train"][0][11]
    write_parquet(files / "test.parquet", map(encoded, pixels), labels)
    write_folder(files / "test", pixels, labels, NAMES)
    with pytest.raises(DataError, match=rf"1 images of equal .*{first}.* duplicates: count"):
        prepared(files, tmp_path / "out", **kind)
    made = prepared(files, tmp_path / "out", **kind, duplicates="count")
    (pair,) = made.manifest["duplicates"]
    assert (pair in ("train/test", "val/test"), made.manifest["duplicates"][pair]) == (True, 1)


# between planning, preparation and training


def test_a_specification_is_for_one_data_set_and_a_kind_needs_one(files, tmp_path):
    with pytest.raises(ConfigError, match="'image_parquet' is a kind of data set; define a"):
        prepare("image_parquet", tmp_path / "out")
    with pytest.raises(ConfigError, match="The specification is that of 'mine', not of 'yours'"):
        prepare(
            "yours", tmp_path / "out", data_root=files, configured=specification(files, **PARQUET)
        )


def test_unneeded_row_groups_are_not_read(files, monkeypatch):
    read = []
    original = pq.ParquetFile.iter_batches

    def iter_batches(file, size, row_groups, columns):
        read.extend(row_groups)
        return original(file, size, row_groups, columns)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", iter_batches)
    source = image_parquet.ImageParquet(val_size=1).open(files, ["train.parquet"], None)
    rows = np.array([0, 16, 40])  # groups of 17 rows
    contents = list(source.read(rows))
    assert [where for where, _ in contents] == [
        f"{files / 'train.parquet'}: row {row} (counted from 0)" for row in (0, 16, 40)
    ]
    assert read == [0, 2]


def shifted(files, out, base, **options):
    """Prepare Parquet files as a shift of the data set ``mine`` in the folder ``base``."""
    entry = {"base": "shifted_parquet", "of": "mine", "shift": "hard", **options}
    plan = specification(files, "hard", {"mine": PARQUET}, **entry)
    prepare("hard", out, data_root=files, base_dir=base, configured=plan)
    return open_prepared(out).verify()


def test_pictures_under_a_shift_are_those_of_their_files(files, pictures, tmp_path, refuses):
    prepared(files, tmp_path / "mine", **PARQUET)
    names = ["val.parquet", "test.parquet"]
    made = shifted(files, tmp_path / "hard", tmp_path / "mine", test=names)
    pixels = np.concatenate([pictures[role][0] for role in ("val", "test")])
    labels = np.concatenate([pictures[role][1] for role in ("val", "test")])
    assert np.array_equal(made.splits["shift"].images, chw(pixels))
    assert np.array_equal(made.splits["shift"].labels, labels)
    assert [(each.shift, each.severity, each.stop) for each in made.conditions] == [("hard", 0, 42)]
    assert [file["path"] for file in made.manifest["sources"]] == names
    write_parquet(files / "val.parquet", [encoded(pixels[0][:5])], [0])
    with refuses(DataError, "pixels, those of 'mine' have", "use images of the same size"):
        shifted(files, tmp_path / "other", tmp_path / "mine", test="val.parquet")
    with refuses(ConfigError, "datasets.hard.test must be a path below data_root, got '../x'"):
        shifted(files, tmp_path / "other", tmp_path / "mine", test="../x")
