"""Shifts of ImageNet and Tiny-ImageNet, from published archives below data_root.

Images of ImageNet are scaled and cropped like those of ``imagenet``. Rows are in the sorted order
of ``wnid/file``, those of ImageNet-V2 in that of class and file name.

ImageNet-C: the test images of ``imagenet`` under 19 corruptions at severity 5, as SMART scores
them. The published sets have all 50,000 validation images; here each condition has the 40,000 of
the split ``test``, so that no calibrator is scored on images whose clean version it was fitted on.
The published images have 224 x 224 pixels; as in SMART they are scaled and cropped like the clean
images, although their authors only cropped them. The folder ``imagenet_c`` with
``corruption/severity/wnid/file`` or ``category/corruption/severity/wnid/file`` can replace the
archives. The images of the 19 conditions stay encoded and need as much disk space as the archives;
as arrays they would take 114 GB.

Tiny-ImageNet-C: the published validation images of Tiny-ImageNet, our test split, under 15
corruptions at five severities, and under four extra ones. The unpacked folders ``Tiny-ImageNet-C``
and ``Tiny-ImageNet-C-extra`` can replace the archives. It is reported that equal file names are
other images than in Tiny-ImageNet, so the rows are not those of the clean test split, and only the
number of images of each class is compared. The MD5 are those in the code of torch-uncertainty.

ImageNet-V2: three new test sets of 10,000 photographs each. They differ in the share of annotators
who chose the class: as often as in ImageNet (``matched_frequency``), at least 0.7
(``threshold07``), and the most agreed (``top_images``). The archives (1.3 GB each) can be replaced
by their unpacked folders ``imagenetv2-...-format-val``. They have folders "0" to "999", whose
numbers are the classes. There is no published checksum: the first download is trusted and recorded.

ImageNet-R and ImageNet-A: photographs, drawings and objects of 200 of the classes of ImageNet. As
in the authors' code, only the logits of the 200 classes count (``some_classes``): calibrators are
fitted on the rows of clean validation images of these classes, and scored, after a softmax over
them. Accuracy and errors are therefore not comparable with those of all classes. The images of
ImageNet-A were selected because a ResNet-50 fails on them. The MD5 are from the code of
torch-uncertainty, the classes of the sorted folders from the evaluation code of both.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from calgrid.components import registry
from calgrid.components.options import Options
from calgrid.components.registry import register
from calgrid.datasets._archives import list_members, open_archive
from calgrid.datasets._picture_archive import decode_members
from calgrid.datasets._pictures import SUFFIXES
from calgrid.datasets._shifts import EXTRA_SHIFTS, STANDARD_SHIFTS
from calgrid.datasets.base import ImageSplit, ShiftCondition, ShiftFamily, scratch_array
from calgrid.datasets.downloads import download, unpacked_or_download
from calgrid.datasets.imagenet import (
    RESIZE,
    SIZE,
    WNID_AND_FILE,
    Pictures,
    by_class,
    draw_fifth,
    in_folders,
)
from calgrid.errors import DataError

#: folder that replaces the archives of ImageNet-C
FOLDER = "imagenet_c"
#: images of each class of ImageNet-V2
PER_CLASS = 10
#: in ImageNet-V2, number of the class and file; hidden files are left out
NUMBERED = re.compile(r"(?:.*/)?(\d+)/([^/.][^/]*)")
TINY: Options = {
    "source": "Hendrycks and Dietterich, Benchmarking Neural Network Robustness, ICLR 2019",
    "role": "shift",
    "base": "tiny_imagenet",
    "severities": (1, 2, 3, 4, 5),
    "n_classes": 200,
    "image_shape": (3, 64, 64),
    "encoded": True,
    "download": True,
}
SOME_CLASSES: Options = {
    "role": "shift",
    "base": "imagenet",
    "severities": (0,),
    "n_classes": 1000,
    "image_shape": (3, 224, 224),
    "encoded": True,
    "some_classes": True,
    "download": True,
}


class CorruptedPictures(ShiftFamily):
    """Base of ImageNet-C and Tiny-ImageNet-C: images in ``corruption/severity/wnid/file``."""

    def pictures(self, places: Sequence[Path]) -> list[tuple[str, int, Pictures]]:
        """Corruption, severity and images of all conditions, in the registered order.

        Parameters
        ----------
        places : archives or folders, of which one has the images of a condition.

        Raises
        ------
        DataError : none or several have them.
        """
        wanted = list(itertools.product(self.registered["shifts"], self.registered["severities"]))
        folders = "|".join(f"{shift}/{severity}" for shift, severity in wanted)
        pattern = re.compile(rf"(?:.*/)?({folders})/{WNID_AND_FILE}")
        stores = []
        for place in places:
            store = open_archive(place, lambda name: pattern.fullmatch(name) is not None)
            stores.append((store, in_folders(store, pattern)))
        found = []
        for shift, severity in wanted:
            name = f"{shift}/{severity}"
            sets = [(store, members[name]) for store, members in stores if name in members]
            if len(sets) != 1:
                raise DataError(
                    f"{len(sets)} of {', '.join(map(str, places))} have the images of '{name}': "
                    f"each archive or folder of {self.registered['label']} must occur once."
                )
            found.append((shift, severity, Pictures(*sets[0], self.registered["n_classes"])))
        return found


@register(
    id="imagenet_c",
    source="Hendrycks and Dietterich, Benchmarking Neural Network Robustness, ICLR 2019",
    role="shift",
    label="ImageNet-C",
    base="imagenet",
    shifts=(*STANDARD_SHIFTS, *EXTRA_SHIFTS),
    severities=(5,),
    n_classes=1000,
    image_shape=(3, 224, 224),
    encoded=True,
    download=True,
    files=(
        {
            "name": "noise.tar",
            "url": "https://zenodo.org/records/2235448/files/noise.tar",
            "md5": "e80562d7f6c3f8834afb1ecf27252745",
        },
        {
            "name": "blur.tar",
            "url": "https://zenodo.org/records/2235448/files/blur.tar",
            "md5": "2d8e81fdd8e07fef67b9334fa635e45c",
        },
        {
            "name": "weather.tar",
            "url": "https://zenodo.org/records/2235448/files/weather.tar",
            "md5": "33ffea4db4d93fe4a428c40a6ce0c25d",
        },
        {
            "name": "digital.tar",
            "url": "https://zenodo.org/records/2235448/files/digital.tar",
            "md5": "89157860d7b10d5797849337ca2e5c03",
        },
        {
            "name": "extra.tar",
            "url": "https://zenodo.org/records/2235448/files/extra.tar",
            "md5": "d492dfba5fc162d8ec2c3cd8ee672984",
        },
    ),
)
class ImagenetC(CorruptedPictures):
    """Corrupted test images of ImageNet, in the order of the clean test split."""

    def build(self, data_root: Path | None, base: Mapping[str, ImageSplit]) -> list[ShiftCondition]:
        """Return the conditions in the registered order; see :class:`ShiftFamily`."""
        if data_root is not None and (data_root / FOLDER).is_dir():
            places = [data_root / FOLDER]
        else:
            places = [download(file, data_root) for file in self.registered["files"]]
        seed = registry.describe("dataset", "imagenet").options["split_seed"].default
        conditions = []
        for shift, severity, pictures in self.pictures(places):
            rows = draw_fifth(pictures.labels, seed)["test"]
            complete = len(pictures.labels) == sum(map(len, base.values()))
            if not complete or not np.array_equal(pictures.labels[rows], base["test"].labels):
                raise DataError(
                    f"{pictures.store.place} does not have exactly the validation images of "
                    f"ImageNet under '{shift}/{severity}'; complete them."
                )
            split = pictures.split(rows, self.threads)
            conditions.append(ShiftCondition(shift, severity, split))
        return conditions


class TinyImagenetCorrupted(CorruptedPictures):
    """Base of both parts of Tiny-ImageNet-C, which differ in their registered facts."""

    def build(self, data_root: Path | None, base: Mapping[str, ImageSplit]) -> list[ShiftCondition]:
        """Return the conditions, corruption by corruption, severities ascending; see
        :class:`ShiftFamily`.
        """
        (file,) = self.registered["files"]
        place = unpacked_or_download(file, data_root, file["name"].removesuffix(".tar"))
        counts = np.bincount(base["test"].labels, minlength=self.registered["n_classes"])
        conditions = []
        for shift, severity, pictures in self.pictures([place]):
            if not np.array_equal(np.bincount(pictures.labels), counts):
                raise DataError(
                    f"{place} does not have as many images of each class as the test split "
                    f"under '{shift}/{severity}'; replace it."
                )
            rows = np.arange(len(pictures.labels))
            split = pictures.split(rows, self.threads, size=64, resize=64)
            conditions.append(ShiftCondition(shift, severity, split))
        return conditions


@register(
    id="tiny_imagenet_c",
    **TINY,
    label="Tiny-ImageNet-C",
    shifts=STANDARD_SHIFTS,
    files=(
        {
            "name": "Tiny-ImageNet-C.tar",
            "url": "https://zenodo.org/records/8206060/files/Tiny-ImageNet-C.tar",
            "size": 1_794_775_040,
            "md5": "f9c9a9dbdc11469f0b850190f7ad8be1",
        },
    ),
)
class TinyImagenetC(TinyImagenetCorrupted):
    """Tiny-ImageNet under the fifteen corruptions of means."""


@register(
    id="tiny_imagenet_c_extra",
    **TINY,
    label="Tiny-ImageNet-C (extra)",
    shifts=EXTRA_SHIFTS,
    files=(
        {
            "name": "Tiny-ImageNet-C-extra.tar",
            "url": "https://zenodo.org/records/8206060/files/Tiny-ImageNet-C-extra.tar",
            "md5": "0db0588d243cf403ef93449ec52b70eb",
        },
    ),
)
class TinyImagenetCExtra(TinyImagenetCorrupted):
    """Tiny-ImageNet under the four corruptions for validation."""


@register(
    id="imagenet_v2",
    source="Recht et al., Do ImageNet Classifiers Generalize to ImageNet?, ICML 2019",
    role="shift",
    label="ImageNet-V2",
    base="imagenet",
    shifts=("matched_frequency", "threshold07", "top_images"),
    severities=(0,),
    sizes={"shift": 30_000},
    n_classes=1000,
    image_shape=(3, 224, 224),
    download=True,
    files=(
        {
            "name": "imagenetv2-matched-frequency.tar.gz",
            "url": "https://huggingface.co/datasets/vaishaal/ImageNetV2/resolve/main/imagenetv2-matched-frequency.tar.gz",
        },
        {
            "name": "imagenetv2-threshold0.7.tar.gz",
            "url": "https://huggingface.co/datasets/vaishaal/ImageNetV2/resolve/main/imagenetv2-threshold0.7.tar.gz",
        },
        {
            "name": "imagenetv2-top-images.tar.gz",
            "url": "https://huggingface.co/datasets/vaishaal/ImageNetV2/resolve/main/imagenetv2-top-images.tar.gz",
        },
    ),
)
class ImagenetV2(ShiftFamily):
    """New test images of ImageNet, in three selections."""

    def build(self, data_root: Path | None, base: Mapping[str, ImageSplit]) -> list[ShiftCondition]:
        """Return the three sets, each in the order of its archive; see :class:`ShiftFamily`."""
        n_classes = self.registered["n_classes"]
        conditions = []
        for shift, file in zip(self.registered["shifts"], self.registered["files"], strict=True):
            unpacked = f"{file['name'].removesuffix('.tar.gz')}-format-val"
            place = unpacked_or_download(file, data_root, unpacked)
            pictures = []
            for name in list_members(place):
                match = NUMBERED.fullmatch(name)
                if match and name.lower().endswith(SUFFIXES):
                    pictures.append((int(match[1]), match[2], name))
            pictures.sort()
            labels = np.array([label for label, _, _ in pictures], dtype=np.int64)
            if not np.array_equal(labels, np.repeat(np.arange(n_classes), PER_CLASS)):
                raise DataError(
                    f"{place} does not have {PER_CLASS} images of each of {n_classes:,} classes; "
                    "complete or replace it."
                )
            images = scratch_array((len(labels), 3, SIZE, SIZE), self.scratch)
            names = [name for _, _, name in pictures]
            decode_members(place, names, (SIZE, RESIZE, False), images, self.threads)
            conditions.append(ShiftCondition(shift, 0, ImageSplit(images, labels)))
        return conditions


class ImagenetSomeClasses(ShiftFamily):
    """Base of ImageNet-R and -A; ``classes_of_folders`` are the classes of the sorted folders."""

    classes_of_folders: str

    def build(self, data_root: Path | None, base: Mapping[str, ImageSplit]) -> list[ShiftCondition]:
        """Return the one condition, with the labels of ImageNet; see :class:`ShiftFamily`."""
        (file,) = self.registered["files"]
        (shift,) = self.registered["shifts"]
        classes = np.array(self.classes_of_folders.split(), dtype=np.int64)
        store = open_archive(download(file, data_root))
        pictures = Pictures(store, by_class(store), len(classes))
        pictures.labels = classes[pictures.labels]
        rows = np.arange(len(pictures.labels))
        return [ShiftCondition(shift, 0, pictures.split(rows, self.threads))]


@register(
    id="imagenet_r",
    **SOME_CLASSES,
    source="Hendrycks et al., The Many Faces of Robustness, ICCV 2021",
    label="ImageNet-R",
    shifts=("imagenet_r",),
    sizes={"shift": 30_000},
    files=(
        {
            "name": "imagenet-r.tar",
            "url": "https://people.eecs.berkeley.edu/~hendrycks/imagenet-r.tar",
            "md5": "a61312130a589d0ca1a8fca1f2bd3337",
        },
    ),
)
class ImagenetR(ImagenetSomeClasses):
    """Renditions of objects: art, cartoons, toys and others."""

    classes_of_folders = """
        1 2 4 6 8 9 11 13 22 23 26 29 31 39 47 63 71 76 79 84 90 94 96 97 99 100 105 107 113 122
        125 130 132 144 145 147 148 150 151 155 160 161 162 163 171 172 178 187 195 199 203 207
        208 219 231 232 234 235 242 245 247 250 251 254 259 260 263 265 267 269 276 277 281 288
        289 291 292 293 296 299 301 308 309 310 311 314 315 319 323 327 330 334 335 337 338 340
        341 344 347 353 355 361 362 365 366 367 368 372 388 390 393 397 401 407 413 414 425 428
        430 435 437 441 447 448 457 462 463 469 470 471 472 476 483 487 515 546 555 558 570 579
        583 587 593 594 596 609 613 617 621 629 637 657 658 701 717 724 763 768 774 776 779 780
        787 805 812 815 820 824 833 847 852 866 875 883 889 895 907 928 931 932 933 934 936 937
        943 945 947 948 949 951 953 954 957 963 965 967 980 981 983 988
    """


@register(
    id="imagenet_a",
    **SOME_CLASSES,
    source="Hendrycks et al., Natural Adversarial Examples, CVPR 2021",
    label="ImageNet-A",
    shifts=("imagenet_a",),
    files=(
        {
            "name": "imagenet-a.tar",
            "url": "https://people.eecs.berkeley.edu/~hendrycks/imagenet-a.tar",
            "md5": "c3e55429088dc681f30d81f4726b6595",
        },
    ),
)
class ImagenetA(ImagenetSomeClasses):
    """Photographs on which a ResNet-50 fails."""

    classes_of_folders = """
        6 11 13 15 17 22 23 27 30 37 39 42 47 50 57 70 71 76 79 89 90 94 96 97 99 105 107 108 110
        113 124 125 130 132 143 144 150 151 207 234 235 254 277 283 287 291 295 298 301 306 307
        308 309 310 311 313 314 315 317 319 323 324 326 327 330 334 335 336 347 361 363 372 378
        386 397 400 401 402 404 407 411 416 417 420 425 428 430 437 438 445 456 457 461 462 470
        472 483 486 488 492 496 514 516 528 530 539 542 543 549 552 557 561 562 569 572 573 575
        579 589 606 607 609 614 626 627 640 641 642 643 658 668 677 682 684 687 701 704 719 736
        746 749 752 758 763 765 768 773 774 776 779 780 786 792 797 802 803 804 813 815 820 823
        831 833 835 839 845 847 850 859 862 870 879 880 888 890 897 900 907 913 924 932 933 934
        937 943 945 947 951 954 956 957 959 971 972 980 981 984 986 987 988
    """
