"""``calgrid export``: a saved calibrator for other runtimes."""

import argparse
import sys

from calgrid.calibrators import load_calibrator
from calgrid.optional import require
from calgrid.storage.atomic import require_writable


def export(options: argparse.Namespace) -> None:
    """Write a saved calibrator as an ONNX model."""
    calibrator = load_calibrator(options.fitted)
    require("onnx")
    require_writable(options.onnx)
    from calgrid.integrations.onnx import write_onnx

    write_onnx(calibrator, options.onnx)
    sys.stdout.write(
        f"{options.onnx}: {calibrator!r}; {calibrator.kind} to calibrated probabilities, checked "
        f"with ONNX Runtime\n"
    )
