"""Each file that a stage opens is named by its record, and is in a folder that its rule declares.

One study with every kind of source is made job by job under ``strace``, which sees what Python and
its libraries open.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from tests.datasets.pictures import draw, encoded, write_folder, write_parquet
from tests.workflow.dag import CONFIG, Repository

from calgrid.storage.checkpoint import load_checkpoint
from calgrid.storage.records import STUDY_STAGES, record_of

pytestmark = [
    pytest.mark.workflow,
    pytest.mark.skipif(not shutil.which("strace"), reason="needs strace (apt-get install strace)"),
]
NUMBERS = """\
paper,table,dataset,backbone,method,calibrator,metric,shift,severity,value,std,unit,suspect
mine,1,digits,resnet8,ce,none,ece,,0,4.34,,percent,
"""
MINE_TS = '''"""A fixed temperature from a file."""

from pathlib import Path

from scipy.special import softmax

import mine.tools.inner
from calgrid.calibrators import Calibrator
from calgrid.components.registry import register


@register(source="none", parameters="0", keeps_argmax=True)
class MineTS(Calibrator):
    """A fixed temperature."""

    def _fit(self, logits, labels, features, head):
        text = (Path(__file__).parents[1] / "factor.txt").read_text()
        self.factor = float(text) * mine.tools.inner.FACTOR
        return {}

    def _transform(self, logits, features):
        return softmax(self.factor * logits, axis=1)
'''
PLUGIN = {
    "mine/__init__.py": "",
    "mine/tools/__init__.py": "",
    "mine/tools/inner.py": "FACTOR = 0.9\n",
    "mine/factor.txt": "0.9",
    "mine/calibrators/__init__.py": "",
    "mine/calibrators/mine_ts.py": MINE_TS,
}
#: kind of source -> file of external logits below data
LOGITS = {"csv": "a.csv", "parquet": "b.parquet", "npz": "c.npz", "pt": "d.pt"}


#: what is read -> pattern of the command that reads it
READERS = {
    "Parquet images": r"^job data .*--out results/data/pictures-",
    "folders": r"^job data .*--out results/data/folders-",
    "shifted Parquet images": r"^job data .*--out results/data/night-",
    "training": r"^job train .*/own/pictures/resnet8/ce/",
    "second stage": r"^job train .*/own/folders/resnet8/tst/",
    "weights": r"^job train .*/taken/digits/",
    "prediction": r"^job predict .*/own/pictures/resnet8/ce/",
    "probe": r"^job probe .*/own/pictures/resnet8/ce/",
    "ensemble": r"^job ensemble .*/own/pictures/",
    "bank": r"^job import .*/digits/resnet8/ce/",
    "unpacked bank": r"^job import .*/digits/resnet8/mbls/",
    "label counts and a plugin": r"^job calibrate .*/external/d/.*/csv/",
    **{kind: rf"^job import .*/external/d/.*/{kind}/" for kind in LOGITS},
    **{stage: rf"^job {stage} " for stage in STUDY_STAGES},
}
#: writes the plan, as the workflow does before its jobs
PLAN = """
from pathlib import Path
from calgrid.plan.plan import Plan
from calgrid.storage.records import write_record
from calgrid.study.home import home
from calgrid.study.study import Study
from calgrid.study.yaml_files import read_configuration

plan = Plan(Study(read_configuration(Path("read.yaml")), home()))
plan.copy_plugins()
write_record(Path(plan.path), plan.file())
"""
#: makes results one by one in forks of a process that has imported torch, which is most of a job
JOBS = """
import contextlib, json, os, shlex, sys
import torch
from calgrid.cli import main
from calgrid.jobs import calibrate, predict, train

for record, command in json.loads(sys.argv[1]):
    with contextlib.suppress(FileNotFoundError):
        os.unlink(record)
    with contextlib.suppress(FileNotFoundError):
        open("/next job")  # seen in the trace
    child = os.fork()
    if not child:
        os._exit(main(shlex.split(command)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, command
"""


def write_sources(root, finished):
    """Files of every kind below ``data``, and a plugin."""
    data = root / "data"
    data.mkdir()
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 120)
    values = (rng.normal(size=(120, 3)) + 2 * np.eye(3)[labels]).astype(np.float32)
    table = pd.DataFrame(values, columns=["0", "1", "2"]).assign(label=labels)
    table.to_csv(data / "a.csv", index=False)
    pd.DataFrame({"logits": list(values), "label": labels}).to_parquet(data / "b.parquet")
    np.savez(data / "c.npz", logits=values, label=labels)
    torch.save({"logits": torch.tensor(values), "label": torch.tensor(labels)}, data / "d.pt")
    counts = np.ones((120, 3), dtype=np.int64) + 5 * np.eye(3, dtype=np.int64)[labels]
    np.save(data / "counts.npy", counts)
    for name, count, seed in (("train", 90, 1), ("test", 60, 2)):
        pixels, classes = draw(count, seed=seed)
        write_parquet(data / f"pictures/{name}.parquet", map(encoded, pixels), classes)
        write_folder(data / f"folders/{name}", pixels, classes, ["ant", "bee", "cow"])
    pixels, classes = draw(60, seed=3)
    write_parquet(data / "pictures/night.parquet", map(encoded, pixels), classes)
    states, _ = load_checkpoint(finished.result("ce", "train") / "model.safetensors")
    save_file(states["last.model"], data / "weights.safetensors")
    (root / "mine.csv").write_text(NUMBERS)
    for name, content in PLUGIN.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)


def configuration():
    common = {"kind": "logits", "split_seed": 1, "calibrators": ["none", "mine_ts"]}
    external = {}
    for kind, name in LOGITS.items():
        external[kind] = {**common, "test": name, "dataset": "d", "method": kind}
    for method, place in (("ce", "bank.zip"), ("mbls", "bank")):
        taken = {"base": "bank", "file": place, "methods": [method], "calibrators": ["none"]}
        external[f"bank_{method}"] = taken
    own = {**CONFIG["protocols"]["quick"], "epochs": 1}
    taken = {"base": "published", "weights": "file", "weights_file": "weights.safetensors"}
    place = {"backbones": ["resnet8"], "seeds": [1], "calibrators": ["none"]}
    pictures = {"train": "pictures/train.parquet", "test": "pictures/test.parquet"}
    folders = {"train": "folders/train", "test": "folders/test"}
    return {
        **CONFIG,
        "study": "read",
        "data_root": "data",
        "plugins": ["mine"],
        "protocols": {**CONFIG["protocols"], "own": own, "taken": taken},
        "datasets": {
            "pictures": {"base": "image_parquet", "val_size": 30, **pictures},
            "folders": {"base": "image_folder", "val_size": 30, "image_size": 8, **folders},
            "night": {
                "base": "shifted_parquet",
                "of": "pictures",
                "test": "pictures/night.parquet",
                "shift": "night",
            },
        },
        "grids": [
            {
                **place,
                "protocol": "own",
                "datasets": ["pictures"],
                "methods": ["ce", "ens1(ce)"],
                "shifts": ["night"],
                "probes": ["prototypes"],
            },
            {**place, "protocol": "own", "datasets": ["folders"], "methods": ["tst"]},
            {**place, "protocol": "taken", "datasets": ["digits"], "methods": ["ce"]},
        ],
        "external": external,
        "label_counts": {"d": "counts.npy"},
        "published": ["mine.csv"],
        "papers": ["smart"],
    }


class Study:
    """The study, what each of its jobs opened, and its plan."""

    def __init__(self, root, finished):
        self.repository = Repository(root)
        self.root = root.resolve()
        write_sources(root, finished)
        finished.shell(
            f"calgrid pack results/tiny {root}/data/bank.zip --creator A --licence CC0-1.0"
        )
        self.repository.shell("cd data; python -m zipfile -e bank.zip bank")
        self.repository.configure(configuration(), "read.yaml")
        self.repository.shell(f"python -c '{PLAN}'")
        said = self.repository.run("read.yaml", "-n", "-F", "-p")
        commands = re.findall(
            r"^Shell command: python -m calgrid (.*) >>", said.stdout + said.stderr, re.M
        )
        outputs = [Path(re.search(r"--out '?([^\s']+)", each)[1]) for each in commands]
        records = [out if out.suffix == ".json" else out / record_of(out) for out in outputs]
        for log in re.findall(r"--log (\S+)/", "\n".join(commands)):
            (root / log).mkdir(parents=True, exist_ok=True)
        opened = self._traced(list(zip(map(str, records), commands, strict=True)), root.parent)
        (plan,) = root.glob("results/read/.calgrid/plan-*.json")
        self.inputs = json.loads(plan.read_text())["inputs"]
        #: what is read -> output of the job that reads it, its record, and the files that it opened
        self.jobs = {}
        made = list(zip(commands, outputs, records, opened, strict=True))
        for what, pattern in READERS.items():
            output, record, files = next(
                rest for command, *rest in made if re.search(pattern, command)
            )
            self.jobs[what] = output, json.loads((root / record).read_text()), files

    def _traced(self, todo, folder):
        """Files below the repository that each job opens to read."""
        trace = folder / "trace.txt"
        call = ["strace", "-f", "-qq", "--seccomp-bpf", "-e", "trace=openat,open", "-o", trace]
        environment = {**os.environ, "PYTHONPATH": str(self.root / "src"), "OMP_NUM_THREADS": "1"}
        environment |= {"CALGRID_DEVICE": "cpu", "CALGRID_PLUGINS": "mine"}
        done = subprocess.run(
            [*call, sys.executable, "-c", JOBS, json.dumps(todo)],
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        _, *parts = re.split('"/next job".*', trace.read_text(errors="replace"))
        return map(self._opened, parts)

    def _opened(self, trace):
        found = set()
        for line in trace.splitlines():
            match = re.search(r'open(?:at)?\((?:AT_FDCWD, )?"([^"]*)", ([A-Z_|]+).*= \d+', line)
            if match and not {"O_DIRECTORY", "O_WRONLY"} & set(match[2].split("|")):
                path = Path(os.path.normpath(self.root / match[1]))
                if path.is_file() and path.is_relative_to(self.root):
                    found.add(path.relative_to(self.root))
        return found


@pytest.fixture(scope="module")
def study(tmp_path_factory, finished):
    return Study(tmp_path_factory.mktemp("read") / "repository", finished)


def listed_in(path):
    """Files that a record or manifest lists."""
    content = json.loads(path.read_text())
    return content.get("files", {}) if isinstance(content, dict) else {}


def named(root, folder, record):
    """Files and folders that a record names, and the records of results above.

    A record or manifest that it names lists the digests of further files.
    """
    inputs = record["inputs"]
    found = set()
    for name in inputs["files"]:
        found |= {Path(os.path.relpath(root / name, root)), Path("data", name)}
    for place, files in inputs["results"].items():
        above = Path(os.path.normpath(folder / place))
        found |= {above / name for name in (*files, record_of(above))}
        for name in files:
            if name.endswith(".json"):
                found |= {above / each for each in listed_in(root / above / name)}
    if inputs["plugins"]:
        found.add(Path("results/.plugins", inputs["plugins"]))
    return found


def is_free(path, folder):
    """Whether a file is the job's own, its plan or log, a cache of fits whose names are digests of
    all that they are made from, or code of calgrid, whose closure other tests prove.
    """
    own = path.is_relative_to(folder) or f"{folder.name}.partial" in path.parts
    log = path.is_relative_to("results/logs") or path.name.startswith("plan-")
    fits = path.is_relative_to(folder.parent / "fits")
    return own or log or fits or path.is_relative_to("src/calgrid")


@pytest.mark.parametrize("read", READERS)
def test_a_record_names_every_file_that_its_job_opens(study, read):
    output, content, opened = study.jobs[read]
    folder = output.parents[1] if output.suffix == ".json" else output
    allowed = named(study.root, folder, content)
    unnamed = set()
    for path in opened:
        source = path
        if path.suffix == ".pyc":
            source = path.parent.parent / f"{path.name.split('.')[0]}.py"
        below = any(source == each or source.is_relative_to(each) for each in allowed)
        if not below and not is_free(source, folder):
            unnamed.add(str(path))
    assert not unnamed
    if output.suffix != ".json":
        declared = {Path(name).parent for name in study.inputs[str(output)]["reads"]}
        above = [os.path.normpath(folder / place) for place in content["inputs"]["results"]]
        assert set(map(Path, above)) <= declared
