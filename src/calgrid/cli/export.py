"""``calgrid export``: a saved calibrator for other runtimes, a finished study for other tools."""

import argparse
import sys
import zipfile
from pathlib import Path

from calgrid.cli.study_of import finished_study
from calgrid.errors import StateError
from calgrid.optional import require
from calgrid.storage.atomic import require_writable


def export(options: argparse.Namespace) -> None:
    """Write a saved calibrator as ONNX, or the numbers of a study as CSV, MLflow or W&B files."""
    if options.onnx is not None:
        _calibrator(options.source, options.onnx)
    else:
        _study(options)


def _calibrator(fitted: Path, onnx: Path) -> None:
    from calgrid.calibrators import load_calibrator

    calibrator = load_calibrator(fitted)
    require("onnx")
    require_writable(onnx)
    from calgrid.integrations.onnx import write_onnx

    write_onnx(calibrator, onnx)
    sys.stdout.write(
        f"{onnx}: {calibrator!r}; {calibrator.kind} to calibrated probabilities, checked with ONNX "
        f"Runtime\n"
    )


def _study(options: argparse.Namespace) -> None:
    """Write the numbers of a study; what exists is never changed."""
    from calgrid.reporting.results import load_study

    source: Path = options.source
    study = load_study(source if zipfile.is_zipfile(source) else finished_study(source))
    data = study.data
    target: Path = options.csv or options.mlflow or options.wandb
    if target.exists():
        raise StateError(f"{target} exists already; give the name of a new file or folder.")
    from calgrid.integrations import tracking

    if options.csv is not None:
        sys.stdout.write(f"{target}: {tracking.write_csv(data, target)} tables\n")
    elif options.mlflow is not None:
        require("mlflow")
        count = tracking.write_mlflow(data, target)
        sys.stdout.write(
            f"{target}: {count} runs; mlflow ui --backend-store-uri sqlite:///{target}\n"
        )
    else:
        require("wandb")
        count = tracking.write_wandb(data, target)
        sys.stdout.write(f"{target}: {count} runs; wandb sync {target}/wandb/offline-run-*\n")
