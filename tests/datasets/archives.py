"""Tiny archives in the format of published data sets, and data sets that expect them."""

import dataclasses
import hashlib
import io
import tarfile
import zipfile
from types import MappingProxyType

import numpy as np

from calgrid.components import registry
from calgrid.datasets import preparation
from calgrid.study import datasets


def write_tar(path, members, mode="w:gz"):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def write_zip(path, members):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as pack:
        for name, content in members.items():
            pack.writestr(name, content)
    return path


def npy(array, **options):
    """Bytes of an .npy file."""
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


def write_files(folder, members):
    for name, content in members.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def facts_of(path):
    content = path.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    return {"name": path.name, "url": "https://no.where", "size": len(content), "sha256": sha256}


def expect(monkeypatch, cls, paths, **changes):
    """Let a data set expect tiny files; ``changes`` are further registered facts."""
    registered = MappingProxyType(
        {**cls.registered, "files": tuple(facts_of(path) for path in paths), **changes}
    )
    monkeypatch.setattr(cls, "registered", registered)
    known = registry.describe

    def describe(kind, name, where=""):
        entry = known(kind, name, where)
        if entry.class_name != cls.__name__:
            return entry
        return dataclasses.replace(entry, info=MappingProxyType({**entry.info, **changes}))

    for module in (preparation, datasets.registry):
        monkeypatch.setattr(module, "describe", describe)
