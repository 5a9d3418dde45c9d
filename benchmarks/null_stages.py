"""Stages that compute nothing: copies of the files of one real run under the names and fingerprints
of others.

For ``benchmarks/scale.py`` and the tests of locks and clocks. They copy the workflow, and put a
``calgrid/__main__.py`` into the copy that calls :func:`main`: training, prediction and calibration
then cost no more than their processes, locks and files; everything else is as it is. The real run
lies in the folder that ``CALGRID_BENCHMARK_TEMPLATE`` names.
"""

import json
import os
import shutil
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

TEMPLATE_VARIABLE = "CALGRID_BENCHMARK_TEMPLATE"
#: seconds that each stage takes (0)
SECONDS_VARIABLE = "CALGRID_BENCHMARK_SECONDS"
#: file of the template with one line for each stage that was computed
COMPUTED = "computed.txt"
#: columns of a metrics file that name its run
KEY = ("protocol", "dataset", "backbone", "method", "seed")


def main() -> int:
    """Run a null stage under its lock, or calgrid itself for every other command."""
    name = sys.argv[2] if sys.argv[1] == "job" else ""
    fill = {"train": train, "predict": predict, "calibrate": calibrate}.get(name)
    if fill is None:
        from calgrid.cli.main import main as calgrid  # noqa: PLC0415  (the null stages start faster without)

        return calgrid()
    from calgrid.storage.publish import Call, make_result  # noqa: PLC0415
    from calgrid.storage.records import (  # noqa: PLC0415
        FILES,
        listing,
        read_record,
    )

    template, out = Path(os.environ[TEMPLATE_VARIABLE]), Path(option("--out"))
    plan = read_record(Path(option("--plan")))
    spec, reads = plan["jobs"][str(out)], plan["inputs"][str(out)]["reads"]
    record = f"{name}.json"
    outputs = read_record(template / name / record)[FILES]

    def produce(folder: Path) -> Mapping[str, Any]:
        with (template / COMPUTED).open("a", encoding="utf-8") as computed:
            computed.write(f"{out}\n")
        time.sleep(float(os.environ.get(SECONDS_VARIABLE, "0")))
        fill(template, spec, folder)
        return read_record(folder / record)

    # results above the stage, as its plan names them; no files and code
    folders = [Path(path).parent for path in reads]
    results = {folder: listing(folder) for folder in folders}
    make_result(Call(spec, out), record, list(outputs), produce, results)
    return 0


def option(name: str) -> str:
    """Value behind an option of the command line."""
    return sys.argv[sys.argv.index(name) + 1]


def train(
    template: Path,
    spec: Mapping[str, Any],
    out: Path,
    copy: Callable[[Path, Path], Any] = shutil.copyfile,
) -> None:
    """Files of a training; ``copy`` makes a file of the template one of the run."""
    out.mkdir(parents=True, exist_ok=True)
    for name in ("model.safetensors", "history.parquet"):
        copy(template / "train" / name, out / name)
    record(template / "train" / "train.json", spec, out / "train.json")


def predict(
    template: Path, spec: Mapping[str, Any], out: Path, copy: Callable[..., Any] = shutil.copyfile
) -> None:
    """Files of a prediction, logits included."""
    shutil.copytree(
        template / "predict" / "logits", out / "logits", dirs_exist_ok=True, copy_function=copy
    )
    record(template / "predict" / "predict.json", spec, out / "predict.json")


def calibrate(template: Path, spec: Mapping[str, Any], out: Path) -> None:
    """Files of a calibration: those of the real run, lowered by up to a tenth at random."""
    import numpy as np  # noqa: PLC0415
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    table = pq.read_table(template / "calibrate" / "metrics.parquet", use_threads=False)
    key = spec["key"]
    words = {name: str(key[name]) for name in KEY if name != "seed"} | {
        "fingerprint": spec["run_fingerprint"]
    }
    for name, word in words.items():
        column = pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(len(table), "int32")), pa.array([word])
        )
        table = table.set_column(table.column_names.index(name), name, column)
    seeds = pa.array(np.full(len(table), key["seed"]))
    table = table.set_column(table.column_names.index("seed"), "seed", seeds)
    rng = np.random.default_rng(zlib.crc32("/".join(map(str, key.values())).encode()))
    values = table["value"].to_numpy() * rng.uniform(0.9, 1, len(table))
    table = table.set_column(table.column_names.index("value"), "value", pa.array(values))
    out.mkdir(parents=True, exist_ok=True)
    metadata = {"calgrid": json.dumps({"fingerprint": spec["fingerprint"]})}
    pq.write_table(
        table.replace_schema_metadata(metadata), out / "metrics.parquet", compression="zstd"
    )
    for extra in (template / "calibrate").glob(
        "*.parquet"
    ):  # what figures show says nothing of its run
        if extra.name != "metrics.parquet":
            found = pq.read_table(extra, use_threads=False).replace_schema_metadata(metadata)
            pq.write_table(found, out / extra.name, compression="zstd")
    record(template / "calibrate" / "calibrate.json", spec, out / "calibrate.json")


def record(source: Path, spec: Mapping[str, Any], target: Path) -> None:
    """Write the record of the real run with the specification of another."""
    from calgrid.storage.records import FILES, listed, read_record, write_record  # noqa: PLC0415

    content = read_record(source)
    files = {
        FILES: listed(
            target.parent, [name for name in content[FILES] if (target.parent / name).is_file()]
        )
    }
    write_record(
        target, {**content, **files, "spec": dict(spec), "fingerprint": spec["fingerprint"]}
    )
