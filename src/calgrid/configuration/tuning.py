"""Tuning with an equal budget: which candidates stand for one method, checked against the runs of the study."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from calgrid.configuration.runs import RunKey
from calgrid.errors import ConfigError


class Candidate(NamedTuple):
    """A setting that was tried for a method: the run's protocol and method."""

    protocol: str
    method: str


def candidates(tuning: Mapping[str, Any]) -> dict[str, list[Candidate]]:
    """Tuned method -> its candidates, the default first."""

    def read(each: str | Mapping[str, str]) -> Candidate:
        return Candidate(tuning["protocol"], each) if isinstance(each, str) else Candidate(**each)

    return {name: [read(each) for each in listed] for name, listed in tuning["methods"].items()}


def check(tuning: Mapping[str, Any], known: Iterable[RunKey]) -> None:
    """Raise ConfigError unless all methods have equally many candidates, each run wherever any other is."""
    lists = candidates(tuning)
    budget = {name: len(listed) for name, listed in lists.items()}
    first = next(iter(budget))
    for name, count in budget.items():
        if count != budget[first]:
            raise ConfigError(
                f"tuning.methods.{name}: {count} candidates, but {budget[first]} of '{first}'; an equal budget "
                "needs as many for each method."
            )
        if len(set(lists[name])) < count:
            raise ConfigError(f"tuning.methods.{name}: a candidate is listed twice; try another setting instead.")
    known = set(known)
    every = {candidate for listed in lists.values() for candidate in listed}
    places = {(key.dataset, key.backbone, key.seed) for key in known if Candidate(key.protocol, key.method) in every}
    for name, listed in lists.items():
        for candidate in listed:
            _check_run_everywhere(candidate, f"tuning.methods.{name}", places, known)


def _check_run_everywhere(
    candidate: Candidate, where: str, places: set[tuple[str, str, int]], known: set[RunKey]
) -> None:
    mine = [key for key in known if Candidate(key.protocol, key.method) == candidate]
    if not mine:
        raise ConfigError(
            f"{where}: no grid runs '{candidate.method}' under protocol '{candidate.protocol}'; add it to one."
        )
    if missing := sorted(places - {(key.dataset, key.backbone, key.seed) for key in mine}):
        dataset, backbone, seed = missing[0]
        raise ConfigError(
            f"{where}: '{candidate.method}' under '{candidate.protocol}' is not run on {dataset} with {backbone} and "
            f"seed {seed}, where other candidates are; put all candidates into grids with the same seeds."
        )
