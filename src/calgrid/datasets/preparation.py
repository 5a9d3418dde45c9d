"""Build a data set, validate it against its registration and write it to a prepared folder."""

import contextlib
import dataclasses
import hashlib
import io
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.components.registry import ComponentSpec, load, spec
from calgrid.datasets.base import Dataset, ImageSplit, ShiftFamily, ShiftSetting, chunked
from calgrid.datasets.encoded import EncodedImages, stays_encoded
from calgrid.datasets.prepared import FORMAT, MANIFEST, SHIFT_SPLIT, Prepared, open_prepared
from calgrid.errors import ConfigError, DataError
from calgrid.progress import log
from calgrid.specs import ConfiguredData
from calgrid.storage.atomic import replacing
from calgrid.storage.logits import NO_LABEL, validate_distribution
from calgrid.storage.records import FILES, FileFacts, read_record, write_record
from calgrid.storage.sources import identity


def prepare(
    dataset_id: str,
    out_dir: Path | str,
    data_root: Path | str | None = None,
    base_dir: Path | str | None = None,
    configured: ConfiguredData | None = None,
    threads: int = 1,
) -> Path:
    """Build a data set, shift family or out-of-distribution set and write it to a folder.

    Everything is first written under temporary names; a process killed at any time leaves either no
    manifest or a complete folder. Files of the same names in ``out_dir`` are replaced. Returns the
    path of the manifest. Raises ConfigError: unknown identifier, or a base that is missing,
    unnecessary or another data set. DataError: the built splits differ from the registration or
    from the plan, or share images.

    Parameters
    ----------
    dataset_id : registered identifier (without ``ood/``), or the name of a configured data set.
    out_dir : folder to write.
    data_root : folder with downloaded source files.
    base_dir : prepared folder of the base data set; required for a shift family, optional for an
        out-of-distribution set (gives it the normalisation constants and checks the image size).
    configured : specification of a configured data set.
    threads : number of threads that decode images; the output does not depend on it.
    """
    root = Path(data_root) if data_root is not None else None
    entry, component = _component(dataset_id, configured, root)
    component.scratch, component.threads = Path(out_dir), threads
    base = _open_base(entry, base_dir)
    entry, parts, settings = _build(entry, component, base, root)
    found = component.found
    entry = dataclasses.replace(entry, info={**entry.info, **found})
    for name, splits in parts.items():
        if stays_encoded([split.images for split in splits]):
            log(
                f"{name}: {sum(map(len, splits)):,} images stay encoded; each is decoded once for "
                f"validation"
            )
    twins = _check_built(entry, parts, settings)
    path = Path(out_dir) / MANIFEST
    before = _present(path)
    with contextlib.ExitStack() as pending:  # all arrays are renamed when it closes
        files: dict[str, FileFacts] = {}
        manifest = (
            _describe(entry, base)
            | {name: entry.info[name] for name in ("repeats", "warning") if name in entry.info}
            | _origin(configured, found, twins)
            | {
                "splits": {
                    name: _write_split(pending, path.parent, name, each, files)
                    for name, each in parts.items()
                }
            }
            | {FILES: files}
            | {"settings": _setting_ranges(settings)}
        )
        if before != json.loads(json.dumps(manifest)):  # until the end the folder is incomplete
            path.unlink(missing_ok=True)
    write_record(path, manifest)
    for name in set(before.get(FILES, ())) - set(
        manifest[FILES]
    ):  # such as arrays of images that are encoded now
        path.with_name(name).unlink(missing_ok=True)
    return path


def _build(
    entry: ComponentSpec, component: Dataset | ShiftFamily, base: Prepared | None, root: Path | None
) -> tuple[ComponentSpec, dict[str, Sequence[ImageSplit]], Sequence[ShiftSetting]]:
    """Return the specification (of a shift family, with facts of its base), the splits by name, and
    the settings.
    """
    if not isinstance(component, ShiftFamily):
        return entry, {name: [split] for name, split in component.build(root).items()}, []
    if base is None:
        raise ConfigError(
            f"Shift family '{entry.id}' is computed from '{entry.info['base']}': prepare that and "
            f"give its folder as "
            "base_dir."
        )
    shared = {fact: base.manifest[fact] for fact in ("n_classes", "image_shape")}
    settings = component.build(root, base.splits)
    entry = dataclasses.replace(entry, info={**entry.info, **shared})
    return entry, {SHIFT_SPLIT: [setting.split for setting in settings]}, settings


def _component(
    dataset_id: str, configured: ConfiguredData | None, data_root: Path | None
) -> tuple[ComponentSpec, Dataset | ShiftFamily]:
    """Return the specification of a data set under its own id, and its component."""
    if configured is None:
        entry = spec("dataset", dataset_id)
        if entry.info.get("configurable", False):
            raise ConfigError(
                f"'{dataset_id}' is a kind of data set: define a data set of this kind and give "
                f"its specification."
            )
        return entry, load("dataset", dataset_id)()
    if configured["unit"] != dataset_id:
        raise ConfigError(
            f"The specification is that of '{configured['unit']}', not of '{dataset_id}'."
        )
    for name, planned in configured["sources"].items():
        if identity(data_root, name) != planned:
            raise DataError(
                f"The source {name} of '{dataset_id}' has changed since it was planned: run again."
            )
    entry = dataclasses.replace(
        spec("dataset", configured["kind"]), id=dataset_id, info=configured["info"]
    )
    return entry, load("dataset", configured["kind"])(**configured["options"])


def _origin(
    configured: ConfiguredData | None, found: Mapping[str, Any], twins: Mapping[str, int]
) -> dict[str, Any]:
    """Return the manifest's facts about the origin of images, if any."""
    facts: dict[str, Any] = {name: found[name] for name in ("sources", "classes") if name in found}
    if configured is not None:
        facts |= {
            "kind": configured["kind"],
            "options": configured["options"],
            "fingerprint": configured["fingerprint"],
        }
    return facts | ({"twins": dict(twins)} if twins else {})


def image_hashes(images: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Hash each image ``(N, 3, H, W)`` to 64 bits: equal images have equal hashes ``(N,)``.

    Multilinear hashing modulo 2^64 with fixed odd weights. Two different images collide with a
    probability below 2^-56, about 10^-7 for any pair among 100,000 images.
    """
    weights = (
        np.random.RandomState(0).randint(0, 2**63, math.prod(images.shape[1:]), dtype=np.uint64) * 2
        + 1
    )
    parts = [chunk.reshape(len(chunk), -1).astype(np.uint64) @ weights for chunk in chunked(images)]
    return np.concatenate([np.empty(0, np.uint64), *parts])


def _open_base(entry: ComponentSpec, base_dir: Path | str | None) -> Prepared | None:
    role = entry.info["role"]
    if base_dir is None:
        return None
    if role == "dataset":
        raise ConfigError(f"Data set '{entry.id}' has no base data set: remove base_dir.")
    base = open_prepared(base_dir)
    if base.id != entry.info.get("base", base.id):
        raise ConfigError(
            f"'{entry.id}' belongs to '{entry.info['base']}', but {base_dir} holds '{base.id}'."
        )
    shape = entry.info["image_shape"]
    if shape is not None and tuple(base.manifest["image_shape"]) != tuple(shape):
        raise ConfigError(
            f"Images of '{entry.id}' are {entry.info['image_shape']}, those of '{base.id}' in "
            f"{base_dir} are "
            f"{tuple(base.manifest['image_shape'])}: give the folder of a data set with equal "
            f"image shapes."
        )
    return base


def _check_built(
    entry: ComponentSpec,
    parts: Mapping[str, Sequence[ImageSplit]],
    settings: Sequence[ShiftSetting],
) -> dict[str, int]:
    """Raise DataError unless sizes, shapes, labels and settings are as registered and splits are
    disjoint.

    Returns the number of images with equal content in two splits, if duplicates are counted.
    """
    twins: dict[str, int] = {}
    if entry.info["role"] == "shift":
        named = [(setting.shift, setting.severity) for setting in settings]
        registered = [
            (s, severity) for s in entry.info["shifts"] for severity in entry.info["severities"]
        ]
        if named != registered:
            raise DataError(
                f"Settings built for '{entry.id}' are {named}, registered are {registered}."
            )
        if stays_encoded([setting.split.images for setting in settings]):
            for _ in itertools.chain.from_iterable(
                chunked(setting.split.images) for setting in settings
            ):
                # raises for damaged images; images of data sets are decoded when they are compared
                pass
    else:
        sizes = {name: len(split) for name, (split,) in parts.items()}
        if sizes != entry.info.get("sizes", sizes):
            raise DataError(
                f"Splits built for '{entry.id}' hold {sizes} images, registered are "
                f"{entry.info['sizes']}: "
                f"the source is incomplete or of another version."
            )
        twins = _check_disjoint(entry, {name: split for name, (split,) in parts.items()})
    for name, splits in parts.items():
        for split in splits:
            _check_split(entry, name, split)
    return twins


def _check_split(entry: ComponentSpec, name: str, split: ImageSplit) -> None:
    if split.images.shape[1:] != tuple(entry.info["image_shape"]):
        raise DataError(
            f"Images of '{entry.id}' ({name}) have the shape {split.images.shape[1:]}, "
            f"registered is {tuple(entry.info['image_shape'])}."
        )
    low, high = (
        (NO_LABEL, NO_LABEL) if entry.info["role"] == "ood" else (0, entry.info["n_classes"] - 1)
    )
    if len(split) and not (low <= split.labels.min() and split.labels.max() <= high):
        raise DataError(
            f"Labels of '{entry.id}' ({name}) must lie in {low}..{high}, "
            f"found {split.labels.min()}..{split.labels.max()}."
        )
    if split.distribution is not None:
        shape = (len(split), entry.info["n_classes"])
        validate_distribution(split.distribution, shape, f"'{entry.id}' ({name})")


def _check_disjoint(entry: ComponentSpec, splits: Mapping[str, ImageSplit]) -> dict[str, int]:
    """Raise DataError if two splits share a source row, or equal images and these are not to be
    counted.

    Splits registered as repetitions (``repeats``) are allowed.
    """
    twins = {}
    repeats = entry.info.get("repeats", {})
    hashes = {name: image_hashes(split.images) for name, split in splits.items()}
    for first, second in itertools.combinations(splits, 2):
        if repeats.get(first) == second or repeats.get(second) == first:
            continue
        rows, others = splits[first].rows, splits[second].rows
        if (
            rows is not None
            and others is not None
            and (shared := len(np.intersect1d(rows, others)))
        ):
            raise DataError(
                f"Splits {first} and {second} of '{entry.id}' share {shared} source rows."
            )
        equal = np.intersect1d(hashes[first], hashes[second])
        if len(equal) and entry.info.get("duplicates", "refuse") == "refuse":
            raise DataError(
                f"Splits {first} and {second} of '{entry.id}' share {len(equal)} images of equal "
                f"content: "
                f"remove the duplicates from one of them{_where(entry, splits, hashes, equal[0])}."
            )
        if len(equal):
            twins[f"{first}/{second}"] = len(equal)
    return twins


def _where(
    entry: ComponentSpec,
    splits: Mapping[str, ImageSplit],
    hashes: Mapping[str, NDArray[np.uint64]],
    twin: np.uint64,
) -> str:
    """Describe the position of the first duplicate of a configured data set, and the option for
    duplicates.
    """
    if "sources" not in entry.info:
        return ""
    sources = ((splits[name].rows, each == twin) for name, each in hashes.items())
    rows = [rows[same][0] for rows, same in sources if rows is not None and same.any()]
    return f" (the first: rows {rows[0]} and {rows[1]}, counted through all files), or set duplicates: count"


def _describe(entry: ComponentSpec, base: Prepared | None) -> dict[str, Any]:
    """Return the manifest's facts that are known before anything is written."""
    source = entry.info if entry.info["role"] == "dataset" else (base.manifest if base else {})
    return {
        "format": FORMAT,
        "id": entry.id,
        "role": entry.info["role"],
        "base": base.id if base else None,
        "n_classes": entry.info["n_classes"],
        "image_shape": entry.info["image_shape"],
        "mean": source.get("mean"),
        "std": source.get("std"),
    }


def _setting_ranges(settings: Sequence[ShiftSetting]) -> list[dict[str, Any]]:
    stops = np.cumsum([len(setting.split) for setting in settings]).tolist()
    return [
        {
            "shift": setting.shift,
            "severity": setting.severity,
            "start": stop - len(setting.split),
            "stop": stop,
        }
        for setting, stop in zip(settings, stops, strict=True)
    ]


def _write_split(
    pending: contextlib.ExitStack,
    folder: Path,
    name: str,
    splits: Sequence[ImageSplit],
    files: dict[str, FileFacts],
) -> dict[str, Any]:
    """Write the arrays of ``splits``, one after another, under names that ``pending`` makes final;
    list the files.
    """
    prefix = "" if name == SHIFT_SPLIT else f"{name}_"
    rows = [split.rows for split in splits if split.rows is not None]
    names = ("images", "labels", *(["distribution"] if splits[0].distribution is not None else []))
    arrays = {}
    for each in names:
        values = [getattr(split, each) for split in splits]
        write = _write_encoded if each == "images" and stays_encoded(values) else _write_array
        arrays[each] = write(pending, folder / f"{prefix}{each}.npy", values, files)
    return {
        "size": sum(len(split) for split in splits),
        **arrays,
        "rows_sha256": hashlib.sha256(np.concatenate(rows).astype("<i8").data).hexdigest()
        if rows
        else None,
    }


def _write_array(
    pending: contextlib.ExitStack,
    path: Path,
    parts: Sequence[NDArray[Any]],
    files: dict[str, FileFacts],
) -> dict[str, Any]:
    """Write arrays as one ``.npy`` file in chunks: encoded images need not fit into memory."""
    shape = (sum(len(part) for part in parts), *parts[0].shape[1:])
    dtype = parts[0].dtype.newbyteorder("<")
    header = io.BytesIO()
    described = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": shape,
    }
    np.lib.format.write_array_header_1_0(header, described)
    digest = hashlib.sha256(header.getvalue())
    with pending.enter_context(replacing(path)).open("wb") as file:
        file.write(header.getvalue())
        for piece in itertools.chain.from_iterable(map(chunked, parts)):
            block = np.ascontiguousarray(piece, dtype=dtype)
            digest.update(block.data)
            file.write(block.data)
        files[path.name] = {"bytes": file.tell(), "sha256": digest.hexdigest()}
    return {"file": path.name, "dtype": dtype.name, "shape": list(shape)}


def _write_encoded(
    pending: contextlib.ExitStack,
    path: Path,
    parts: Sequence[EncodedImages],
    files: dict[str, FileFacts],
) -> dict[str, Any]:
    """Write encoded images as one file, and their offsets as an array."""
    encoded, offsets, digest = path.with_suffix(".bin"), [0], hashlib.sha256()
    with pending.enter_context(replacing(encoded)).open("wb") as file:
        for content in itertools.chain.from_iterable(part.contents() for part in parts):
            digest.update(content)
            file.write(content)
            offsets.append(offsets[-1] + len(content))
    files[encoded.name] = {"bytes": offsets[-1], "sha256": digest.hexdigest()}
    begins = _write_array(
        pending, path.with_name(f"{path.stem}_offsets.npy"), [np.array(offsets)], files
    )
    shape = [sum(map(len, parts)), *parts[0].shape[1:]]
    scaling = dataclasses.asdict(parts[0].scaling)
    return {
        "file": encoded.name,
        "dtype": "uint8",
        "shape": shape,
        "offsets": begins,
        "scaling": scaling,
    }


def _present(path: Path) -> dict[str, Any]:
    """Return the manifest that is there; empty if there is none, or a damaged one."""
    try:
        return read_record(path, "manifest")
    except DataError:
        return {}
