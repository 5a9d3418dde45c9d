"""Build a data set, validate it against its registration and write a prepared folder."""

import dataclasses
import hashlib
import io
import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.components.options import Options
from calgrid.components.registry import Description, describe, load
from calgrid.datasets.base import Dataset, ImageSplit, ShiftCondition, ShiftFamily, chunked
from calgrid.datasets.encoded import EncodedImages, stays_encoded
from calgrid.datasets.prepared import (
    FORMAT,
    SHIFT_SPLIT,
    ArrayFacts,
    Condition,
    Prepared,
    open_prepared,
)
from calgrid.errors import ConfigError, DataError
from calgrid.progress import log
from calgrid.storage.atomic import flush
from calgrid.storage.logits import NO_LABEL, validate_distribution
from calgrid.storage.records import FILES, MANIFEST, FileFacts, write_record
from calgrid.storage.specs import ConfiguredData


def prepare(
    dataset_id: str,
    out_dir: Path | str,
    data_root: Path | str | None = None,
    base_dir: Path | str | None = None,
    configured: ConfiguredData | None = None,
    threads: int = 1,
    val_seed: int | None = None,
) -> Path:
    """Build a data set, shift family or out-of-distribution set and write it to a folder.

    The manifest is written last: a folder that has one is complete. Returns its path.

    Parameters
    ----------
    dataset_id : registered identifier (without ``ood/``), or the name of a configured data set.
    out_dir : folder to write; arrays of the same names in it are replaced.
    data_root : folder with downloaded source files.
    base_dir : prepared folder of the base data set; required for a shift family, optional for an
        out-of-distribution set (gives it the normalisation constants and checks the image size).
    configured : specification of a configured data set.
    threads : number of threads that decode images; the output does not depend on it.
    val_seed : seed of the draw of validation images from training images; that of the data set if
        None.

    Raises
    ------
    ConfigError : unknown identifier, or a base that is missing, unnecessary or another data set.
    DataError : the built splits differ from the registration or from the plan, or share images.
    """
    root = Path(data_root) if data_root is not None else None
    folder = Path(out_dir)
    entry, component = _component(dataset_id, configured)
    component.scratch, component.threads = folder, threads
    if isinstance(component, Dataset):
        component.val_seed = val_seed
    base = _open_base(entry, base_dir)
    conditions: Sequence[ShiftCondition] = []
    if isinstance(component, ShiftFamily):
        if base is None:
            raise ConfigError(
                f"Shift family '{entry.id}' is computed from '{entry.info['base']}'; prepare that "
                "and give its folder as base_dir."
            )
        classes = base.manifest.get("classes")
        component.classes = classes and tuple(classes)
        conditions = list(component.build(root, base.splits))
        parts = {SHIFT_SPLIT: [condition.split for condition in conditions]}
        of_base = {fact: base.manifest[fact] for fact in ("n_classes", "image_shape")}
        entry = dataclasses.replace(entry, info={**entry.info, **of_base})
    else:
        parts = {name: [split] for name, split in component.build(root).items()}
    entry = dataclasses.replace(entry, info={**entry.info, **component.facts})
    for name, splits in parts.items():
        if stays_encoded([split.images for split in splits]):
            log(
                f"{name}: {sum(map(len, splits)):,} images stay encoded; each is decoded once for "
                "validation"
            )
    duplicates = _check_built(entry, parts, conditions)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / MANIFEST
    path.unlink(missing_ok=True)
    files: dict[str, FileFacts] = {}
    manifest = _describe(entry, base, configured)
    if val_seed is not None:
        manifest["val_seed"] = val_seed
    if duplicates:
        manifest["duplicates"] = duplicates
    manifest["splits"] = {
        name: _write_split(folder, name, splits, files) for name, splits in parts.items()
    }
    manifest[FILES] = files
    ranges, start = [], 0
    for each in conditions:
        placed = Condition(each.shift, each.severity, start, start + len(each.split))
        ranges.append(dataclasses.asdict(placed))
        start = placed.stop
    manifest["conditions"] = ranges
    write_record(path, manifest)
    return path


def _component(
    dataset_id: str, configured: ConfiguredData | None
) -> tuple[Description, Dataset | ShiftFamily]:
    """Return the specification of a data set under its own id, and its component."""
    if configured is None:
        entry = describe("dataset", dataset_id)
        if entry.info.get("configurable", False):
            raise ConfigError(
                f"'{dataset_id}' is a kind of data set; define a data set of this kind and give "
                "its specification."
            )
        return entry, load("dataset", dataset_id)()
    if configured["image_set"] != dataset_id:
        raise ConfigError(
            f"The specification is that of '{configured['image_set']}', not of '{dataset_id}'."
        )
    entry = dataclasses.replace(
        describe("dataset", configured["kind"]), id=dataset_id, info=configured["info"]
    )
    return entry, load("dataset", configured["kind"])(**configured["options"])


def image_hashes(images: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Hash each image ``(N, 3, H, W)`` to 64 bits: equal images have equal hashes ``(N,)``.

    Multilinear hashing modulo 2^64 with fixed odd weights. Two different images collide with a
    probability below 2^-56, about 10^-7 for any pair among 100,000 images.
    """
    drawn = np.random.RandomState(0).randint(0, 2**63, math.prod(images.shape[1:]), dtype=np.uint64)
    weights = drawn * 2 + 1
    hashes = [np.empty(0, np.uint64)]
    for chunk in chunked(images):
        hashes.append(chunk.reshape(len(chunk), -1).astype(np.uint64) @ weights)
    return np.concatenate(hashes)


def _open_base(entry: Description, base_dir: Path | str | None) -> Prepared | None:
    if base_dir is None:
        return None
    if entry.info["role"] == "dataset":
        raise ConfigError(f"Data set '{entry.id}' has no base data set; remove base_dir.")
    base = open_prepared(base_dir)
    if base.id != entry.info.get("base", base.id):
        raise ConfigError(
            f"'{entry.id}' belongs to '{entry.info['base']}', but {base_dir} holds '{base.id}'."
        )
    shape = entry.info["image_shape"]
    base_shape = tuple(base.manifest["image_shape"])
    if shape is not None and base_shape != tuple(shape):
        raise ConfigError(
            f"Images of '{entry.id}' are {shape}, those of '{base.id}' in {base_dir} are "
            f"{base_shape}; give the folder of a data set with equal image shapes."
        )
    return base


def _check_built(
    entry: Description,
    parts: Mapping[str, Sequence[ImageSplit]],
    conditions: Sequence[ShiftCondition],
) -> dict[str, int]:
    """Raise DataError unless sizes, shapes, labels and conditions are as registered and splits are
    disjoint.

    Returns the number of images with equal content in two splits, if duplicates are counted.
    """
    duplicates: dict[str, int] = {}
    if entry.info["role"] == "shift":
        built = [(condition.shift, condition.severity) for condition in conditions]
        registered = list(itertools.product(entry.info["shifts"], entry.info["severities"]))
        if built != registered:
            raise DataError(
                f"Conditions built for '{entry.id}' are {built}, registered are {registered}."
            )
        images = [condition.split.images for condition in conditions]
        for image_set in images if stays_encoded(images) else ():
            for _ in chunked(image_set):
                pass  # decoded, which raises for damaged images
    sizes = {name: sum(map(len, splits)) for name, splits in parts.items()}
    if sizes != entry.info.get("sizes", sizes):
        raise DataError(
            f"Splits built for '{entry.id}' hold {sizes} images, registered are "
            f"{entry.info['sizes']}: the source is incomplete or of another version."
        )
    if entry.info["role"] != "shift":
        splits = {name: split for name, (split,) in parts.items()}
        duplicates = _check_disjoint(entry, splits)
    for name, splits_of_file in parts.items():
        for split in splits_of_file:
            if split.images.shape[1:] != tuple(entry.info["image_shape"]):
                raise DataError(
                    f"Images of '{entry.id}' ({name}) have the shape {split.images.shape[1:]}, "
                    f"registered is {tuple(entry.info['image_shape'])}."
                )
            low, high = 0, entry.info["n_classes"] - 1
            if entry.info["role"] == "ood":
                low = high = NO_LABEL
            if len(split) and not (low <= split.labels.min() and split.labels.max() <= high):
                raise DataError(
                    f"Labels of '{entry.id}' ({name}) must lie in {low}..{high}, found "
                    f"{split.labels.min()}..{split.labels.max()}."
                )
            if split.distribution is not None:
                shape = (len(split), entry.info["n_classes"])
                validate_distribution(split.distribution, shape, f"'{entry.id}' ({name})")
    return duplicates


def _check_disjoint(entry: Description, splits: Mapping[str, ImageSplit]) -> dict[str, int]:
    """Raise DataError if two splits share a source row, or equal images and these are not to be
    counted.

    Splits registered as repetitions (``repeats``) are allowed.
    """
    duplicates = {}
    repeats = entry.info.get("repeats", {})
    hashes = {name: image_hashes(split.images) for name, split in splits.items()}
    for first, second in itertools.combinations(splits, 2):
        if repeats.get(first) == second or repeats.get(second) == first:
            continue
        rows, others = splits[first].rows, splits[second].rows
        shared = 0 if rows is None or others is None else len(np.intersect1d(rows, others))
        if shared:
            raise DataError(
                f"Splits {first} and {second} of '{entry.id}' share {shared} source rows."
            )
        equal = np.intersect1d(hashes[first], hashes[second])
        if len(equal) and entry.info.get("duplicates", "refuse") == "refuse":
            where = _where(entry, splits, hashes, equal[0])
            raise DataError(
                f"Splits {first} and {second} of '{entry.id}' share {len(equal)} images of equal "
                f"content; remove the duplicates from one of them{where}."
            )
        if len(equal):
            duplicates[f"{first}/{second}"] = len(equal)
    return duplicates


def _where(
    entry: Description,
    splits: Mapping[str, ImageSplit],
    hashes: Mapping[str, NDArray[np.uint64]],
    duplicate: np.uint64,
) -> str:
    """Describe the position of the first duplicate of a configured data set, and the option for
    duplicates.
    """
    if "sources" not in entry.info:
        return ""
    positions = []
    for name, split in splits.items():
        equal = hashes[name] == duplicate
        if split.rows is not None and equal.any():
            positions.append(split.rows[equal][0])
    first = f"rows {positions[0]} and {positions[1]}, counted from 0 through all files"
    if images := entry.info.get("images"):
        first = f"{images[positions[0]]} and {images[positions[1]]}"
    return f" (the first: {first}), or set duplicates: count"


def _describe(
    entry: Description,
    base: Prepared | None,
    configured: ConfiguredData | None,
) -> dict[str, object]:
    """Return the facts of the manifest except its arrays."""
    normalisation: Options = entry.info
    if entry.info["role"] != "dataset":
        normalisation = {} if base is None else base.manifest
    manifest = {
        "format": FORMAT,
        "id": entry.id,
        "role": entry.info["role"],
        "base": None if base is None else base.id,
        "n_classes": entry.info["n_classes"],
        "image_shape": entry.info["image_shape"],
        "mean": normalisation.get("mean"),
        "std": normalisation.get("std"),
    }
    for name in ("repeats", "warning", "sources", "classes"):
        if name in entry.info:
            manifest[name] = entry.info[name]
    if configured is not None:
        manifest["kind"] = configured["kind"]
        manifest["options"] = configured["options"]
        manifest["fingerprint"] = configured["fingerprint"]
    return manifest


def _write_split(
    folder: Path, name: str, splits: Sequence[ImageSplit], files: dict[str, FileFacts]
) -> dict[str, object]:
    """Write the arrays of ``splits``, one after another; list the files in ``files``."""
    prefix = "" if name == SHIFT_SPLIT else f"{name}_"
    names = ["images", "labels"]
    if splits[0].distribution is not None:
        names.append("distribution")
    facts: dict[str, object] = {"size": sum(map(len, splits))}
    for kind in names:
        arrays = [getattr(split, kind) for split in splits]
        write = _write_encoded if kind == "images" and stays_encoded(arrays) else _write_array
        facts[kind] = write(folder / f"{prefix}{kind}.npy", arrays, files)
    rows = [split.rows for split in splits if split.rows is not None]
    facts["rows_sha256"] = None
    if rows:
        facts["rows_sha256"] = hashlib.sha256(np.concatenate(rows).astype("<i8").data).hexdigest()
    return facts


def _write_array(
    path: Path, parts: Sequence[NDArray[Any]], files: dict[str, FileFacts]
) -> ArrayFacts:
    """Write arrays as one ``.npy`` file in chunks: encoded images need not fit into memory."""
    shape = (sum(map(len, parts)), *parts[0].shape[1:])
    dtype = parts[0].dtype.newbyteorder("<")
    header = io.BytesIO()
    described = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": shape,
    }
    np.lib.format.write_array_header_1_0(header, described)
    sha256 = hashlib.sha256(header.getvalue())
    with path.open("wb") as file:
        file.write(header.getvalue())
        for part in parts:
            for chunk in chunked(part):
                block = np.ascontiguousarray(chunk, dtype=dtype)
                sha256.update(block.data)
                file.write(block.data)
        files[path.name] = {"bytes": file.tell(), "sha256": sha256.hexdigest()}
    flush(path)
    return {"file": path.name, "dtype": dtype.name, "shape": list(shape)}


def _write_encoded(
    path: Path, parts: Sequence[EncodedImages], files: dict[str, FileFacts]
) -> ArrayFacts:
    """Write encoded images as one file, and their offsets as an array."""
    encoded = path.with_suffix(".bin")
    offsets = [0]
    sha256 = hashlib.sha256()
    with encoded.open("wb") as file:
        for part in parts:
            for content in map(part.source.read, range(len(part))):
                sha256.update(content)
                file.write(content)
                offsets.append(offsets[-1] + len(content))
    flush(encoded)
    files[encoded.name] = {"bytes": offsets[-1], "sha256": sha256.hexdigest()}
    begins = path.with_name(f"{path.stem}_offsets.npy")
    return {
        "file": encoded.name,
        "dtype": "uint8",
        "shape": [sum(map(len, parts)), *parts[0].shape[1:]],
        "offsets": _write_array(begins, [np.array(offsets)], files),
        "scaling": dataclasses.asdict(parts[0].scaling),
    }
