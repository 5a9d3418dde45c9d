"""Configurations of the repository: all can be planned, those of papers have the tables' runs."""

import itertools
import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml
from tests.conftest import HOME

from calgrid.cli.main import main
from calgrid.components import registry
from calgrid.errors import ConfigError
from calgrid.papers.declared import declared
from calgrid.plan.plan import Plan
from calgrid.storage.records import RunKey, write_record
from calgrid.study.datasets import DatasetCatalog, as_list
from calgrid.study.runs import registered_methods
from calgrid.study.study import Study
from calgrid.study.yaml_files import read_configuration, with_include

FILES = [
    path
    for pattern in ("*.yaml", "studies/*.yaml", "papers/*/study.yaml")
    for path in sorted((HOME / "config").glob(pattern))
]
#: they name runs of others
DEPENDENT = [HOME / f"config/studies/{n}.yaml" for n in ("photographs_val_size", "smart_figure5")]


def test_the_schema_for_editors_accepts_shipped_configurations_and_no_wrong_key(capsys):
    assert main(["schema"]) == 0
    schema = jsonschema.Draft202012Validator(json.loads(capsys.readouterr().out))
    for path in FILES:
        schema.validate(yaml.safe_load(path.read_text()))
    (error,) = schema.iter_errors({"study": "mine", "grid": []})
    assert "'grid' was unexpected" in error.message


def with_files(config, folder):
    """A configuration with the files that a user brings, which are empty."""
    config = with_include(config, HOME)
    files = list(config.get("label_counts", {}).values())
    for configured in config.get("datasets", {}).values():
        # val of a registered data set says how it is drawn
        if {"train", "shift"} & set(configured):
            files += [
                name
                for role in {"train", "val", "test"} & set(configured)
                for name in as_list(configured[role])
            ]
    for external in config.get("external", {}).values():
        files += [external[role] for role in {"val", "test"} & set(external)]
    for grid in config.get("grids", ()):
        if weights := config.get("protocols", {}).get(grid["protocol"], {}).get("weights_file"):
            names = (HOME / grid["backbones"]).read_text().split()
            files += [weights.format(backbone=name) for name in names]
    for file in (folder / name for name in files):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    return {**config, "data_root": str(folder)} if files else config


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if path not in DEPENDENT],
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_shipped_configuration_can_be_planned(path, tmp_path):
    config = with_files(yaml.safe_load(path.read_text()), tmp_path)
    manifest = Plan(Study(config, HOME)).manifest()
    names = {"config": "digits", "study": path.parent.name}
    assert manifest["configuration"]["study"] == names.get(path.stem, path.stem)
    assert manifest["runs"]


@pytest.mark.parametrize("path", DEPENDENT, ids=lambda path: path.stem)
def test_shipped_configuration_names_single_runs_of_another(path, tmp_path, monkeypatch, refuses):
    monkeypatch.chdir(tmp_path)
    config = yaml.safe_load(path.read_text())
    (name,) = {entry["run"]["study"] for entry in config["external"].values()}
    (other,) = [each for each in map(read_configuration, FILES) if each["study"] == name]
    with refuses(ConfigError, f"the study '{name}' does not exist in the folder 'results'; run it"):
        Study(config, HOME)
    # those of the empty files
    monkeypatch.setattr(DatasetCatalog, "sizes", lambda *_: None)
    plan = Plan(Study(with_files(other, tmp_path), HOME))
    write_record(Path(plan.path), plan.file())
    for entry in config["external"].values():
        (key,) = [
            key
            for key in plan.study.evaluations
            if {**key._asdict(), "study": name}.items() >= entry["run"].items()
        ]
        with refuses(ConfigError, f"{key.path} of study '{name}' is not finished; run that study"):
            Study({**config, "external": {"its": entry}}, HOME)


def test_the_study_of_all_methods_runs_every_registered_method():
    config = yaml.safe_load((HOME / "config/all_methods.yaml").read_text())
    assert set(registered_methods()) <= set(config["grids"][0]["methods"])


def test_the_study_of_all_calibrators_fits_every_registered_calibrator():
    config = yaml.safe_load((HOME / "config/all_calibrators.yaml").read_text())
    assert set(config["grids"][0]["calibrators"]) == set(registry.descriptions("calibrator"))


def study_of(name, data_root="data"):
    config = yaml.safe_load((HOME / f"config/papers/{name}/study.yaml").read_text())
    return Study({**config, "data_root": str(data_root)}, HOME)


@pytest.fixture(scope="module")
def fedlas():
    return study_of("fedlas")


@pytest.fixture(scope="module")
def maccal():
    return study_of("maccal")


@pytest.fixture(scope="module")
def smart(tmp_path_factory):
    return study_of("smart", tmp_path_factory.mktemp("data"))


def runs_with(study, **where):
    return sum(
        all(getattr(key, axis) == value for axis, value in where.items()) for key in study.runs
    )


def wanted(study):
    """Places of the cells of a paper's tables, each with its method and second stage."""
    (name,) = study.config.papers
    for table in declared(name).tables:
        if (name, table.id) != ("smart", "figure5"):  # of which there is a study of its own
            for cell in table.cells:
                if cell["metric"] not in table.ranks:
                    yield from table.places(cell)


@pytest.mark.parametrize("name", ["fedlas", "maccal", "smart"])
def test_every_cell_of_every_table_gets_a_number(name, request):
    study = request.getfixturevalue(name)
    for place in wanted(study):
        assert [
            each
            for key, each in study.evaluations.items()
            if (key.method, key.dataset, key.backbone)
            == (place["method"], place["dataset"], place["backbone"])
            and place["calibrator"] in each.calibrators
            and place["fit_on"] in each.fit_on
            and place["shift"] in ("", *each.families, *shifts_of(each))
        ], place


def shifts_of(evaluation):
    """Names of corruptions of the families of an evaluation, and that of their mean."""
    infos = [
        registry.describe("dataset", name.removeprefix("ood/")).info for name in evaluation.families
    ]
    return ["mean" for _ in infos[:1]] + [
        shift for info in infos for shift in info.get("shifts", ())
    ]


#: figures whose other methods are shown as they were trained: the method whose runs the probe
#: measures
MEASURED = {"masked_inference": ["ce"]}


def planned(study, at, entry):
    """Evaluations of a place with all calibrators of an entry and one of its shifts."""
    return [
        each
        for key, each in study.evaluations.items()
        if all(getattr(key, axis) == value for axis, value in at.items())
        and set(entry.calibrator) <= set(each.calibrators)
        and (not entry.shift or set(entry.shift) & set(each.families))
    ]


@pytest.mark.parametrize("name", ["fedlas", "maccal", "smart"])
def test_every_figure_can_be_drawn_at_each_place_that_its_list_names(name, tmp_path):
    """Methods, calibrators, shifts and probes; what comes from elsewhere the list says."""
    study = study_of(name, tmp_path)
    for entry in declared(name).figures:
        axes = {"dataset": entry.dataset, "backbone": entry.backbone, "method": entry.method}
        axes = {axis: names for axis, names in axes.items() if names}
        for values in itertools.product(*axes.values()):
            place = dict(zip(axes, values, strict=True))
            assert planned(study, place, entry), (entry.number, values)
        assert set(entry.shift) <= {
            family for each in planned(study, {}, entry) for family in each.families
        }
        probe = entry.needs.removeprefix("the probe ")
        if probe != entry.needs:
            axes["method"] = MEASURED.get(entry.figure, entry.method)
            for values in itertools.product(*axes.values()):
                found = planned(study, dict(zip(axes, values, strict=True)), entry)
                ids = {each["id"] for evaluation in found for each in evaluation.probes.values()}
                assert probe in ids, (entry.number, values)


def test_runs_of_fedlas(fedlas):
    rows, seeds = 15, 3  # Table 1 has sixteen rows, of which CE + TS trains nothing
    columns = 3 * 2
    fine = 9 * 2 * 2
    dropout = 3
    trained = rows * columns * seeds + fine + dropout
    assert len({*fedlas.training.values()}) == trained == 309
    # CIFAR is tested with two pairs of constants
    assert len(fedlas.evaluations) == trained + rows * 4 * seeds
    assert runs_with(fedlas, dataset="tiny_imagenet") == rows * 2 * seeds
    for protocol in ("finegrained", "finegrained_vit"):
        assert runs_with(fedlas, protocol=protocol) == 9 * 2


def test_runs_of_maccal(maccal):
    rows, plugged, cells = 16, 10, 2 * 4 + 1
    ablation, widths, masks, mixing, factors = 4 * 2, 2 * 2, 5, 3 * 3, 6 * 2
    total = (rows + plugged) * cells + ablation + widths + masks + mixing + factors
    trained = {*maccal.training.values()}
    assert len(trained) == total == 272
    # Tables 1 to 4 on CIFAR are tested with two pairs of constants
    assert len(maccal.evaluations) == total + (rows + plugged) * 8
    first = [key for key in trained if maccal.runs[key].first_stage is None]
    assert (
        len(first) == 13 * cells + 6
    )  # thirteen full trainings a cell, and six strengths of mixing


def test_runs_of_smart(smart):
    """Eight cells of six losses; networks on ImageNet, -LT and -Sketch; six with variants."""
    assert len(smart.runs) == 8 * 6 + 6 + 6 + 5 + 6
    # variants of calibrators are fitted to the same networks under another name
    assert len({*smart.training.values()}) == len(smart.runs) - 6
    assert {tuple(each.calibrator_seeds) for each in smart.evaluations.values()} == {
        (1, 2, 3, 4, 5)
    }
    shifted = {key.backbone for key in smart.runs if smart.families(key) == ["imagenet_c"]}
    assert shifted == {key.backbone for key in smart.runs if "imagenet" in key.backbone} - {
        "imagenet_wide_resnet50"
    }


def test_runs_of_maccal_are_those_of_any_study_with_its_protocol(maccal, make_config):
    grid = {"protocol": "fcline", "datasets": ["cifar10"], "backbones": ["resnet50"]}
    grid |= {"methods": ["ce", "mixup", "tst"]}
    other = Plan(Study(make_config(grid, data_root="data"), HOME))
    mine = Plan(maccal)
    for key in other.study.runs:
        assert mine.run_fingerprint(key) == other.run_fingerprint(key)


class TestHyperparametersOfPapers:
    """What the studies resolve is what `hyperparameters.yaml` of each paper lists."""

    def listed(self, name):
        path = HOME / f"config/papers/{name}/hyperparameters.yaml"
        entries = yaml.safe_load(path.read_text())
        assert all(entry["source"] for entry in entries)
        options = {}
        for entry in entries:
            if "like" in entry:
                entry["options"] = {**options[entry["like"]], **entry["options"]}
            options[entry.get("method")] = entry["options"]
        return entries

    def fitting(self, entries, kind, value, key):
        """Number of the first entry about a run, and its options."""
        return next(
            (number, entry["options"])
            for number, entry in enumerate(entries)
            if entry.get(kind) == value
            and all(
                getattr(key, axis) in as_list(entry.get(axis, getattr(key, axis)))
                for axis in ("protocol", "dataset", "backbone")
            )
        )

    @pytest.mark.parametrize("name", ["fedlas", "maccal", "smart"])
    def test_of_methods(self, name, request):
        study, entries = request.getfixturevalue(name), self.listed(name)
        used = set()
        for key in study.evaluations:
            method = study.runs[key].method
            if "+" in key.method:
                continue  # both parts have entries of their own
            number, expected = self.fitting(entries, "method", key.method, key)
            found = {**method.loss_options, **method.procedure_options}
            del found["reduction"]  # of the training
            assert found == expected, key.path
            used.add(number)
        assert used == {n for n, entry in enumerate(entries) if "method" in entry}

    @pytest.mark.parametrize("name", ["fedlas", "maccal"])
    def test_of_training(self, name, request):
        study, entries = request.getfixturevalue(name), self.listed(name)
        used = set()
        for key, run in study.runs.items():
            stage = "first" if run.first_stage is None else "second"
            number, expected = self.fitting(entries, "training", stage, key)
            options = run.protocol.model_dump()
            optimizer, schedule = options.pop("optimizer"), options.pop("schedule")
            names = {"optimizer": optimizer["name"], "schedule": schedule["name"]}
            flat = {**options, **optimizer, **schedule, **names}
            assert {option: flat[option] for option in expected} == expected, key.path
            assert run.method.loss_options["reduction"] == expected["reduction"]
            used.add(number)
        assert used == {n for n, entry in enumerate(entries) if "training" in entry}

    def varied(self, name):
        """Option that the name of a variant says, or both: smart_s005_d0001, ts_ls."""
        if numbers := re.search("_s([0-9]+)_d([0-9]+)", name):
            sigma, delta = (float(f"{digits[0]}.{digits[1:]}") for digits in numbers.groups())
            return {"sigma": sigma, "delta": delta}
        said = name.partition("_")[2]
        objectives = ("nll", "ls", "mse", "brier", "softece", "charbonnier")
        return {"objective" if said in objectives else "indicator": said}

    def test_of_calibrators(self, smart):
        entries = {
            entry["calibrator"]: entry["options"]
            for entry in self.listed("smart")
            if "calibrator" in entry
        }
        fitted = {each for wanted in smart.evaluations.values() for each in wanted.calibrators}
        bases = {name: name.partition("_")[0] for name in fitted - {*entries, "none"}}
        assert set(bases.values()) == {"ts", "pts", "smart"}
        assert len(bases) == 39
        expected = dict(entries)
        for name, base in bases.items():
            expected[name] = {**entries[base], **self.varied(name)}
        assert set(expected) == fitted - {"none"}
        for name, options in expected.items():
            found = smart.calibrators.resolve(name, "here")["options"]
            assert {option: found[option] for option in options} == options, name


def test_figure_5_of_smart_has_what_the_study_of_its_tables_makes(smart):
    config = read_configuration(HOME / "config/studies/smart_figure5.yaml")
    (entry,) = config["external"].values()
    available = smart.datasets.describe("imagenet").info["sizes"]["val"]
    assert max(entry["val_rows"]) == available
    paper = declared("smart")
    (table,) = [each for each in paper.tables if each.id == "figure5"]
    sizes = [row.where["dataset"] for row in table.printed_rows]
    assert sizes == [f"imagenet_n{rows}" for rows in entry["val_rows"]]
    # gc_ts reads the features beside the logits
    key = RunKey("published", "imagenet", "imagenet_vit_b32", "ce", 1)
    assert smart.runs[key].protocol.export_features
    (figure,) = [each for each in paper.figures if each.number == "5"]
    assert (figure.backbone, "smart_figure5.yaml" in figure.note) == ([key.backbone], True)


@pytest.fixture(scope="module")
def ablation(home):
    return Study(read_configuration(home / "config" / "studies" / "fedlas_ablation.yaml"), home)


class TestFedlasAblation:
    def test_each_variant_changes_one_hyper_parameter(self, ablation):
        methods = {key.method: run.method for key, run in ablation.runs.items()}
        for name, method in methods.items():
            base = next(
                (each for each in ("fedlas_mbls", "fedlas_ls") if name.startswith(f"{each}_")), None
            )
            if base is not None:
                options, usual = dict(method.loss_options), dict(methods[base].loss_options)
                assert sum(options[key] != usual[key] for key in usual) == 1, name

    def test_plain_losses_differ_from_fedlas_by_the_module_only(self, ablation):
        options = {key.method: run.method.loss_options for key, run in ablation.runs.items()}
        assert options["ls"]["alpha"] == options["fedlas_ls"]["alpha"]
        assert all(
            options["mbls"][key] == options["fedlas_mbls"][key] for key in ("margin", "lambda_")
        )
