"""YAML files: what YAML itself would take silently, or end in a traceback, is refused in one
sentence.
"""

import json
import re
from typing import get_args

import pytest
import yaml

from calgrid.configuration.files import read_configuration, read_yaml
from calgrid.configuration.model import Config, TrainingProtocol
from calgrid.configuration.study import Study
from calgrid.configuration.validation import Model
from calgrid.errors import ConfigError


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "mine.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


#: seven levels of ten aliases each: 10 million values in some lines
ALIASES = "a0: &a0 [" + "x, " * 10 + "]\n"
ALIASES += "".join(f"a{n}: &a{n} [{f'*a{n - 1}, ' * 10}]\n" for n in range(1, 7))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "grids:\n  - seeds: [1]\n    methods: [ce]\n    seeds: [2]\n",
            ["line 4: the key 'seeds' is already in line 2; remove one"],
        ),
        ("a: &x {b: 1}\nc: {<<: *x, d: 1, d: 2}\n", ["line 2: the key 'd'"]),
        (
            "a:\n  b: [1\nc: 2\n",
            [
                ", line 3, column 2, is not valid YAML: expected ',' or ']', but got ':'",
                "which starts in line 2).",
            ],
        ),
        ("a: *b\n", [", line 1, column 4, is not valid YAML: found undefined alias 'b'"]),
        (
            "a: b\x01\n",
            [
                "is not valid YAML: unacceptable character #x0001: special characters are not "
                "allowed"
            ],
        ),
        ("a: &b {c: *b}\n", ["is not valid YAML: an alias refers to a value that contains it"]),
        (ALIASES, ["is not valid YAML: its aliases repeat more than 1,000,000 values"]),
        (f"a: 0x{'f' * 6000}\n", ["line 1, column 4", "a number is too long"]),
        ("a: " + "[" * 5000 + "]" * 5000, ["is nested too deeply; use fewer levels"]),
        ("a: 2026-13-01\n", ["is not valid YAML", "month"]),
        ("? [a]\n: 1\n? {b: c}\n: 2\n", ["is not valid YAML"]),
        ("study: größe".encode("latin-1"), ["is not UTF-8", "save it as UTF-8"]),
        ("- a\n", ["must be a mapping"]),
    ],
)
def test_what_is_refused(write, refuses, text, parts):
    path = write(text)
    with refuses(ConfigError, f"The configuration {path}", *parts):
        read_configuration(path)


def test_a_missing_file(tmp_path, refuses):
    with refuses(ConfigError, f"The configuration {tmp_path / 'no.yaml'} does not exist"):
        read_configuration(tmp_path / "no.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "a: &x {b: 1, c: 2}\nd: {<<: *x, b: 3}\ne: {<<: *x, c: 4}\n",
        "a: &x {b: 1}\nf: &y {<<: *x, b: 2}\nd: {<<: [*x, *y], b: 3}\n",
        "a: &x [1, 2]\nb: *x\nc: *x\n",
        "1: a\n'1': b\n",
        "a: {c: 1}\nb: {c: 1}\n",
        "",
    ],
)
def test_what_yaml_means_is_kept(write, text):
    assert read_yaml(write(text), "It") == yaml.safe_load(text)


def test_a_configuration_may_be_written_in_json(write, make_config):
    assert read_configuration(write(json.dumps(make_config(), indent=2))) == make_config()


def test_a_protocol_file_is_read_in_the_same_way(home, tmp_path, make_config, refuses):
    (tmp_path / "workflow").symlink_to(home / "workflow")
    protocols = tmp_path / "config" / "protocols"
    protocols.mkdir(parents=True)
    text = (home / "config" / "protocols" / "digits.yaml").read_text()
    (protocols / "digits.yaml").write_text(f"{text}\nepochs: 1\n")
    with refuses(
        ConfigError,
        "The protocol file",
        "digits.yaml, line ",
        "the key 'epochs' is already in line",
    ):
        Study(make_config(), tmp_path)


def keys_of(model, prefix=""):
    """All keys of a model and of the models in them: key -> description."""
    for name, field in model.model_fields.items():
        yield f"{prefix}{name}", field.description
        for part in models_in(field.annotation):
            yield from keys_of(part, f"{prefix}{name}.")


def models_in(annotation):
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return [annotation]
    return [model for part in get_args(annotation) for model in models_in(part)]


@pytest.mark.parametrize("model", [Config, TrainingProtocol])
def test_every_key_has_a_description(model):
    descriptions = dict(keys_of(model))
    assert len(descriptions) > 30
    assert {key for key, text in descriptions.items() if not text or len(text) < 5} == set()


def test_the_readme_of_configurations_names_every_key(home):
    text = (home / "config" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ", text, re.MULTILINE)
    assert sorted(rows) == sorted(Config.model_fields)


def test_defaults_are_filled_in_at_every_level(study):
    config = study().config
    assert (config.results, config.device, config.data_root) == ("results", "auto", "data")
    assert config.published == []
    assert config.statistics.model_dump() == {
        "bins": 15,
        "bootstrap": 1000,
        "paired_resamples": None,
        "metrics": None,
        "level": 0.95,
        "seed": 0,
        "baseline": "ce",
        "comparisons": [],
    }
    (grid,) = config.grids
    assert (grid.calibrators, grid.calibrator_seeds, grid.shifts) == (["none"], [0], [])


def test_the_given_configuration_is_left_alone(make_config, home):
    config = make_config()
    before = yaml.safe_dump(config)
    Study(config, home)
    assert yaml.safe_dump(config) == before
