"""Fitted calibrators as ONNX models."""

import json
import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

from calgrid.calibrators import Calibrator
from calgrid.errors import StateError
from calgrid.storage.atomic import write_bytes

#: largest difference from NumPy
TOLERANCE = 1e-6
#: rows of the check
CHECKED_ROWS = 100


def write_onnx(calibrator: Calibrator, path: Path) -> None:
    """Write the map of a fitted calibrator, atomically, after ONNX Runtime has computed it.

    Its input is named ``logits`` or ``probabilities``, float32 ``(rows, K)``, or ``(rows,)`` of a
    fit on one column; its output ``calibrated``, float32 ``(rows, K)``. Rows that NumPy refuses are
    NaN. Metadata ``calgrid`` holds the calibrator and its classes as JSON.

    Raises
    ------
    StateError : not fitted, or ONNX Runtime computes something else than NumPy.
    ConfigError : the map has no module (:meth:`~calgrid.calibrators.Calibrator.module`).
    """
    content = _exported(calibrator)
    values = _drawn(calibrator)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {calibrator.kind: values})
    difference = float(np.abs(found - calibrator.predict_proba(values)).max())
    if not difference <= TOLERANCE:
        raise StateError(
            "ONNX Runtime computes probabilities that differ from those of NumPy by "
            f"{difference:.2g}, so nothing is written; please report this."
        )
    write_bytes(path, content)


def _exported(calibrator: Calibrator) -> bytes:
    """The model in ONNX."""
    example = torch.from_numpy(_drawn(calibrator)[:2])
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about PyTorch's own code
            program: Any = torch.onnx.export(
                calibrator.module().eval(),
                (example,),
                dynamo=True,
                verbose=False,
                input_names=[calibrator.kind],
                output_names=["calibrated"],
                dynamic_shapes=({0: torch.export.Dim("rows", min=1)},),
            )
    finally:
        logger.setLevel(level)
    about = {
        "calibrator": repr(calibrator),
        "kind": calibrator.kind,
        "classes": calibrator.class_names,
    }
    model = program.model_proto
    model.metadata_props.add(key="calgrid", value=json.dumps(about))
    return model.SerializeToString()


def _drawn(calibrator: Calibrator) -> Any:
    """Random inputs of the calibrator, float32, some with an impossible class."""
    draws = np.random.default_rng(0).normal(size=(CHECKED_ROWS, calibrator.n_classes or 2))
    logits = 5.0 * calibrator._scale * draws
    logits[::10, 0] = -np.inf
    if calibrator.kind == "probabilities":
        logits = np.exp(logits - logits.max(axis=1, keepdims=True))
        logits /= logits.sum(axis=1, keepdims=True)
    return (logits[:, 1] if calibrator.binary else logits).astype(np.float32)
