"""ImageNet-C from tiny archives and folders in the original layouts."""

import shutil

import numpy as np
import pytest
from tests.datasets.archives import expect, write_files, write_tar
from tests.datasets.pictures import colour, plain

from calgrid.components import registry
from calgrid.datasets import base, downloads, encoded, open_prepared, prepare
from calgrid.datasets.imagenet import Imagenet
from calgrid.datasets.imagenet_c import ImagenetC
from calgrid.errors import DataError, StateError
from calgrid.study.datasets import DatasetCatalog

#: three of the corruptions, in their archives
ARCHIVES = {"noise.tar": ["gaussian_noise"], "blur.tar": ["motion_blur"], "weather.tar": ["fog"]}
SHIFTS = ("gaussian_noise", "motion_blur", "fog")
WNIDS = ["n02000001", "n02000002", "n02000003"]
COUNT = 12
NAMES = sorted(
    f"{WNIDS[number % 3]}/ILSVRC2012_val_{number:08d}.JPEG" for number in range(1, COUNT + 1)
)
LABELS = [WNIDS.index(name.split("/")[0]) for name in NAMES]


@pytest.fixture(scope="module")
def conditions():
    """Severities 4 and 5 of each corruption: (corruption, severity) -> pictures by name."""
    places = [(shift, severity) for shift in SHIFTS for severity in (4, 5)]
    return {
        place: {name: plain([number, row], (224, 224)) for row, name in enumerate(NAMES)}
        for number, place in enumerate(places)
    }


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A data root with the clean pictures."""
    write_files(
        tmp_path / "imagenet" / "val",
        {name: plain(1000 + row, (60, 60)) for row, name in enumerate(NAMES)},
    )
    expect(monkeypatch, Imagenet, [], n_classes=3, sizes={"val": 2, "test": 10})
    prepare("imagenet", tmp_path / "imagenet_prepared", data_root=tmp_path)
    return tmp_path


def pack(root, monkeypatch, conditions, prefix=""):
    paths = []
    for archive, shifts in ARCHIVES.items():
        members = {
            f"{prefix}{shift}/{severity}/{name}": content
            for (shift, severity), pictures in conditions.items()
            if shift in shifts
            for name, content in reversed(pictures.items())
        }
        paths.append(write_tar(root / archive, members, "w"))
    expect(monkeypatch, ImagenetC, paths, n_classes=3, shifts=SHIFTS)


def unpack(root, monkeypatch, conditions, categories):
    for (shift, severity), pictures in conditions.items():
        write_files(
            root / "imagenet_c" / categories.get(shift, "") / shift / str(severity), pictures
        )
    expect(monkeypatch, ImagenetC, [], n_classes=3, shifts=SHIFTS)


def prepared(root):
    prepare("imagenet_c", root / "out", data_root=root, base_dir=root / "imagenet_prepared")
    return open_prepared(root / "out").verify()


def assert_conditions(made, conditions):
    rows = np.sort(np.random.RandomState(1).permutation(COUNT)[COUNT // 5 :])
    found = [(each.shift, each.severity, each.stop - each.start) for each in made.conditions]
    assert found == [(shift, 5, 10) for shift in SHIFTS]
    split = made.splits["shift"]
    assert split.labels.tolist() == [LABELS[row] for row in rows] * 3
    for condition in made.conditions:
        pictures = conditions[condition.shift, 5]
        colours = np.array([colour(pictures[NAMES[row]]) for row in rows])
        assert (split.images[condition.start : condition.stop] == colours[:, :, None, None]).all()


@pytest.mark.parametrize("prefix", ["./", "noise/"])
def test_archives_give_the_test_pictures_at_severity_5(root, monkeypatch, conditions, prefix):
    pack(root, monkeypatch, conditions, prefix)
    assert_conditions(prepared(root), conditions)


@pytest.mark.parametrize("categories", [{"fog": "weather"}, dict.fromkeys(SHIFTS, "all")])
def test_folders_of_both_depths_give_the_same(root, monkeypatch, conditions, categories):
    unpack(root, monkeypatch, conditions, categories)
    assert_conditions(prepared(root), conditions)


def test_few_pictures_are_in_memory_at_once_and_bytes_are_the_same(root, monkeypatch, conditions):
    pack(root, monkeypatch, conditions)
    whole = prepared(root).manifest
    monkeypatch.setattr(base, "CHUNK_VALUES", 3 * 224 * 224)
    seen = []
    original = ImagenetC.build

    def build(self, *arguments):
        made = list(original(self, *arguments))
        kind = type(made[0].split.images)
        read = kind.__getitem__
        monkeypatch.setattr(
            kind, "__getitem__", lambda images, part: seen.append(read(images, part)) or seen[-1]
        )
        return made

    monkeypatch.setattr(ImagenetC, "build", build)
    assert prepared(root).manifest == whole
    assert {len(part) for part in seen} == {1}
    assert len(seen) == 10 * 3


def test_many_pictures_stay_encoded_with_the_same_pixels(root, monkeypatch, conditions, refuses):
    unpack(root, monkeypatch, conditions, {})
    arrays = np.array(prepared(root).splits["shift"].images)
    shutil.rmtree(root / "out")
    monkeypatch.setattr(encoded, "ENCODED_ABOVE", 0)
    made = prepared(root)
    assert_conditions(made, conditions)
    images = open_prepared(root / "out", threads=3).splits["shift"].images
    assert np.array_equal(images[:], arrays)
    rows = np.array([25, 3, 3, 17])
    assert np.array_equal(images[rows], arrays[rows])
    disk = sum(path.stat().st_size for path in (root / "out").glob("images*"))
    suffixes = {path.suffix for path in (root / "out").glob("images*")}
    assert suffixes == {".bin", ".npy"}  # the second are the places
    published = sum(path.stat().st_size for path in (root / "imagenet_c").rglob("*.JPEG"))
    assert disk < 1.2 * published < arrays.nbytes
    content = (root / "out" / "images.bin").read_bytes()
    (root / "out" / "images.bin").write_bytes(content[:-1])
    with refuses(DataError, "images.bin does not have the size in its manifest"):
        open_prepared(root / "out")
    (root / "out" / "images.bin").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(StateError, match="is damaged"):
        open_prepared(root / "out").verify()


def test_a_damaged_picture_is_named_if_it_stays_encoded(root, monkeypatch, conditions, refuses):
    unpack(root, monkeypatch, conditions, {})
    path = root / "imagenet_c" / "fog" / "5" / sorted(NAMES)[-1]
    path.write_bytes(path.read_bytes()[:-200])
    monkeypatch.setattr(encoded, "ENCODED_ABOVE", 0)
    with refuses(DataError, "'fog/5/n02000003/ILSV", f"in {root / 'imagenet_c'} cannot be decoded"):
        prepared(root)
    assert not (root / "out" / "manifest.json").exists()


def test_it_belongs_to_the_rows_of_imagenet_and_not_to_those_of_a_variant():
    assert "imagenet_c" in registry.describe("dataset", "imagenet").info["families"]
    book = DatasetCatalog({"second": {"base": "imagenet", "split_seed": 5}})
    assert book.families("second") == ()


def test_what_cannot_be_fetched_is_named_with_its_place(root, monkeypatch, refuses):
    monkeypatch.setattr(downloads, "SCHEMES", ())
    with refuses(
        DataError, "noise.tar (md5 e80562d7f6c3f8834afb1ecf27252745) from https", "by hand"
    ):
        prepared(root)


def test_a_condition_missing_or_twice_there_is_named(root, monkeypatch, conditions, refuses):
    fewer = {place: conditions[place] for place in conditions if place != ("fog", 5)}
    unpack(root, monkeypatch, fewer, {})
    with refuses(DataError, f"0 of {root / 'imagenet_c'} have the images of 'fog/5': each"):
        prepared(root)
    unpack(root, monkeypatch, conditions, {})
    unpack(root, monkeypatch, conditions, {"motion_blur": "blur"})
    with refuses(
        DataError, "same image twice, 'blur/motion_blur/5/n02000001", "and 'motion_blur/5/n02"
    ):
        prepared(root)


def test_a_picture_that_is_missing_is_noticed(root, monkeypatch, conditions, refuses):
    unpack(root, monkeypatch, conditions, {})
    # the last one: those before it are drawn as before
    (root / "imagenet_c" / "fog" / "5" / NAMES[-1]).unlink()
    with refuses(DataError, "have exactly the validation images of ImageNet under 'fog/5'"):
        prepared(root)
