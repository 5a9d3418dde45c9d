"""Fitted calibrators as ONNX models."""

import json
import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from onnx import TensorProto
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as MissingOperator
from onnxscript import opset18

from calgrid.calibrators import Calibrator
from calgrid.errors import ConfigError, StateError
from calgrid.storage.atomic import write_bytes

#: largest difference from NumPy
TOLERANCE = 1e-6
#: without types, which exclude inputs of any type
OPERATORS: Any = opset18
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
    ConfigError : the map has no module (:meth:`~calgrid.calibrators.Calibrator.module`), or ONNX
        Runtime lacks a function of it.
    """
    content = _exported(calibrator)
    values = _drawn(calibrator)
    try:
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    except MissingOperator as error:
        raise _not_in_onnx(calibrator) from error
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
                custom_translation_table={torch.ops.aten.searchsorted.Tensor: _searchsorted},
            )
    except torch.onnx.OnnxExporterError as error:
        raise _not_in_onnx(calibrator) from error
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


def _not_in_onnx(calibrator: Calibrator) -> ConfigError:
    return ConfigError(
        f"Calibrator '{calibrator.id}' cannot be written as ONNX, because ONNX Runtime lacks a "
        "function of its map in float64; use calibrator.module() or predict_proba."
    )


def _searchsorted(sorted_sequence: Any, self: Any, right: bool = False, **_: Any) -> Any:
    """The number of cuts below each value, or with ``right`` at most each."""
    cuts = sorted_sequence
    if len(cuts.shape) == 2:
        cuts = OPERATORS.Unsqueeze(cuts, OPERATORS.Constant(value_ints=[1]))
    last = OPERATORS.Constant(value_ints=[-1])
    compare = OPERATORS.LessOrEqual if right else OPERATORS.Less
    passed = compare(cuts, OPERATORS.Unsqueeze(self, last))
    return OPERATORS.ReduceSum(OPERATORS.Cast(passed, to=TensorProto.INT64), last, keepdims=0)


def _drawn(calibrator: Calibrator) -> Any:
    """Random inputs of the calibrator, float32, some with an impossible class."""
    draws = np.random.default_rng(0).normal(size=(CHECKED_ROWS, calibrator.n_classes or 2))
    logits = 5.0 * calibrator._scale * draws
    logits[::10, 0] = -np.inf
    if calibrator.kind == "probabilities":
        logits = np.exp(logits - logits.max(axis=1, keepdims=True))
        logits /= logits.sum(axis=1, keepdims=True)
    return (logits[:, 1] if calibrator.binary else logits).astype(np.float32)
