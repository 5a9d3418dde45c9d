"""Schemas: every key is described, defaults are filled in, files of the repository follow them."""

import re
from pathlib import Path

import pytest
import yaml

from calgrid.configuration.protocols import ProtocolBook, for_stage, merge
from calgrid.configuration.schema import described_keys, fill_defaults, load_schema
from calgrid.configuration.study import Study

SCHEMAS = ("config", "protocol", "table", "claims")


@pytest.fixture
def schema_path(home):
    return lambda name: home / "workflow" / "schemas" / f"{name}.schema.yaml"


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_key_has_a_description(schema_path, name):
    keys = dict(described_keys(schema_path(name)))
    assert len(keys) > 15
    assert {key for key, text in keys.items() if len(text) < 5} == set()


def test_the_readme_of_configurations_names_every_key(home):
    keys = load_schema(home / "workflow" / "schemas" / "config.schema.yaml")["properties"]
    rows = re.findall(r"^\| `(\w+)` \| ", (home / "config" / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted(keys)


@pytest.mark.parametrize("name", SCHEMAS)
def test_no_object_takes_unknown_keys_silently(schema_path, name):
    """Except variants, whose other keys are checked against what they are variants of."""
    open_objects = []
    waiting = [("", load_schema(schema_path(name)))]
    while waiting:
        place, node = waiting.pop()
        if isinstance(node, dict):
            if "properties" in node and "additionalProperties" not in node:
                open_objects.append(place)
            waiting.extend((f"{place}.{key}", child) for key, child in node.items())
    assert {place.rsplit(".", 1)[-1] for place in open_objects} <= {"variant", "additionalProperties", "match", "if"}


def test_defaults_are_filled_in_at_every_level(make_config, home):
    study = Study(make_config(), home)
    assert study.config["results"] == "results"
    assert study.config["device"] == "auto"
    assert study.config["data_root"] is None
    assert study.config["published"] == []
    defaults = {"bins": 15, "bootstrap": 1000, "level": 0.95, "seed": 0, "baseline": "ce"}
    assert defaults.items() <= study.config["statistics"].items()
    (grid,) = study.config["grids"]
    assert grid["calibrators"] == ["none"]
    assert grid["calibrator_seeds"] == [0]
    assert grid["shifts"] == []


def test_what_is_given_wins_over_defaults(make_config, home):
    study = Study(make_config({"calibrators": ["ts"]}, statistics={"bins": 20}), home)
    assert study.config["statistics"]["bins"] == 20
    assert study.config["statistics"]["bootstrap"] == 1000
    assert study.config["grids"][0]["calibrators"] == ["ts"]


def test_filling_in_leaves_the_given_configuration_alone(schema_path, make_config):
    config = make_config()
    before = yaml.safe_dump(config)
    fill_defaults(config, schema_path("config"))
    assert yaml.safe_dump(config) == before


@pytest.mark.parametrize(
    "path", sorted(Path(__file__).parents[2].glob("config/protocols/*.yaml")), ids=lambda p: p.stem
)
def test_every_protocol_of_the_repository_is_valid(home, schema_path, path):
    book = ProtocolBook(path.parent, schema_path("protocol"), {})
    protocol = book.get(path.stem, "here")
    assert (protocol["epochs"] >= 1) == (protocol["weights"] == "trained")
    assert "description" not in protocol  # words about it never change a fingerprint
    assert len(yaml.safe_load(path.read_text())["description"]) > 20


def test_the_default_configuration_is_valid(home):
    study = Study(yaml.safe_load((home / "config" / "config.yaml").read_text()), home)
    assert study.layout.study == "digits"
    assert {key.dataset for key in study.runs} == {"digits"}


class TestProtocols:
    @pytest.fixture
    def get(self, home, schema_path):
        def get(**change):
            variants = {"p": {"base": "digits", **change}}
            return ProtocolBook(home / "config" / "protocols", schema_path("protocol"), variants).get("p", "here")

        return get

    def test_a_variant_changes_its_keys_level_by_level(self, get):
        base, variant = get(), get(optimizer={"lr": 0.5}, batch_size=7)
        assert variant["optimizer"] == {**base["optimizer"], "lr": 0.5}
        assert variant["batch_size"] == 7
        assert variant["schedule"] == base["schedule"]

    def test_defaults_of_a_protocol(self, get):
        protocol = get()
        assert protocol["export_features"] is False
        assert protocol["precision"] == "fp32"
        assert protocol["augmentation"] == {"crop_padding": 0, "flip": False}
        assert protocol["crop_size"] is None

    def test_without_a_block_of_its_own_the_second_stage_is_as_the_first(self, get):
        protocol = get()
        protocol.pop("second_stage", None)
        assert for_stage(protocol, second=True) == for_stage(protocol, second=False) == protocol

    def test_the_second_stage_changes_what_its_block_names(self, get):
        protocol = get(
            optimizer={"lr": 0.4, "weight_decay": 5e-4},
            second_stage={"epochs": 9, "batch_size": 7, "optimizer": {"lr": 0.01}, "schedule": {"name": "constant"}},
        )
        first, second = for_stage(protocol, second=False), for_stage(protocol, second=True)
        assert "second_stage" not in first
        assert "second_stage" not in second
        assert (second["epochs"], second["batch_size"]) == (9, 7)
        # keys that the block leaves out stay, also those for which the schema has a default
        assert second["optimizer"] == {**first["optimizer"], "lr": 0.01}
        assert second["optimizer"]["weight_decay"] == 5e-4
        # but a schedule is replaced as a whole: milestones of the first stage mean nothing in the second
        assert second["schedule"] == {"name": "constant", "milestones": [], "gamma": 0.1, "warmup_epochs": 0}
        changed = ("epochs", "batch_size", "optimizer", "schedule")
        assert {key: second[key] for key in first if key not in changed} == {
            key: first[key] for key in first if key not in changed
        }


def test_merging_is_level_by_level_and_leaves_its_arguments_alone():
    base, change = {"a": {"x": 1, "y": 2}, "b": [1]}, {"a": {"y": 3}, "b": [2], "c": {"z": 4}}
    assert merge(base, change) == {"a": {"x": 1, "y": 3}, "b": [2], "c": {"z": 4}}
    assert base == {"a": {"x": 1, "y": 2}, "b": [1]}
