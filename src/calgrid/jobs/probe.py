"""Job ``probe``: a measurement of a trained network, written as a table."""

from pathlib import Path

import pandas as pd

from calgrid.components.registry import load
from calgrid.datasets import open_prepared
from calgrid.jobs.network import with_test_constants
from calgrid.probes.base import Subject
from calgrid.procedures.network import tested_networks
from calgrid.storage.checkpoint import load_checkpoint
from calgrid.storage.publish import Call, make_result
from calgrid.storage.records import PROBE, PROBE_TABLE, Facts
from calgrid.storage.specs import ProbeSpec
from calgrid.storage.tables import write_frame
from calgrid.training import environment
from calgrid.training.protocol import read_protocol


def run(call: Call) -> None:
    """Measure a trained run with a probe.

    The job reads ``model.safetensors`` of the run, whose fingerprint its specification has, and the
    manifest of its data set.
    """
    spec: ProbeSpec = call.spec
    model, data = call.reads[0], call.reads[1].parent
    where = environment.choose_device(call.device)
    results = call.digests()
    states, description = load_checkpoint(model, spec["run_fingerprint"])
    trained = description["spec"]
    environment.prepare(where, call.threads, trained["protocol"]["deterministic"])
    prepared = open_prepared(data, fingerprint=trained.get("data"), threads=call.threads)
    chosen = spec["probe"]
    measurement = load("probe", chosen["id"])(**chosen["options"])
    clock = environment.clock(where)

    def produce(folder: Path) -> Facts:
        begin = clock()
        prepared.verify()
        # probes use only test images
        tested = with_test_constants(prepared, spec, spec["key"]["dataset"])
        protocol = read_protocol(trained["protocol"])
        parts = []
        for checkpoint, network, procedure in tested_networks(
            states, trained, spec["checkpoints"], tested.n_classes, where
        ):
            subject = Subject(
                network,
                procedure,
                tested,
                where,
                channels_last=protocol.channels_last,
                crop_size=protocol.crop_size,
                run="/".join(map(str, spec["key"].values())),
            )
            parts.append(measurement.measure(subject).assign(checkpoint=checkpoint))
        footer = {
            **spec["key"],
            "probe": dict(chosen),
            "split": "test",
            "fingerprint": spec["fingerprint"],
        }
        write_frame(folder / PROBE_TABLE, pd.concat(parts, ignore_index=True), footer)
        return environment.run_record(spec, clock() - begin, where)

    make_result(call, PROBE, [PROBE_TABLE], produce, results)
