"""Stages on images that stay encoded: the same network and the same logits as on arrays."""

import numpy as np
from tests.datasets.pictures import write_folder
from tests.jobs.small import HOME, predicted, small_study, trained

from calgrid.datasets import encoded, prepare
from calgrid.jobs import network
from calgrid.jobs.probe import run as run_probe
from calgrid.plan.plan import Plan
from calgrid.storage.logits import read_logits
from calgrid.storage.publish import Call
from calgrid.storage.records import MANIFEST, RunKey
from calgrid.study.study import Study

KEY = RunKey("quick", "own", "resnet8", "ce", 1)


def test_train_predict_and_probe_give_the_bytes_that_they_give_on_arrays(tmp_path, monkeypatch):
    for role, count in (("train", 60), ("test", 24)):
        labels = np.arange(count) % 3
        colours = (
            np.random.default_rng(count).integers(0, 90, (count, 1, 1, 3))
            + 80 * labels[:, None, None, None]
        )
        write_folder(
            tmp_path / "data" / role,
            np.tile(colours.astype(np.uint8), (1, 12, 12, 1)),
            labels,
            "abc",
        )
    study = small_study(
        datasets={
            "own": {"base": "image_folder", "val_size": 15, "image_size": 16, "duplicates": "count"}
        }
    )
    study["grids"][0].update(datasets=["own"], methods=["ce"], shifts=[], probes=["prototypes"])
    plan = Plan(Study({**study, "data_root": str(tmp_path / "data")}, HOME))
    made = {}
    for kind, most in (("arrays", encoded.ENCODED_ABOVE), ("encoded", 0)):
        monkeypatch.setattr(encoded, "ENCODED_ABOVE", most)
        data, out = tmp_path / kind, tmp_path / f"{kind}-run"
        prepare(
            "own",
            data / "own",
            data_root=tmp_path / "data",
            configured=plan.data("own").spec["configured"],
        )
        model = trained(plan, data, out, KEY)
        predicted(plan, data, out, KEY)
        spec = plan.probe(KEY, "prototypes").spec
        reads = model, data / "own" / MANIFEST
        run_probe(Call(spec, out / "prototypes", reads, device="cpu"))
        logits = "predict/logits"
        files = (
            f"{logits}/last/test.parquet",
            f"{logits}/best/val.parquet",
            "prototypes/table.parquet",
        )
        made[kind] = [model.read_bytes(), *((out / name).read_bytes() for name in files)]
        monkeypatch.setattr(network, "HELD_SHARE", 0)  # encoded images are streamed too
    assert (tmp_path / "encoded/own/train_images.bin").is_file()
    assert made["arrays"] == made["encoded"]
    test = read_logits(tmp_path / "arrays-run/predict/logits/last/test.parquet")
    assert test.metadata["classes"] == list("abc")
