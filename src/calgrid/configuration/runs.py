"""What a study consists of: runs that it trains, takes from elsewhere or pools, and evaluations.

An ensemble pools runs of several seeds: ``ens3(ce)`` averages the probabilities of three,
``ens3(ce,logit)`` their logits, and ``ens3(ce,ts)`` probabilities that ``ts`` has calibrated for
each member.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from calgrid.configuration.components import Method
from calgrid.errors import ConfigError
from calgrid.specs import Calibrator, CheckpointFile, NamedComponent, Pool
from calgrid.storage.layout import EXTERNAL_CHECKPOINT, RunKey
from calgrid.training.protocol import Protocol, TrainingProtocol

#: name after the comma that averages logits
LOGIT = "logit"
#: form of an identifier, with five members -> what is averaged
ENSEMBLES = {
    "ens5(METHOD)": "probabilities of five seeds",
    f"ens5(METHOD,{LOGIT})": "logits of five seeds",
    "ens5(METHOD,CALIBRATOR)": "probabilities of five seeds that a calibrator gives for each",
}
_ENSEMBLE = re.compile(r"ens([0-9]+)\(([^(),]+)(?:,([a-z][a-z0-9_]*))?\)")


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """A network, or several, with logits of val and test.

    Attributes
    ----------
    checkpoints : tested checkpoints, such as ``best`` and ``last``.
    disjoint_validation : whether calibrators are fitted on a part of the validation rows.
    sees_validation : whether validation data were used in training, or in that of a first stage.
    draws_validation : whether the validation images are drawn by the seed.
    """

    key: RunKey
    checkpoints: tuple[str, ...] = (EXTERNAL_CHECKPOINT,)
    disjoint_validation: bool = False
    sees_validation: bool = False
    draws_validation: bool = False


@dataclass(frozen=True, kw_only=True)
class Run(Predicted):
    """A run with all options resolved; ``protocol`` is the protocol of its own stage, and
    ``checkpoint`` is a file of weights in the place of a training.
    """

    protocol: Protocol
    method: Method
    first_stage: RunKey | None
    checkpoint: CheckpointFile | None

    @property
    def gpus(self) -> int:
        """GPUs that share each training batch."""
        return self.protocol.gpus if isinstance(self.protocol, TrainingProtocol) else 1


@dataclass(frozen=True, kw_only=True)
class ExternalRun(Predicted):
    """External logits, in the place of a run; ``external`` is that of
    :class:`calgrid.specs.ExternalSpec`, and its files are below ``root``.
    """

    root: Path
    external: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Ensemble(Predicted):
    """An ensemble of trained or external runs, in the place of a run.

    ``pool`` says what is averaged, after ``calibrator`` where it is ``calibrated``. Members that
    draw their validation images form no ensemble.
    """

    members: tuple[RunKey, ...]
    pool: Pool
    calibrator: Calibrator | None


@dataclass(frozen=True)
class Evaluation:
    """Calibrators and probes by name, seeds of stochastic calibrators, shift families and
    ``fit_on`` of one run.
    """

    calibrators: Mapping[str, Calibrator] = field(default_factory=dict)
    calibrator_seeds: Sequence[int] = ()
    families: Sequence[str] = ()
    fit_on: Sequence[str] = ()
    probes: Mapping[str, NamedComponent] = field(default_factory=dict)

    def joined(self, other: "Evaluation") -> "Evaluation":
        """Combine with the evaluation of the same run in another grid."""
        return Evaluation(
            {**self.calibrators, **other.calibrators},
            sorted({*self.calibrator_seeds, *other.calibrator_seeds}),
            list(dict.fromkeys([*self.families, *other.families])),
            list(dict.fromkeys([*self.fit_on, *other.fit_on])),
            {**self.probes, **other.probes},
        )


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
    found = _ENSEMBLE.fullmatch(method)
    if found is None or int(found[1]) < 1:
        raise ConfigError(
            f"{where}: '{method}' is no method; an ensemble is written ens3(METHOD), "
            "ens3(METHOD,logit) or ens3(METHOD,CALIBRATOR)."
        )
    return EnsembleName(int(found[1]), found[2], found[3])


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
