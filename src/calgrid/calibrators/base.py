"""Base class of calibrators: fit, predict and save, with checks; subclasses write two methods."""

import importlib
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._probabilities import (
    FEWEST_ROUNDED,
    Array,
    Head,
    Labels,
    are_probabilities,
    by_blocks,
    logit_scale,
    rescaled,
    softmax,
    without_impossible,
)
from calgrid.calibrators._validation import (
    INPUTS,
    as_logits,
    check_features,
    check_head,
    check_indices,
    check_labels,
    check_logits,
    check_names,
    check_one_column,
    check_row_order,
    in_order,
    mask_warnings,
    sigmoid_warnings,
)
from calgrid.class_names import shown_names
from calgrid.components.options import Options
from calgrid.components.plugins import shown
from calgrid.components.registry import errors_of, parameters_of, set_options
from calgrid.errors import ConfigError, DataError, StateError
from calgrid.metrics import Output
from calgrid.optional import say_extra
from calgrid.storage.arrays import write_arrays

#: a calibrator whose NLL exceeds this multiple of the uncalibrated NLL causes a warning
WORSE = 2.0
#: share of the rows of a set to fit calibrators on; the rest is scored
DRAWN_SHARE = 0.2
#: a prediction whose probability is below the largest by less than this share ties with it
ROUNDING = 1e-12
#: entries of a history that are temperatures
TEMPERATURES = (
    "temperature",
    "start_temperature",
    "temperature_min",
    "temperature_mean",
    "temperature_max",
)


def no_module(id: str, reason: str) -> ConfigError:
    """Return the error of a calibrator whose map is no PyTorch module."""
    return ConfigError(f"Calibrator '{id}' has no module, because {reason}; use predict_proba.")


def end_of_grid(name: str, chosen: float, grid: Sequence[float]) -> list[str]:
    """Return a warning for ``fit_history`` if the choice is the first or last value of its grid."""
    if chosen not in (grid[0], grid[-1]):
        return []
    end = "smallest" if chosen == min(grid) else "largest"
    return [
        f"The {name} that was chosen, {chosen:g}, is the {end} of those tried: one beyond may do "
        "better."
    ]


class Calibrator(ABC):
    """A map from logits to calibrated probabilities.

    A subclass stores each hyper-parameter in an attribute of the same name and overrides
    :meth:`_fit` and :meth:`_transform`. Both methods receive checked float64 arrays; the row
    maximum of logits is subtracted, and with :attr:`scale_free` logits are divided by the unit of
    the fit's logits. Features and head are None unless registered in ``needs``, ``("logits",
    "features", "head")``; with ``"training features"`` the features are distances to the training
    features. Arrays and numbers that the fit stores in attributes are saved; a subclass that stores
    anything else overrides :meth:`_state` and :meth:`_load_state`.

    Attributes
    ----------
    fit_history : numbers, lists with one number per epoch, ``converged``, and ``warnings``, a list
        of sentences (a parameter at its bound or at the end of a grid, an optimiser that did not
        converge, a search that found nothing better than the logits as they are, which then stay).
        Temperatures apply to the given logits.
    fit_seconds : processor seconds of the last fit, without imports; None after loading from a
        file.
    n_classes : K of the fit; None before the fit.
    n_samples : N of the fit.
    kind : what the fit was given, ``"logits"`` or ``"probabilities"``.
    binary : whether the fit was given one column, for class 1 of two.
    class_names : names of the classes in the order of the columns of the fit; None if unknown.
    """

    #: set by ``@register``: source, keeps_argmax, parameters, needs; ``slow_from``, the number of
    #: classes from which a fit takes minutes
    registered: ClassVar[Options]
    #: if True, logits are divided by their spread (``logit_scale``), so that scaling them by a
    #: positive number changes the probabilities by rounding only, which the training of a network
    #: amplifies (``smart``, ``pts``). If False, the map depends on their scale,
    #: because the softmax of the logits is calibrated, or published numbers are temperatures or
    #: network inputs
    scale_free: ClassVar[bool] = False
    #: if True, a class whose logit is -inf keeps the probability that the map gives it
    maps_impossible: ClassVar[bool] = False

    def __init__(self, **options: Any) -> None:
        set_options(self, options)
        self.fit_history: dict[str, Any] = {}
        self.fit_seconds: float | None = None
        self.n_classes: int | None = None
        self.n_samples = 0
        self.kind = "logits"
        self.binary = False
        self.class_names: tuple[str, ...] | None = None
        self._feature_width: int | None = None
        #: divisor of the logits
        self._scale = 1.0
        #: attributes set by fits
        self._fitted: set[str] = set()

    @property
    def id(self) -> str:
        """Registered identifier: the name of the class's file."""
        return type(self).__module__.rpartition(".")[2]

    @property
    def needs(self) -> tuple[str, ...]:
        """Inputs of the fit: ``"logits"``, ``"features"``, ``"head"``; ``"training features"`` if
        the features are squared distances to the training features.
        """
        return tuple(self.registered.get("needs", ("logits",)))

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """All hyper-parameters with their values.

        Raises
        ------
        ConfigError : one is not an attribute of the same name.
        """
        try:
            return {name: getattr(self, name) for name in parameters_of(type(self))}
        except AttributeError as error:
            raise ConfigError(
                f"The calibrator '{self.id}': {error}; its __init__ must keep each hyper-parameter "
                "in an attribute of the same name."
            ) from None

    def __repr__(self) -> str:
        """``ts(T=2.4975), fitted on 5,000 rows, 10 classes``; with options that differ from their
        defaults.
        """
        shown = ", ".join(f"{name}={value}" for name, value in self._told().items())
        if self.n_classes is None:
            return f"{self.id}({shown}), not fitted"
        return f"{self.id}({shown}), fitted on {self.n_samples:,} rows, {self.n_classes} classes"

    def _repr_html_(self) -> str:
        """Return the same with names of classes and warnings as a table, for notebooks."""
        facts = {"calibrator": self.id, **self._told(), "fitted on": "nothing yet"}
        if self.n_classes is not None:
            facts["fitted on"] = f"{self.n_samples:,} rows of {self.kind}"
            names = f" ({shown_names(self.class_names)})" if self.class_names else ""
            facts["classes"] = f"{self.n_classes}{names}"
            if self.fit_history["warnings"]:
                facts["warnings"] = " ".join(self.fit_history["warnings"])
        rows = ""
        for name, text in facts.items():
            rows += f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>"
        return f"<table>{rows}</table>"

    def _told(self) -> dict[str, str]:
        """Options that differ from their defaults, and the temperature if the map has one."""
        defaults = parameters_of(type(self))
        told = {}
        for name, value in self.hyperparameters.items():
            if value != defaults[name].default:
                told[name] = repr(value)
        if self.n_classes is not None and "temperature" in self.fit_history:
            told["T"] = f"{self.fit_history['temperature']:.5g}"
        return told

    def fit(
        self,
        logits: Any,
        labels: Any,
        features: Any = None,
        head: Any = None,
        *,
        kind: str = "logits",
        class_names: Sequence[str | int] | None = None,
    ) -> Self:
        """Fit on validation data and return the calibrator itself.

        Parameters
        ----------
        logits : ``(N, K)`` real numbers; -inf marks an impossible class, whose probability is 0
            (except with calibrators that say otherwise); finite numbers are never taken for
            masks, unless they are 1e30 below the largest. ``(N,)``: numbers of class 1 of two.
        labels : ``(N,)`` class indices, also as a column, one-hot or whole floats; or names of the
            classes.
        features : ``(N, d)`` penultimate features, for calibrators that need them, else ignored.
        head : weight ``(K, d)`` and bias ``(K,)`` of the last layer, for calibrators that need
            them, else ignored.
        kind : ``"probabilities"`` if ``logits`` are probabilities.
        class_names : K names in the order of the columns, whole numbers too; by default those of a
            data frame, unless pandas numbered its columns.

        Raises
        ------
        DataError : an input is missing or does not match the description above, also logits that
            are probabilities in every row.
        ConfigError : the code of a plugin fails.
        """
        values = as_logits(logits, kind)
        binary = np.ndim(logits) == 1
        if binary and kind == "logits":
            check_one_column(values)
        names = check_names(logits, class_names, values.shape)
        scores = self._checked(values)
        n_samples, n_classes = scores.shape
        check_row_order(logits, labels)
        targets = check_labels(labels, n_samples, n_classes, names)
        check_indices(logits, class_names, targets)
        inputs = layer = None
        if "features" in self.needs:
            inputs = check_features(features, n_samples, None, self.id)
            if "head" in self.needs:
                layer = check_head(head, n_classes, inputs.shape[1], self.id)
        seen = sigmoid_warnings(values) if kind == "logits" else []
        seen += mask_warnings(scores)
        self.n_classes = None
        self._feature_width = None
        begin = time.process_time()
        # samples whose label is impossible do not affect the fit
        possible = scores[np.arange(n_samples), targets] > -np.inf
        self._scale = logit_scale(scores[possible]) if self.scale_free and possible.any() else 1.0
        with errors_of(type(self), "fails in its fit"):
            history = self._fit_noted(rescaled(scores, self._scale), targets, inputs, layer)
            if not isinstance(history, dict):
                raise TypeError("_fit must return a dictionary, {} without entries")
        # temperatures apply to the given logits
        factors = {**dict.fromkeys(TEMPERATURES, self._scale), "beta": 1.0 / self._scale}
        reason = history.pop("unconverged", "")
        self.fit_history = {"converged": not reason, "warnings": [], **history}
        self.fit_history["warnings"] = [*seen, *self.fit_history["warnings"]]
        if reason:
            self.fit_history["warnings"].append(f"The fit did not converge: {reason}.")
        for name in factors.keys() & history.keys():
            self.fit_history[name] = history[name] * factors[name]
        self.fit_seconds = time.process_time() - begin
        self.n_classes, self.n_samples = n_classes, n_samples
        self.kind, self.binary, self.class_names = kind, binary, names
        self._feature_width = None if inputs is None else inputs.shape[1]
        return self

    def predict_proba(
        self,
        logits: Any,
        features: Any = None,
        *,
        kind: str | None = None,
        class_names: Sequence[str | int] | None = None,
    ) -> Array:
        """Return calibrated probabilities ``(N, K)``, float64, rows summing to 1, in the order of
        the columns of the fit.

        Parameters
        ----------
        logits : ``(N, K)`` with the K of the fit, or ``(N,)``: numbers of class 1 of two.
        features : ``(N, d)`` with the d of the fit, for calibrators that need them, else ignored.
        kind : ``"logits"`` or ``"probabilities"``; by default that of the fit.
        class_names : names of the columns, by default those of a data frame. If the fit knows its
            classes too, columns are put into their order by name.

        Raises
        ------
        StateError : not fitted.
        DataError : an input is missing or does not match the description above, also logits that
            are probabilities in every row, and other classes than in the fit.
        ConfigError : the code of a plugin fails, or changes predictions although it says that it
            does not (``keeps_argmax``).
        """
        return self.predict_output(logits, features, kind=kind, class_names=class_names).probs

    def predict_output(
        self,
        logits: Any,
        features: Any = None,
        *,
        kind: str | None = None,
        class_names: Sequence[str | int] | None = None,
    ) -> Output:
        """Return the probabilities of :meth:`predict_proba` for metrics; if the map ends with a
        softmax, also their logarithms, exact where probabilities round to 0 or 1.

        Parameters and errors as in :meth:`predict_proba`.
        """
        self._require_fitted()
        chosen = kind or self.kind
        if np.ndim(logits) == 1 and self.n_classes != 2:
            raise DataError(
                f"logits have the shape ({len(logits)},), but the calibrator was fitted on "
                f"{self.n_classes} classes; give one row as logits[None, :]."
            )
        values = as_logits(logits, chosen)
        # a few logits lie between 0 and 1 by chance
        if np.ndim(logits) == 1 and chosen == "logits" and len(values) >= FEWEST_ROUNDED:
            check_one_column(values)
        names = check_names(logits, class_names, values.shape)
        scores = self._checked(in_order(values, names, self.class_names), self.n_classes)
        inputs = None
        if "features" in self.needs:
            inputs = check_features(features, len(scores), self._feature_width, self.id)
        with errors_of(type(self), "fails in its prediction"):
            output = self._output(rescaled(scores, self._scale), inputs)
            if not type(self).__module__.startswith("calgrid."):
                found = np.asarray(output.probs)
                if found.shape != scores.shape:
                    raise ValueError(f"it returned the shape {found.shape} for {scores.shape}")
                if not are_probabilities(found):
                    raise ValueError(
                        "a row that it returned is negative somewhere or does not sum to 1"
                    )
        if not self.maps_impossible:
            probabilities = without_impossible(scores, output.probs)
            logs = output.logs if probabilities is output.probs else None
            if logs is not None and scores.min() == -np.inf:
                logs[scores == -np.inf] = -np.inf
            output = Output(probabilities, logs)
        if self.registered["keeps_argmax"]:
            predicted = scores.argmax(axis=1)[:, None]
            kept = np.take_along_axis(output.probs, predicted, axis=1)[:, 0]
            changed = kept < output.probs.max(axis=1) * (1.0 - ROUNDING)
            if changed.any():
                raise ConfigError(
                    f"{shown(type(self).__module__)} says keeps_argmax=True, but its probabilities "
                    f"change {changed.sum()} of {len(changed)} predictions; correct one of the two."
                )
        return output

    def module(self) -> Any:
        """Return the fitted map as a :class:`torch.nn.Module`, logits (or probabilities, as of the
        fit) ``(N, K)`` to probabilities ``(N, K)``.

        The module runs :meth:`_transform` with tensors. It can be traced, exported and compiled,
        runs on its device, and has the numbers of the fit as float64 buffers; its output equals
        :meth:`predict_proba` within 1e-6, except where rounding puts a score of the fit on the
        other side of a step. Another number of classes is an error; rows that :meth:`predict_proba`
        refuses are NaN.

        Raises
        ------
        StateError : not fitted.
        ConfigError : the map needs more than the logits, or takes no tensors.
        MissingLibraryError : PyTorch is not installed.
        """
        self._require_fitted()
        if self.needs != ("logits",):
            raise no_module(self.id, "it needs features of the network")
        with say_extra():
            integration = importlib.import_module("calgrid.integrations.torch")
        return integration.CalibratorModule(self)

    def save(self, path: str | Path) -> None:
        """Write the fitted calibrator as safetensors, atomically; equal fits give equal bytes.

        The metadata key ``calgrid`` holds id, hyper-parameters, the attributes ``n_classes`` to
        ``class_names``, and the numbers and warnings of ``fit_history`` as JSON.

        Raises
        ------
        StateError : the calibrator is not fitted.
        """
        self._require_fitted()
        history = {
            name: value
            for name, value in self.fit_history.items()
            if name == "warnings" or not isinstance(value, list)
        }
        description = {
            "id": self.id,
            "hyperparameters": self.hyperparameters,
            "seed": getattr(self, "seed", None),
            **{name: getattr(self, name) for name in INPUTS},
            "feature_width": self._feature_width,
            "fit_history": history,
        }
        write_arrays(Path(path), {**self._state(), "unit": np.array([self._scale])}, description)

    def restore(self, state: Mapping[str, NDArray[Any]], description: Mapping[str, Any]) -> None:
        """Restore the state that :meth:`save` wrote.

        Raises
        ------
        KeyError or ValueError : it does not match the class.
        """
        self._scale = state["unit"].item()
        self._load_state(state)
        self.fit_history = dict(description["fit_history"])
        self.fit_seconds = None
        for name in INPUTS:
            setattr(self, name, description[name])
        self.n_classes = int(description["n_classes"])
        self.n_samples = int(description["n_samples"])
        self.class_names = self.class_names and tuple(self.class_names)
        self._feature_width = description["feature_width"]

    def _checked(self, logits: Any, n_classes: int | None = None) -> Array:
        """Return checked logits ``(N, K)`` with row maximum 0."""
        return check_logits(logits, n_classes)

    def _fit_noted(
        self, logits: Array, labels: Labels, features: Array | None = None, head: Head | None = None
    ) -> dict[str, Any]:
        """Run :meth:`_fit`, and record which attributes it set, for :meth:`_state`."""
        before = dict(vars(self))
        history = self._fit(logits, labels, features, head)
        self._fitted |= {
            name
            for name, value in vars(self).items()
            if name not in before or before[name] is not value
        }
        return history

    def _require_fitted(self) -> None:
        if self.n_classes is None:
            raise StateError(
                f"Calibrator '{self.id}' is not fitted; call fit(logits, labels) first, or load a "
                "file."
            )

    @abstractmethod
    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> dict[str, Any]:
        """Fit, and return the ``fit_history``. Its ``unconverged``, if not empty, says why an
        optimiser stopped early, and becomes a warning and ``converged``.
        """

    @abstractmethod
    def _transform(self, logits: Array, features: Array | None) -> Array:
        """Return probabilities ``(N, K)``.

        For :meth:`module`, logits and the numbers of the fit are tensors; see
        :func:`calgrid.calibrators._probabilities.namespace`.
        """

    def _output(self, logits: Array, features: Array | None) -> Output:
        """Return probabilities, with logarithms if the map has more exact ones than theirs."""
        return Output(self._transform(logits, features))

    def _state(self) -> dict[str, NDArray[Any]]:
        """Return the fitted arrays from which :meth:`_load_state` restores the same output to the
        last bit.

        By default these are the attributes that the fit has set.

        Raises
        ------
        ConfigError : one is no array or number.
        """
        state = {name: getattr(self, name) for name in sorted(self._fitted)}
        for name, value in state.items():
            if not isinstance(value, (np.ndarray, np.number, np.bool_, int, float)):
                raise ConfigError(
                    f"Calibrator '{self.id}' keeps {name} of its fit, which is neither an array "
                    "nor a number; define _state() and _load_state()."
                )
        return {name: np.asarray(value) for name, value in state.items()}

    def _load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore fitted arrays."""
        self._fitted = {*state} - {"unit"}
        for name in self._fitted:
            setattr(self, name, state[name][()])  # an array, or a number


class SoftmaxCalibrator(Calibrator):
    """A calibrator whose output is the softmax of scores; a subclass overrides :meth:`_scores`
    instead of :meth:`_transform`.
    """

    @abstractmethod
    def _scores(self, logits: Array, features: Array | None) -> Array:
        """Return scores ``(N, K)`` with row maximum 0."""

    def _transform(self, logits: Array, features: Array | None) -> Array:
        return by_blocks(softmax, self._scores(logits, features))

    def _output(self, logits: Array, features: Array | None) -> Output:
        return Output.of_scores(self._scores(logits, features))
