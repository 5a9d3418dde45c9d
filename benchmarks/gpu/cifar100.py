"""CIFAR-100 as Parquet files of lossless WebP, from a folder of pictures per class.

::

    git clone https://github.com/cyizhuo/CIFAR-100-dataset
    python benchmarks/gpu/cifar100.py CIFAR-100-dataset data/images/cifar100_lossless

Rows are sorted by class and file name, as the original order is not in the folder. Labels are the
fine ones, which number the sorted names. The training images are in two files of half the size.
"""

import argparse
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

#: images of each of the 100 classes
COUNTS = {"train": 500, "test": 100}
#: mean and deviation of the channels of the training images, as in weiaicunzai/pytorch-cifar100
MEAN, STD = (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)


def main() -> None:
    """Write the files, and compare the images with what is known of CIFAR-100."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pictures", type=Path, help="folder with train/CLASS/ and test/CLASS/")
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for split, count in COUNTS.items():
        table, pixels = packed(options.pictures / split)
        if np.bincount(table["label"]).tolist() != [count] * 100:
            raise SystemExit(f"{options.pictures / split} must have {count} images of 100 classes.")
        if split == "train":
            mean, std = pixels.mean((0, 1, 2)) / 255, pixels.std((0, 1, 2)) / 255
            if not np.allclose([mean, std], [MEAN, STD], rtol=0, atol=1e-4):
                raise SystemExit(f"Mean {mean} and deviation {std} are not those of CIFAR-100.")
        parts = {"test": table}
        if split == "train":
            half = len(table) // 2
            parts = {"train-0": table.slice(0, half), "train-1": table.slice(half)}
        for name, part in parts.items():
            path = options.out / f"{name}.parquet"
            pq.write_table(part, path, compression="none")
            print(f"{path}: {len(part):,} images, {path.stat().st_size / 1e6:.1f} MB")


def packed(folder: Path) -> tuple[pa.Table, np.ndarray]:
    """Table of a folder, and its pixels (N, H, W, 3)."""
    rows, labels, pixels = [], [], []
    for label, group in enumerate(sorted(folder.iterdir())):
        for path in sorted(group.iterdir()):
            picture = Image.open(path).convert("RGB")
            content = io.BytesIO()
            picture.save(content, "webp", lossless=True, quality=100)
            rows.append({"bytes": content.getvalue(), "path": path.name})
            labels.append(label)
            pixels.append(np.asarray(picture))
    image = pa.array(rows, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    return pa.table({"image": image, "label": pa.array(labels, pa.int64())}), np.stack(pixels)


if __name__ == "__main__":
    main()
