"""Studies made of random logits, as the workflow writes them, small enough for tests."""

import copy
import itertools
import shutil
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.jobs.small import calibrate

from calgrid.calibrators import build_calibrator
from calgrid.jobs.aggregate import run as aggregate
from calgrid.papers.figures import FIGURES, write_figures
from calgrid.papers.tables import write_tables
from calgrid.report.figures import FORMATS
from calgrid.report.study import StudyData
from calgrid.report.tables import TABLES
from calgrid.storage.logits import Logits, read_logits, write_logits
from calgrid.storage.publish import Call
from calgrid.storage.records import FILES, SPLITS, RunKey, listed, logits_file, write_record
from calgrid.storage.schema import RUN_KEY
from calgrid.storage.tables import write_frame
from calgrid.study.runs import CalibratorCatalog

#: method -> (how far it separates the classes, factor on its calibrated logits: above 1 is
#: overconfident)
METHODS = {
    "ce": (3.6, 1.8),
    "ls": (3.6, 0.6),
    "fl3": (3.5, 1.15),
    "mbls": (3.7, 1.05),
    "brier": (3.55, 1.3),
    "mixup": (3.65, 0.5),
    "mmce": (2.6, 1.0),
    "adafocal": (3.55, 1.1),
    "fedlas_ls": (3.65, 0.8),
    "fedlas_mbls": (3.68, 1.1),
    "fedlas_ls_const": (3.6, 0.65),
    "mixup_a01": (3.66, 0.9),
    "mixup_a05": (3.64, 0.8),
    "maccal": (3.7, 1.05),
    "maccal_l09": (3.68, 1.1),
    "maccal_l10": (3.65, 1.3),
    "maccal+mixup": (3.7, 0.9),
    "maccal+mixup_a01": (3.7, 0.98),
    "maccal+mixup_a05": (3.7, 0.95),
}
#: indicators of the methods that have one
INDICATORS = {"fedlas_ls": "nci_l1", "fedlas_mbls": "nci_l1", "fedlas_ls_const": "const"}
#: folders of the results of a run
TRAINED, PREDICTED, CALIBRATED = "train-0", "predict-0", "calibrate-0"
#: recipe of a study of clean images alone, and of one without intervals too
UNSHIFTED = {"shifts": (), "ood": ()}
CLEAN = {**UNSHIFTED, "resamples": 0}
#: the smallest recipes with two methods, and with three groups
PAIR = {"methods": ("ce", "ls"), "seeds": (0,), **CLEAN}
THREE = {"methods": ("ce",), "seeds": (0,), **CLEAN, "backbones": ("a", "b", "c")}
#: of each training: epochs, those at which the rate drops, and samples
EPOCHS, DROPS, N_TRAIN = 6, (3, 5), 150
#: family of the shifts
CORRUPTIONS = "digits_c"


@dataclass
class Recipe:
    """What a synthetic study holds."""

    methods: tuple[str, ...] = ("ce", "ls", "mmce")
    seeds: tuple[int, ...] = (0, 1, 2)
    calibrators: tuple[str, ...] = ("none", "ts")
    shifts: tuple[str, ...] = ("gaussian_noise", "contrast")
    severities: tuple[int, ...] = (1, 5)
    ood: tuple[str, ...] = ("ood/photos",)
    datasets: tuple[str, ...] = ("digits",)
    backbones: tuple[str, ...] = ("resnet8",)
    checkpoints: tuple[str, ...] = ("last",)
    n_test: int = 240
    n_classes: int = 4
    resamples: int = 50
    external: bool = False
    published: tuple[Path, ...] = ()
    comparisons: tuple[dict[str, str], ...] = ()
    sees_validation: tuple[str, ...] = ()
    truth_known_of: tuple[str, ...] = ()
    #: blocks of the configuration beside study and statistics: variants of methods and calibrators,
    #: overrides
    configuration: dict = field(default_factory=dict)

    @property
    def protocol(self):
        return "external" if self.external else "quick"


@dataclass
class Written:
    """Where a synthetic study lies."""

    folder: Path
    manifest: dict

    def opened(self):
        """The study as it is read, and its first group."""
        data = StudyData(self.folder, self.manifest)
        return data, data.groups[0]

    def tables(self, *ids) -> Path:
        """Write all tables, or those with these identifiers; returns their folder."""
        kept = [table for table in TABLES if table.__name__ in ids or not ids]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("calgrid.report.tables.TABLES", kept)
            write_tables(self.folder, self.manifest, self.folder / "tables")
        return self.folder / "tables"

    def shown(self, table) -> dict[str, list[dict[str, str]]]:
        """Write this table alone; returns its rows: see :func:`read_markdown`."""
        return read_markdown(self.tables(table) / f"{table}.md")

    def figures(self, *ids, formats=(".png",)) -> Path:
        """Write all figures, or those with these identifiers; returns their folder."""
        kept = [kind for kind in FIGURES if kind.id in ids or not ids]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("calgrid.papers.figures.FIGURES", kept)
            write_figures(self.folder, self.manifest, self.folder / "figures", formats)
        return self.folder / "figures"


def read_markdown(path: Path) -> dict[str, list[dict[str, str]]]:
    """Tables of a Markdown file: heading -> rows, each heading of a column -> text."""
    sections = {}
    for block in path.read_text().split("\n## ")[1:]:
        heading, _, *lines = block.strip().split("\n")
        header, _, *rows = [
            [cell.strip() for cell in line.strip("|").split(" | ")] for line in lines
        ]
        sections[heading] = [dict(zip(header, row, strict=True)) for row in rows]
    return sections


def make_study(root: Path, recipe: Recipe) -> Written:
    """Write runs below ``root``, and the study with the job ``aggregate``."""
    statistics = {"bins": 15, "bootstrap": recipe.resamples, "level": 0.95, "seed": 0}
    statistics |= {"baseline": "ce", "comparisons": list(recipe.comparisons)}
    runs = []
    for place in itertools.product(recipe.datasets, recipe.backbones, recipe.methods, recipe.seeds):
        key = dict(zip(RUN_KEY, (recipe.protocol, *place), strict=True))
        run = root / "runs" / RunKey(**key).path
        runs.append(_manifest_run(key, run, recipe))
        _predict(key, run, recipe, runs[-1]["families"])
        _records(key, run, recipe)
        _calibrate(key, run, recipe, runs[-1]["families"], statistics)
    manifest = {
        "published": list(map(str, recipe.published)),
        "runs": runs,
        "folders": [],
        "configuration": {"study": "synthetic", "statistics": statistics, **recipe.configuration},
        "fingerprint": "f" * 16,
    }
    record = root / "study/.calgrid/aggregate-0.json"
    aggregate(Call(manifest, record))
    record.unlink()  # tests change files of a study, of which it has the checksums
    return Written(root / "study", manifest)


def _manifest_run(key, run, recipe):
    families = [] if recipe.external else [*recipe.ood, *([CORRUPTIONS] if recipe.shifts else [])]
    return {
        "key": key,
        "train": None if recipe.external else str(run / TRAINED),
        "predict": str(run / PREDICTED),
        "calibrate": str(run / CALIBRATED),
        "fingerprint": _fingerprint(key),
        "external": recipe.external,
        "first_stage": None,
        "families": families,
        "ood_groups": {"near": [], "far": list(recipe.ood)},
        "sees_validation": key["method"] in recipe.sees_validation,
    }


def _predict(key, run, recipe, families):
    """Write the logits of val, test and shift families."""
    _, limited, n_val = key["dataset"].partition("_n")
    parts = {
        "val": [_rows(key, int(n_val) if limited else recipe.n_test // 2, recipe, 1.0, 1)],
        "test": [_rows(key, recipe.n_test, recipe, 1.0, 2)],
    }
    for place, family in enumerate(families):
        parts[family] = [_rows(key, recipe.n_test // 2, recipe, 0.4 + 0.1 * place, 50)]
    if recipe.shifts:
        parts[CORRUPTIONS] = []
    for (place, shift), severity in itertools.product(enumerate(recipe.shifts), recipe.severities):
        kept = 1 - severity * (0.09 + 0.05 * place)
        rows = _rows(key, recipe.n_test, recipe, kept, 10 + place)
        rows.shift, rows.severity = np.full(len(rows), shift), np.full(len(rows), severity)
        parts[CORRUPTIONS].append(rows)
    for checkpoint, name in itertools.product(recipe.checkpoints, parts):
        write_logits(run / PREDICTED / logits_file(checkpoint, name), parts[name])


def _rows(key, n, recipe, keep, labels_seed):
    """Logits whose signal is ``keep`` of that on clean images."""
    signal, factor = METHODS[key["method"]]
    labels = np.random.default_rng(labels_seed).integers(0, recipe.n_classes, n)
    of_network = zlib.crc32(f"{key['method']}{key['backbone']}".encode())
    rng = np.random.default_rng([key["seed"], labels_seed, of_network])
    values = rng.normal(size=(n, recipe.n_classes))
    values[np.arange(n), labels] += signal * keep
    logits = (factor * signal * values).astype(np.float32)
    metadata = {**key, "fingerprint": _fingerprint(key)}
    return Logits(np.arange(n), labels.astype(np.int32), logits, metadata=metadata)


def _calibrate(key, run, recipe, families, statistics):
    """Score the logits, with the job ``calibrate``."""
    catalog = CalibratorCatalog(recipe.configuration.get("calibrators", {}))
    calibrators = []
    for name in recipe.calibrators:
        entry = catalog.resolve(name, "calibrators")
        calibrators.append({**entry, "seeds": [0], "fingerprint": name})
    spec = {
        "key": key,
        "checkpoints": recipe.checkpoints,
        "families": families,
        "some_classes": [],
        "ood_groups": {"near": [], "far": list(recipe.ood)},
        "fit_on": ["val"],
        "draws": [],
        "calibrators": calibrators,
        "statistics": statistics,
        "run_fingerprint": _fingerprint(key),
        "logits": dict.fromkeys(("val", "test", *families), _fingerprint(key)),
        "label_counts": None,
        "disjoint_validation": False,
        "fingerprint": _fingerprint(key),
    }
    if key["backbone"] in recipe.truth_known_of:
        val, test = (read_logits(run / PREDICTED / logits_file("last", name)) for name in SPLITS)
        truth = build_calibrator("ts").fit(val.logits, val.label).predict_proba(test.logits)
        np.save(run / "truth.npy", truth)
        spec["label_counts"] = {"file": str(run / "truth.npy")}
    calibrate(spec, run / PREDICTED, run / CALIBRATED)


def _fingerprint(key):
    return f"{zlib.crc32(str(key).encode()):016x}"


def _records(key, run, recipe):
    if recipe.external:
        files = _files(run / PREDICTED, "logits/*/*.parquet")
        record = {"spec": {}, "environment": {}, "fingerprint": "e" * 16, FILES: files}
        write_record(run / PREDICTED / "predict.json", record)
        return
    _history(key, run / TRAINED, recipe)
    environment = {"calgrid": "0.1.0", "python": "3.11.0", "torch": "2.11.0"}
    environment |= {"device": "cpu", "device_name": "x86_64", "threads": 1}
    strength = {"lambda_" if key["method"] == "fedlas_mbls" else "alpha": 0.05, "beta": 4.0}
    options = {}
    if key["method"] in INDICATORS:
        options = {"indicator": INDICATORS[key["method"]], **strength}
    spec = {"loss": {"id": key["method"], "options": options}}
    seconds = {"train": 20.0 + len(key["method"]) + key["seed"], "predict": 1.5}
    for stage, duration in seconds.items():
        record = {"spec": spec, "environment": environment, "fingerprint": "a" * 16}
        record |= {"seconds": duration, "peak_memory_mb": 512.0}
        if stage == "train":
            record.update(epochs=EPOCHS, parameters=78042)
        folder = run / (TRAINED if stage == "train" else PREDICTED)
        write_record(folder / f"{stage}.json", {**record, FILES: _files(folder, "**/*.parquet")})


def _files(run, pattern):
    return listed(run, [str(path.relative_to(run)) for path in run.glob(pattern)])


def _history(key, run, recipe):
    second_stage = "+" in key["method"]
    epochs = np.arange(EPOCHS // 2 if second_stage else EPOCHS)
    drops = (epochs[:, None] >= np.array(DROPS)).sum(axis=1) * (not second_stage)
    rng = np.random.default_rng([key["seed"], zlib.crc32(key["method"].encode())])
    rise = 1 - np.exp(-(epochs + 1 + 4 * drops) / (EPOCHS / 5))
    signal, _ = METHODS[key["method"]]
    history = pd.DataFrame(
        {
            "epoch": epochs.astype(np.int32),
            "learning_rate": 0.1 * 0.1**drops,
            "train_loss": signal * (1.05 - rise) + 0.05 * rng.random(len(epochs)),
            "train_accuracy": 0.1 + 0.89 * rise,
            "train_ce": 1.05 - rise,
            "val_accuracy": 0.1 + 0.23 * signal * rise + 0.01 * rng.random(len(epochs)),
            "val_nll": 7.0 / signal * (1.15 - rise) + 0.02 * rng.random(len(epochs)),
            "val_refinement": 5.0 / signal * (1.15 - rise),
            "val_calibration": 2.0 / signal * (1.15 - rise) + 0.02 * rng.random(len(epochs)),
        }
    )
    if key["method"] in INDICATORS:
        history = history.assign(**_diagnostics(key, run, recipe))
    if key["method"].startswith("maccal"):
        history = history.assign(**_masking(rng, len(epochs)))
    write_frame(run / "history.parquet", history)


def _masking(rng, epochs):
    """Columns of the history of a MaC-Cal run."""
    return {
        "retention": np.linspace(0.5, 0.4, epochs) + 0.01 * rng.random(epochs),
        "masked_accuracy": np.linspace(0.4, 0.98, epochs),
        "masked_confidence": np.linspace(0.2, 0.9, epochs) + 0.01 * rng.random(epochs),
        "clip": 0.05 * np.exp(-np.arange(epochs)),
    }


def _diagnostics(key, run, recipe):
    """Columns of the history of a FeDLaS run, agreeing with its file of training samples."""
    tables = [_samples(key, recipe, epoch) for epoch in range(EPOCHS)]
    write_frame(run / "samples.parquet", pd.concat(tables[::2]))
    gates = np.stack([table["gate"] for table in tables])
    ranks = [table.rank() for table in tables]
    return {
        "positive_share": (gates > 0).mean(axis=1),
        "flip_rate": np.concatenate([[np.nan], (gates[1:] != gates[:-1]).mean(axis=1)]),
        "mean_smoothing": [table["smoothing"].mean() for table in tables],
        "nci_correct_pearson": [table["nci"].corr(table["correct"]) for table in tables],
        "nci_confidence_pearson": [table["nci"].corr(table["confidence"]) for table in tables],
        "nci_correct_spearman": [table["nci"].corr(table["correct"]) for table in ranks],
    }


def _samples(key, recipe, epoch):
    """Training samples; confidence grows with the indicator and over the epochs."""
    rng = np.random.default_rng([key["seed"], epoch, zlib.crc32(key["method"].encode())])
    varies = INDICATORS[key["method"]] != "const"
    nci = rng.normal(size=N_TRAIN) if varies else np.ones(N_TRAIN)
    confidence = 1 / (1 + np.exp(-0.8 - 0.4 * epoch - nci - 0.6 * rng.normal(size=N_TRAIN)))
    gate = np.where(rng.random(N_TRAIN) < 0.8 / (1 + 0.5 * epoch), 1, -1)
    columns = {
        "epoch": np.int32(epoch),
        "index": np.arange(N_TRAIN),
        "label": rng.integers(0, recipe.n_classes, N_TRAIN),
        "correct": (rng.random(N_TRAIN) < confidence).astype(int),
        "confidence": confidence,
        "norm": 40 + 9 * nci,
        "nci": nci,
        "gate": gate,
        "smoothing": 0.1 / (1 + np.exp(-4 * gate * nci)),
    }
    return pd.DataFrame(columns)


@pytest.fixture(scope="session")
def make(tmp_path_factory):
    """Function that writes a study from the fields of its recipe, once for all tests that ask."""
    made = {}

    def shared(**fields):
        recipe = Recipe(**fields)
        if repr(recipe) not in made:
            made[repr(recipe)] = make_study(tmp_path_factory.mktemp("made"), recipe)
        written = made[repr(recipe)]
        return Written(written.folder, copy.deepcopy(written.manifest))

    return shared


@pytest.fixture
def build(make, tmp_path):
    """Function that copies such a study for a test that changes its files."""

    def copied(**fields):
        written = make(**fields)
        made = shutil.ignore_patterns("tables", "figures", "report.html")
        shutil.copytree(written.folder, tmp_path / "study", ignore=made)
        return Written(tmp_path / "study", written.manifest)

    return copied


@pytest.fixture(scope="session")
def study(make) -> Written:
    """Three methods, three seeds, two calibrators, corruptions and an OOD set."""
    return make()


@pytest.fixture(scope="session")
def ablation(make) -> Written:
    """FeDLaS with several indicators, a method that sees validation data, and questions."""
    gain = {"question": "Is the gain more than noise?", "method": "fedlas_ls", "against": "ls"}
    use = {"question": "Are validation data of use?", "method": "adafocal", "against": "ce"}
    return make(
        methods=("ce", "ls", "adafocal", *INDICATORS),
        seeds=(0, 1),
        **UNSHIFTED,
        calibrators=("none", "iso", "ts"),
        comparisons=(gain, use),
        sees_validation=("adafocal",),
    )


@pytest.fixture(scope="session")
def external(make) -> Written:
    """One external run: no history, no shifts, one seed."""
    return make(methods=("ce",), seeds=(0,), **UNSHIFTED, external=True)


@pytest.fixture(scope="session")
def sizes(make) -> Written:
    """An external network with two numbers of validation rows."""
    return make(
        methods=("ce",),
        seeds=(1,),
        datasets=("digits_n40", "digits_n200"),
        calibrators=("none", "ts", "pts", "smart"),
        **CLEAN,
        external=True,
    )


@pytest.fixture(scope="session")
def tables(study) -> Path:
    return study.tables()


@pytest.fixture(scope="session")
def figures(study) -> Path:
    return study.figures(formats=tuple(FORMATS))


@pytest.fixture(scope="session")
def ablation_tables(ablation) -> Path:
    return ablation.tables()


@pytest.fixture(scope="session")
def ablation_figures(ablation) -> Path:
    return ablation.figures()


@pytest.fixture(scope="session")
def external_figures(external) -> Path:
    return external.figures()
