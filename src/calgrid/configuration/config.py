"""Types of a validated configuration with all defaults, as in
:class:`~calgrid.configuration.study.Study`.

``workflow/schemas/config.schema.yaml`` explains every key.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict

from calgrid.specs import Statistics


class Grid(TypedDict):
    """All combinations of some data sets, backbones, methods and seeds."""

    protocol: str
    datasets: Sequence[str]
    backbones: Sequence[str]
    methods: Sequence[str]
    seeds: Sequence[int]
    calibrators: Sequence[str]
    calibrator_seeds: Sequence[int]
    fit_on: Sequence[Literal["val", "same_shift"]]
    probes: NotRequired[Sequence[str]]
    shifts: Sequence[str]


class Override(TypedDict):
    """Hyper-parameters for the runs that match all keys."""

    match: Mapping[str, str | Sequence[str]]
    set: Mapping[str, Any]


class Tuning(TypedDict):
    """Methods tuned with equal budgets; a candidate is a method, or a mapping with ``protocol`` and
    ``method``.
    """

    protocol: str
    metric: str
    methods: Mapping[str, Sequence[str | Mapping[str, str]]]


class Config(TypedDict):
    """A study. Entries of ``external`` have the keys of :class:`calgrid.specs.External` and of
    their evaluation.
    """

    study: str
    results: str
    data_root: str | None
    device: Literal["auto", "cpu", "cuda"]
    keep_models: bool
    plugins: Sequence[str]
    grids: NotRequired[Sequence[Grid]]
    datasets: NotRequired[Mapping[str, Mapping[str, Any]]]
    methods: NotRequired[Mapping[str, Mapping[str, Any]]]
    calibrators: NotRequired[Mapping[str, Mapping[str, Any]]]
    probes: NotRequired[Mapping[str, Mapping[str, Any]]]
    protocols: NotRequired[Mapping[str, Mapping[str, Any]]]
    overrides: NotRequired[Sequence[Override]]
    external: NotRequired[Mapping[str, Mapping[str, Any]]]
    label_counts: Mapping[str, str]
    statistics: Statistics
    tuning: Tuning | None
    papers: Sequence[str]
    lines: Mapping[str, Sequence[str]]
    published: Sequence[str]
