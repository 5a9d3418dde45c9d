"""PCS, predecessor combination search: a network of blocks from different epochs of its training.

Tao, Dong, Liu, Sun & Xu, Calibrating a Deep Neural Network with Its Predecessors, IJCAI 2023, arXiv
2302.06245 (official code Linwei94/IJCAI2023-PCS, ``train_search.py`` and ``module/``).
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from calgrid.backbones.base import Backbone
from calgrid.components.registry import register
from calgrid.storage.arrays import read_arrays, write_arrays
from calgrid.training.procedure import Procedure, State, Training
from calgrid.training.seeds import generator


def block_prefixes(model: Backbone) -> list[str]:
    """Start of the names of the tensors of each block: stages after the stem, then the head.

    These are the five blocks of the official code for ResNet and DenseNet, and its four for WRN. A
    network with one stage has two blocks: this stage and the head.
    """
    first = min(1, len(model.stages) - 1)
    return [*(f"stages.{stage}." for stage in range(first, len(model.stages))), "head."]


def predecessor_epochs(predecessors: int, epochs: int) -> list[int]:
    """Numbers of trained epochs of the predecessors: the ends of equal parts of the training, at
    most one an epoch.
    """
    parts = min(predecessors, epochs)
    return [part * epochs // parts for part in range(1, parts + 1)]


def combined(
    predecessor: Callable[[int], State], last: int, prefixes: Sequence[str], epochs: Sequence[int]
) -> dict[str, torch.Tensor]:
    """Weights and buffers of a network whose blocks have been trained for different epochs.

    Parameters
    ----------
    predecessor : returns weights and buffers of the whole network after a number of epochs.
    last : epochs of tensors that are in no block.
    prefixes, epochs : start of the names of each block's tensors, and the block's epochs.
    """
    result = dict(predecessor(last))
    for prefix, trained in zip(prefixes, epochs, strict=True):
        for name, tensor in predecessor(trained).items():
            if name.startswith(prefix):
                result[name] = tensor
    return result


@register(
    source="Tao et al., IJCAI 2023, arXiv 2302.06245; Linwei94/IJCAI2023-PCS train_search.py, "
    "random search in place of its predictor",
    losses="any",
    sees_validation=True,
    cuda_graph=True,
    search_epochs="combinations",
    limits={"predecessors": "[2, 1000]", "combinations": "[1, 10000]", "rate": "(0, inf)"},
)
class PredecessorCombinations(Procedure):
    """Training, then a random search for blocks of its epochs that are best on val after tuning.

    The network is trained as the protocol says, to the same weights as by the loss alone, and
    stored at ``predecessors`` evenly spaced epochs, of which the last is one. Each of
    ``combinations`` further epochs takes every block (a stage after the stem, or the head) with its
    batch statistics from a random predecessor, and trains the whole network. All checkpoints of the
    run are the combination of lowest validation NLL after its epoch. The history has the numbers of
    epochs that the blocks of each had been trained: ``block_1``, ...

    Kept from the official code: the blocks, and the last epoch for what is in none, such as the
    stem; one epoch of tuning; the hundred random combinations of its warm-up; validation NLL as
    their measure.

    Replaced: in the official code the hundred train a predictor of this measure, and 350 more
    combinations (in its README) follow the predictor's gradient with respect to the choice of
    predecessors, with Gumbel noise. Here the search ends with the hundred. It has no second
    optimiser with constants of its own, and costs 100 epochs and not 450. We have not measured what
    the predictor would add. There the user reads the result in the log and tunes it again; here it
    is the combination as it was tuned.

    Other differences: there each epoch is a predecessor, or 50 evenly spaced ones; our eleven take
    less disk. Tuning has the weight decay of the protocol (there 1e-4, after 5e-4 in training), and
    starts each combination without momentum. A combination that is drawn again is tuned again. A
    loss with state keeps it from one combination to the next.

    Until the run is complete, its folder has the predecessors: 11 files of 94 MB for ResNet-50. As
    the search uses validation data, tables mark the method.

    Parameters
    ----------
    predecessors : at least 2; fewer if the training is shorter.
    combinations : each is an epoch of training; 100 is ``--warm_up_population`` of the README.
    rate : learning rate of the tuning as a share of the protocol's; 0.01 is ``--ftlr=1e-3`` of the
        README after a training at 0.1 (the default of the code, 1e-4, is 0.001).
    """

    resumed = ("_begun",)

    predecessors: int = 11
    combinations: int = 100
    rate: float = 0.01
    _begun = -1

    def begin_training(self, model: Backbone, training: Training) -> None:
        """Find predecessors and blocks."""
        self._stored = predecessor_epochs(self.predecessors, training.epochs)
        self._prefixes = block_prefixes(model)

    def search_rates(self) -> list[float]:
        """One epoch for each combination."""
        return [self.rate] * self.combinations

    def combination(self, epoch: int) -> list[int]:
        """Epochs of training of each block in the combination of an epoch of the search."""
        rng = generator("cpu", self.training.seed, "combination", epoch)
        drawn = torch.randint(len(self._stored), (len(self._prefixes),), generator=rng)
        return [self._stored[number] for number in drawn.tolist()]

    def begin_epoch(self, model: Backbone, epoch: int) -> None:
        """Load the combination of an epoch of the search, unless a resumed run has begun it."""
        super().begin_epoch(model, epoch)
        if epoch >= self.training.epochs and epoch != self._begun:
            blocks = self.combination(epoch)
            last = self.training.epochs
            model.load_state_dict(combined(self._predecessor, last, self._prefixes, blocks))
            self._begun = epoch

    def end_epoch(
        self, model: Backbone, epoch: int, means: Mapping[str, float]
    ) -> dict[str, float]:
        """Store a predecessor; return the combination of an epoch of the search."""
        if epoch >= self.training.epochs:
            blocks = enumerate(self.combination(epoch), start=1)
            return {f"block_{number}": float(trained) for number, trained in blocks}
        if epoch + 1 in self._stored:
            arrays = {name: tensor.cpu().numpy() for name, tensor in model.state_dict().items()}
            write_arrays(self._path(epoch + 1), arrays, {})
        return {}

    def scores(self, epoch: int, row: Mapping[str, float]) -> dict[str, float]:
        """Score combinations alone, for all checkpoints by their validation NLL."""
        if epoch < self.training.epochs:
            return {}
        return dict.fromkeys(("best", "refined", "last"), -row["val_nll"])

    def _predecessor(self, epochs: int) -> State:
        """Weights and buffers after a number of epochs.

        Raises
        ------
        StateError : the file is missing or damaged.
        """
        mend = "delete its folder and run again"
        tensors, _ = read_arrays(self._path(epochs), "predecessor", mend, framework="pt")
        return tensors

    def _path(self, epochs: int) -> Path:
        return self.training.folder / f"predecessor-{epochs}.safetensors"
