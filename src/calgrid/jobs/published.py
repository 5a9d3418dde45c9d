"""Job ``train`` of a run with published weights: nothing is trained.

The history has no rows, and the record contains the source of the weights.
"""

from pathlib import Path
from typing import cast

import pandas as pd
import torch

from calgrid.backbones import Backbone
from calgrid.backbones.catalogue import describe
from calgrid.backbones.focal_calibration import load_checkpoint
from calgrid.backbones.timm import check_weights
from calgrid.backbones.weights import load_state, read_class_names, read_state
from calgrid.class_names import check_outputs
from calgrid.datasets import Prepared, open_prepared
from calgrid.datasets.downloads import download
from calgrid.errors import DataError
from calgrid.jobs.network import check_images, model_description, network_record
from calgrid.procedures.network import build_network
from calgrid.storage.checkpoint import save_checkpoint
from calgrid.storage.publish import Call, make_result
from calgrid.storage.records import HISTORY, MODEL, TRAIN, Facts
from calgrid.storage.sources import record
from calgrid.storage.specs import TrainSpec
from calgrid.storage.tables import write_frame
from calgrid.training import environment
from calgrid.training.protocol import read_protocol


def run(call: Call) -> bool:
    """Take the weights of a run; return False if the result already exists.

    The job reads the manifest of its data; ``call.root`` is the folder for downloaded checkpoints.
    Computes on the CPU, whatever the device of the study: the workflow asks for no GPU.
    """
    spec: TrainSpec = call.spec
    data = call.reads[0].parent
    where = torch.device("cpu")
    environment.prepare(where, call.threads)
    prepared = open_prepared(data, fingerprint=spec.get("data"))
    clock = environment.clock(where)

    def produce(folder: Path) -> Facts:
        prepared.verify()
        begin = clock()
        model, source = _published_network(spec, prepared, Path(call.root))
        states = {"last.model": model.state_dict()}
        save_checkpoint(folder / MODEL, states, model_description(spec))
        write_frame(folder / HISTORY, pd.DataFrame({"epoch": pd.Series(dtype="int32")}))
        return {
            **network_record(spec, model, clock() - begin, where),
            "epochs": 0,
            "interruptions": 0,
            "trained_parameters": 0,
            "weights": {"source": spec["protocol"]["weights"], **source},
        }

    return make_result(call, TRAIN, (MODEL, HISTORY), produce, call.digests())


def _published_network(
    spec: TrainSpec, prepared: Prepared, data_root: Path
) -> tuple[Backbone, Facts]:
    """Return the network with its weights, and their source; checkpoints are downloaded to folders
    below ``data_root``.
    """
    key = spec["key"]
    check_images(key, read_protocol(spec["protocol"]), prepared)
    if "source" in spec.get("checkpoint", {}):
        return _own_network(spec, prepared, data_root)
    info = describe(key["backbone"]).info
    known = info["parameters"]
    if info["library"]:
        shape = prepared.splits["test"].images.shape
        check_weights(key["backbone"], prepared.n_classes, tuple(shape[-2:]))
    elif prepared.n_classes not in known:
        raise DataError(
            f"Data set '{key['dataset']}' has {prepared.n_classes} classes, but the published "
            f"weights of '{key['backbone']}' have {', '.join(map(str, known))}; fine-tune them "
            "(pretrained: true)."
        )
    network, _ = build_network(spec, prepared.n_classes, pretrained="checkpoint" not in spec)
    model = cast(Backbone, network)  # the standard procedure adds no layers
    if "checkpoint" not in spec:
        return model, model.published()
    file = spec["checkpoint"]
    path = download({"name": file["name"], "url": file["url"]}, data_root / file["folder"])
    load_checkpoint(model, path)
    trusted = {"verified_by": "the checksum of its first use here; none is published"}
    source = record(path, f"{file['folder']}/{file['name']}")
    return model, {"url": file["url"], **source, **trusted}


def _own_network(spec: TrainSpec, prepared: Prepared, data_root: Path) -> tuple[Backbone, Facts]:
    """Return the network with the weights of the user's file, and their source."""
    name = spec["checkpoint"]["name"]
    path = data_root / name
    manifest = prepared.manifest
    classes, chosen = manifest.get("classes"), manifest.get("options", {}).get("classes")
    check_outputs(str(path), read_class_names(path), prepared.id, classes, chosen is not None)
    network, _ = build_network(spec, prepared.n_classes)
    model = cast(Backbone, network)  # the standard procedure adds no layers
    key = spec["protocol"].get("weights_key")
    load_state(model, read_state(path, key), path)
    return model, record(path, name)
