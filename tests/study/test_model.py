"""Models of configurations: descriptions and defaults."""

import re
from typing import get_args

import pytest
import yaml

from calgrid.components.validation import Model
from calgrid.study import model
from calgrid.study.study import Study
from calgrid.training import protocol


def keys_of(options, prefix=""):
    """All keys of a model and of the models in them: key -> description."""
    for name, field in options.model_fields.items():
        yield f"{prefix}{name}", field.description
        for part in models_in(field.annotation):
            yield from keys_of(part, f"{prefix}{name}.")


def models_in(annotation):
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return [annotation]
    return [found for part in get_args(annotation) for found in models_in(part)]


@pytest.mark.parametrize("options", [model.Config, protocol.TrainingProtocol])
def test_every_key_has_a_description(options):
    descriptions = dict(keys_of(options))
    assert len(descriptions) > 8
    assert {key for key, text in descriptions.items() if not text or len(text) < 5} == set()


def test_the_readme_of_configurations_names_every_key(home):
    text = (home / "config" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ", text, re.MULTILINE)
    assert sorted(rows) == sorted(model.Config.model_fields)


def test_defaults_are_filled_in_at_every_level(study):
    config = study().config
    assert (config.results, config.device, config.data_root) == ("results", "auto", "data")
    assert config.published == []
    numbers = {"bins": 15, "bootstrap": 1000, "level": 0.95, "seed": 0}
    asked = {"metrics": None, "baseline": "ce", "comparisons": [], "conformal": None}
    assert config.statistics.model_dump() == {**numbers, **asked}
    (grid,) = config.grids
    assert (grid.calibrators, grid.calibrator_seeds, grid.shifts) == (["none"], [0], [])


def test_the_given_configuration_is_left_alone(make_config, home):
    config = make_config()
    before = yaml.safe_dump(config)
    Study(config, home)
    assert yaml.safe_dump(config) == before
