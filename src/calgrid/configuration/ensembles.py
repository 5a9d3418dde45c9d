"""Deep ensembles of a configuration: ``ens3(ce)`` pools runs of three seeds of ``ce``.

``ens3(ce)`` averages probabilities, ``ens3(ce,logit)`` logits, and ``ens3(ce,ts)`` probabilities
that ``ts`` has calibrated for each member.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from calgrid.configuration.model import Grid
from calgrid.errors import ConfigError
from calgrid.specs import Pool
from calgrid.storage.layout import RunKey

#: name after the comma that averages logits
LOGIT = "logit"
#: form of an identifier, with five members -> what is averaged
FORMS = {
    "ens5(METHOD)": "probabilities of five seeds",
    f"ens5(METHOD,{LOGIT})": "logits of five seeds",
    "ens5(METHOD,CALIBRATOR)": "probabilities of five seeds that a calibrator gives for each",
}
_NAME = re.compile(r"ens([0-9]+)\(([^(),]+)(?:,([a-z][a-z0-9_]*))?\)")


class EnsembleName(NamedTuple):
    """Parts of the identifier of an ensemble; ``then`` is ``logit``, a calibrator or None."""

    size: int
    method: str
    then: str | None

    @property
    def pool(self) -> Pool:
        """What is averaged."""
        if self.then is None:
            return "probability"
        return "logit" if self.then == LOGIT else "calibrated"


def ensemble_name(method: str, where: str = "methods") -> EnsembleName | None:
    """Parts of the identifier of an ensemble; None for another method.

    Raises
    ------
    ConfigError : it begins like one but is none.
    """
    if "(" not in method:
        return None
    found = _NAME.fullmatch(method)
    if found is None or int(found[1]) < 1:
        raise ConfigError(
            f"{where}: '{method}' is no method; an ensemble is written ens3(METHOD), "
            "ens3(METHOD,logit) or ens3(METHOD,CALIBRATOR)."
        )
    return EnsembleName(int(found[1]), found[2], found[3])


def member_methods(grid: Grid, where: str) -> list[str]:
    """Methods of a grid that are trained: ensembles are replaced by those of their members."""
    names = [(method, ensemble_name(method, f"{where}.methods")) for method in grid.methods]
    return list(dict.fromkeys(method if name is None else name.method for method, name in names))


def groups(
    runs: Iterable[RunKey], method: str, name: EnsembleName, where: str
) -> Iterator[tuple[RunKey, Sequence[RunKey]]]:
    """Keys of the ensembles of a method, with their members.

    The sorted seeds of a protocol, data set and backbone are cut into disjoint groups; the seed of
    an ensemble is the number of its group, from 1.

    Raises
    ------
    ConfigError : nowhere are as many seeds as members.
    """
    alike: dict[RunKey, list[RunKey]] = {}
    for key in runs:
        if key.method == name.method:
            alike.setdefault(key._replace(method=method, seed=0), []).append(key)
    most = max(map(len, alike.values()), default=0)
    if name.size > most:
        raise ConfigError(
            f"{where}.methods: '{method}' needs {name.size} seeds of '{name.method}', and there "
            f"are at most {most}; add seeds or take fewer members."
        )
    for key, members in alike.items():
        members.sort(key=lambda member: member.seed)
        for number in range(len(members) // name.size):
            chosen = members[number * name.size : (number + 1) * name.size]
            yield key._replace(seed=number + 1), chosen
