"""Post-hoc calibrators by identifier: maps from logits to calibrated probabilities, fitted on
validation data.

They work on arrays alone, need no deep-learning library and no GPU::

    calibrator = build_calibrator("smart", seed=1).fit(val_logits, val_labels)
    probabilities = calibrator.predict_proba(test_logits)
    scores = calgrid.metrics.evaluate(calibrator.predict_output(test_logits), test_labels)
    calibrator.save("smart.safetensors")
    same = load_calibrator("smart.safetensors")

``calgrid new calibrator my_calibrator`` writes a new one, ``calibrators/my_calibrator.py``, and its
test.
"""

from pathlib import Path
from typing import Any

from calgrid.calibrators._probabilities import logits_from_probabilities
from calgrid.calibrators.base import Calibrator, SoftmaxCalibrator
from calgrid.components.registry import calibrator_id, calibrator_with, description_of, load
from calgrid.errors import ConfigError, StateError
from calgrid.storage.arrays import read_arrays

__all__ = [
    "Calibrator",
    "SoftmaxCalibrator",
    "build_calibrator",
    "load_calibrator",
    "logits_from_probabilities",
]


def build_calibrator(id: str, *, seed: int | None = None, **overrides: Any) -> Calibrator:
    """Build an unfitted calibrator.

    Parameters
    ----------
    id : registered identifier, for example ``"ts"``, or a full name: ``"temperature"`` (``ts``),
        ``"vector"`` and ``"platt"`` (``vs``, which is Platt scaling of two classes), ``"matrix"``
        (``ms``), ``"isotonic"`` (``iso``), ``"histogram"`` (``hb``).
    seed : seed of a stochastic calibrator (default 0); no effect on the others.
    **overrides : hyper-parameters that differ from the calibrator's defaults, for example
        ``sigma=2``.

    Raises
    ------
    ConfigError : unknown ``id`` or hyper-parameter, or a value that it cannot take.
    """
    calibrator = load("calibrator", calibrator_with(calibrator_id(id), overrides))
    component = description_of(calibrator)
    if seed is not None and component.is_stochastic:
        overrides["seed"] = seed
    return calibrator(**component.resolve(overrides))


def load_calibrator(path: str | Path) -> Calibrator:
    """Load a fitted calibrator that :meth:`Calibrator.save` wrote; its output is the same to the
    last bit.

    Histories of the fit (one value per epoch) and its duration are not stored; ``fit_seconds`` is
    None.

    Raises
    ------
    StateError : the file is missing, damaged or not a calibrator, or does not match this version of
        calgrid.
    """
    path = Path(path)
    if not path.is_file():
        raise StateError(f"The calibrator {path} does not exist; fit one and save it there.")
    path.open("rb").close()  # raises PermissionError: such a file is not damaged
    state, description = read_arrays(path, "calibrator", "fit and save it again")
    if not isinstance(description, dict) or "hyperparameters" not in description:
        raise StateError(
            f"The file {path} is not a calibrator; give a file that Calibrator.save wrote."
        )
    try:
        calibrator = build_calibrator(description["id"], **description["hyperparameters"])
        calibrator.restore(state, description)
    except (ConfigError, KeyError, TypeError, ValueError) as error:
        raise StateError(
            f"The calibrator {path} does not fit this version of calgrid ({error}); fit and save "
            "it again or, if a plugin defines it, name the plugin's folder in CALGRID_PLUGINS."
        ) from None
    return calibrator
