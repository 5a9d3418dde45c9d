"""ImageNet-R and ImageNet-A: photographs, drawings and objects of 200 of the classes of ImageNet.

As in the authors' code, only the logits of the 200 classes count (``some_classes``): calibrators
are fitted on the rows of clean validation images of these classes, and scored, after a softmax over
them. Accuracy and errors are therefore not comparable with those of all classes. The images of
ImageNet-A were selected because a ResNet-50 fails on them.

Images are scaled and cropped like those of ImageNet. The archives are downloaded to data_root; MD5
from the code of torch-uncertainty. Rows are in the sorted order of ``wnid/file``, and the sorted
folders are the classes below, from the evaluation code of both.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from calgrid.components.options import Options
from calgrid.components.registry import register
from calgrid.datasets._archives import open_archive
from calgrid.datasets._imagenet import Pictures, by_class
from calgrid.datasets.base import ImageSplit, ShiftCondition, ShiftFamily
from calgrid.datasets.downloads import download

FACTS: Options = {
    "role": "shift",
    "base": "imagenet",
    "severities": (0,),
    "n_classes": 1000,
    "image_shape": (3, 224, 224),
    "encoded": True,
    "some_classes": True,
    "download": True,
}


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
    **FACTS,
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
    **FACTS,
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
