"""Tiny data sets of encoded pictures, as users have them: Parquet files and folders."""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from tests.datasets.archives import write_files

from calgrid.datasets import open_prepared, prepare
from calgrid.study.datasets import PLANNED_FACTS, DatasetCatalog


def encoded(pixels, kind="PNG", **options):
    """Bytes of a picture; ``pixels`` (H, W, 3) or (H, W) uint8."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind, **options)
    return stream.getvalue()


def plain(seed, size, grey=False):
    """A JPEG of one colour and of ``size`` (H, W), which the compression keeps."""
    colour = np.random.default_rng(seed).integers(0, 256, 1 if grey else 3, dtype=np.uint8)
    pixels = np.full(size, colour[0]) if grey else np.tile(colour, (*size, 1))
    return encoded(pixels, "JPEG", quality=100, subsampling=-1 if grey else 0)


def colour(content):
    """Colour of a picture of one colour, as Pillow decodes it."""
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))[10, 10]


def draw(count, classes=3, size=8, seed=0):
    """Random pictures (N, size, size, 3) and labels that go round the classes."""
    pixels = np.random.default_rng(seed).integers(0, 256, (count, size, size, 3), dtype=np.uint8)
    return pixels, np.arange(count) % classes


def write_parquet(
    path,
    contents,
    labels,
    image="image",
    label="label",
    row_group_size=None,
    names=None,
    **columns,
):
    """``names`` are those of the classes, as in the datasets library; ``columns`` further ones."""
    path.parent.mkdir(parents=True, exist_ok=True)
    structs = [{"bytes": content, "path": f"{row}.png"} for row, content in enumerate(contents)]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = pa.table({image: pa.array(structs, kind), label: pa.array(labels), **columns})
    if names is not None:
        feature = {"names": names, "_type": "ClassLabel"}
        about = json.dumps({"info": {"features": {label: feature}}})
        table = table.replace_schema_metadata({"huggingface": about})
    pq.write_table(table, path, row_group_size=row_group_size)
    return path


def write_folder(root, pixels, labels, names):
    pictures = enumerate(zip(pixels, labels, strict=True))
    return write_files(
        root,
        {f"{names[label]}/{row:03d}.png": encoded(picture) for row, (picture, label) in pictures},
    )


def sizes(prepared):
    """Images of each split, in its order."""
    return {name: len(split) for name, split in prepared.splits.items()}


def specification(data_root, name="mine", others=(), **options):
    """What the workflow would hand to the preparation."""
    book = DatasetCatalog({**dict(others), name: options}, str(data_root))
    info = book.describe(name).info
    facts = {fact: info[fact] for fact in PLANNED_FACTS if fact in info}
    return {"image_set": name, **book.definition(name), "info": facts, "fingerprint": "0" * 16}


def prepared(data_root, out, name="mine", threads=1, val_seed=None, **options):
    plan = specification(data_root, name, **options)
    prepare(name, out, data_root=data_root, configured=plan, threads=threads, val_seed=val_seed)
    return open_prepared(out).verify()
