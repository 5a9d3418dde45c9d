"""The types of the configuration are those of its schema."""

import pytest

from calgrid.configuration.config import Config, Grid, Override, Tuning
from calgrid.configuration.files import load_schema
from calgrid.specs import Comparison, Statistics


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        (Config, ()),
        (Grid, ("$defs", "grid")),
        (Comparison, ("$defs", "comparison")),
        (Override, ("properties", "overrides", "items")),
        (Statistics, ("properties", "statistics")),
        (Tuning, ("properties", "tuning")),
    ],
)
def test_types_have_the_keys_of_the_schema_and_those_that_are_always_there(kind, place, home):
    schema = load_schema(home / "workflow" / "schemas" / "config.schema.yaml")
    for name in place:
        schema = schema[name]
    properties = schema["properties"]
    assert kind.__annotations__.keys() == properties.keys()
    always = {name for name, each in properties.items() if "default" in each} | {*schema.get("required", ())}
    # a study without the block has its defaults
    assert kind.__required_keys__ == always | ({"statistics"} if kind is Config else set())
