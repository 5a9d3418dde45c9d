"""What a study consists of: runs that it trains, takes from elsewhere or pools, and evaluations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calgrid.configuration.components import Method
from calgrid.specs import Calibrator, CheckpointFile, NamedComponent, Pool
from calgrid.storage.layout import EXTERNAL_CHECKPOINT, RunKey
from calgrid.training.protocol import Protocol, TrainingProtocol


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """A network, or several, with logits of val and test.

    Attributes
    ----------
    checkpoints : tested checkpoints: ``best``, ``refined``, ``last``.
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
    :class:`calgrid.specs.ExternalSpec`.
    """

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
