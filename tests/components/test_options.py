"""Every number that a component takes says its range; what lies outside is refused where given."""

import math
import re

import pytest

from calgrid.calibrators import build_calibrator
from calgrid.components import registry
from calgrid.components.options import read_range
from calgrid.errors import ConfigError
from calgrid.losses import build_loss
from calgrid.probes import build_probe
from calgrid.procedures import build_procedure

BUILT = {
    "loss": lambda name, **options: build_loss(name, 10, **options),
    "procedure": build_procedure,
    "calibrator": build_calibrator,
    "probe": build_probe,
}
COMPONENTS = [
    (kind, name)
    for kind in (*BUILT, "dataset")
    for name, spec in registry.descriptions(kind).items()
    if spec.options
]


def numbers(spec):
    """Hyper-parameters that take numbers, or lists of them."""
    options = (option for option in spec.options.values() if not option.choices)
    return [option for option in options if re.search(r"\b(int|float)\b", option.type)]


def beyond(option, spec):
    """Values just outside the range of a hyper-parameter, in its type."""
    ends = ((option.range.low, option.range.above, -1), (option.range.high, option.range.below, 1))
    known = [
        (float(spec.options[e].default if e in spec.options else e), excluded, step)
        for e, excluded, step in ends
    ]
    values = [
        number if excluded else number + step
        for number, excluded, step in known
        if math.isfinite(number)
    ]
    values = [int(value) if "int" in option.type else value for value in values]
    return [[value] * 3 for value in values] if "[" in option.type else values


@pytest.mark.parametrize(("kind", "name"), COMPONENTS)
def test_every_number_declares_its_range_and_is_refused_outside_of_it(kind, name, refuses):
    spec = registry.describe(kind, name)
    for option in numbers(spec):
        assert option.range is not None, f"{spec.module}: limits of @register lacks {option.name}"
        for value in beyond(option, spec):
            member = value[0] if isinstance(value, list) else value
            wrong = f"{option.name} must be {option.range.words(spec.resolve())}, got {member!r}"
            with refuses(ConfigError, f"{kind} '{name}': {wrong}"):
                build = BUILT.get(kind, lambda _, **options: spec.resolve(options))
                build(name, **{option.name: value})


@pytest.mark.parametrize(
    ("text", "value", "words"),
    [
        ("[0, 1)", 1.0, "at least 0 and below 1"),
        ("(0, inf)", 0.0, "above 0"),
        ("(-inf, 2]", 3, "at most 2"),
        ("[0, largest]", 6.0, "at least 0 and at most largest, which is 5"),
        ("(-inf, inf)", float("nan"), "a finite number"),
        ("[0, inf)", [10**400], "a finite number"),
        ("[0, 1]", "half", "at least 0 and at most 1"),
        ("[0, 1]", True, "at least 0 and at most 1"),
        ("[0, 1]", [0.5, 1.2], "at least 0 and at most 1"),
    ],
)
def test_ends_of_a_range(text, value, words, refuses):
    limit, others = read_range(text, "x"), {"largest": 5}
    with refuses(ConfigError, f"x must be {words}, got "):
        limit.check(value, "x", others)


def test_an_empty_list_is_in_no_range(refuses):
    with refuses(ConfigError, "x must not be empty"):
        read_range("[0, 1]", "x").check([], "x", {})


@pytest.mark.parametrize("text", ["0..1", "[0, 1", "[a b, 1]", (0, 1), None])
def test_what_is_no_range_is_refused(text, refuses):
    with refuses(ConfigError, "x must be a range such as '[0, 1)' or '(0, inf)', got "):
        read_range(text, "x")
