"""The test images in the bins of a reliability diagram, and pictures of those that may be shown."""

import base64
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image

from calgrid.calibrators import Calibrator, build_calibrator, load_calibrator
from calgrid.components.registry import describe, load
from calgrid.errors import CalgridError
from calgrid.metrics import Predictions, check_probabilities
from calgrid.metrics.binning import bin_index, bin_sums
from calgrid.reporting.run import Run
from calgrid.reporting.study import UNCALIBRATED
from calgrid.storage.logits import Logits

#: data sets whose pictures may be passed on: scikit-learn includes them, or what they are made of
SHOWN = ("digits", "digits_ambiguous")
#: images listed of a bin
MOST_IMAGES = 24
#: rule of the list, for the page
DRAWN = (
    f"At most {MOST_IMAGES} images of a bin are listed: all of its images are sorted by "
    "confidence, and taken at equal steps from the lowest to the highest."
)
NO_FIT = "The fitted calibrator is not stored with the run, so the images of its bins are unknown."
#: index, label, prediction and confidence in tenths of a percent of each image, one after another
Listed = list[int]


def listed_images(
    run: Run, checkpoint: str, bins: Mapping[str, pd.DataFrame]
) -> dict[str, dict[str, Listed] | str]:
    """List images of each bin on the clean test split, or say why they are unknown.

    A stored fit counts only if it gives the bins of the study.

    Parameters
    ----------
    bins : calibrator -> its rows of ``bins.parquet`` of this run, in the order of the bins.

    Returns
    -------
    calibrator -> bin -> images, in the order of their confidence.

    Raises
    ------
    DataError : the logits are missing or damaged.
    """
    data = run.logits("test", checkpoint)
    fits = run.predicted.parent / "fits" / checkpoint if run.predicted else Path()
    found: dict[str, dict[str, Listed] | str] = {}
    for name, expected in bins.items():
        found[name] = NO_FIT
        for calibrator in _fits(fits, name, data):
            probabilities = calibrator.predict_proba(data.logits, features=data.features)
            predictions = check_probabilities(probabilities, data.label)
            if _has_bins(predictions, expected):
                found[name] = _images_of(predictions, data.index, len(expected))
                break
    return found


def _fits(folder: Path, name: str, data: Logits) -> Iterator[Calibrator]:
    """Stored fits of a calibrator; those that cannot be read are passed over."""
    if name == UNCALIBRATED:
        yield build_calibrator(name).fit(data.logits, data.label)
        return
    for path in sorted(folder.glob(f"{escape(name)}-seed*.safetensors")):
        try:
            yield load_calibrator(path)
        except CalgridError:
            continue


def _has_bins(predictions: Predictions, expected: pd.DataFrame) -> bool:
    sums = pd.DataFrame(asdict(bin_sums(predictions, len(expected))))
    return np.allclose(sums, expected[sums.columns], rtol=1e-9, atol=1e-9)


def _images_of(
    predictions: Predictions, index: NDArray[np.int32], n_bins: int
) -> dict[str, Listed]:
    confidence = predictions.confidence
    place = bin_index(confidence, n_bins)
    answer = predictions.probs.argmax(axis=1)
    columns = (index, predictions.labels, answer, np.rint(1000 * confidence).astype(int))
    table = np.column_stack(columns)
    listed = {}
    for number in np.unique(place):
        rows = np.flatnonzero(place == number)
        rows = rows[np.argsort(confidence[rows], kind="stable")]
        steps = np.linspace(0, len(rows) - 1, min(len(rows), MOST_IMAGES))
        listed[str(number)] = table[rows[steps.round().astype(int)]].ravel().tolist()
    return listed


def pictures(dataset: str) -> dict[str, Any] | None:
    """One picture of all test images, row by row, in squares; None if they may not be shown.

    ``labels`` has the label of each image, and ``source`` that of the data set.
    """
    if dataset not in SHOWN:
        return None
    test = load("dataset", dataset)().build(None)["test"]
    columns = math.ceil(math.sqrt(len(test)))
    sheet = _sheet(test.images.transpose(0, 2, 3, 1), columns)
    return {
        "columns": columns,
        "lines": math.ceil(len(test) / columns),
        "sheet": f"data:image/png;base64,{base64.b64encode(sheet).decode()}",
        "source": describe("dataset", dataset).source,
        "labels": test.labels.tolist(),
    }


def _sheet(images: NDArray[np.uint8], columns: int) -> bytes:
    """Images (N, H, W, 3) side by side as the bytes of a PNG file."""
    count, height, width, _ = images.shape
    lines = math.ceil(count / columns)
    squares = np.zeros((lines * columns, height, width, 3), np.uint8)
    squares[:count] = images
    squares = squares.reshape(lines, columns, height, width, 3).swapaxes(1, 2)
    sheet = squares.reshape(lines * height, columns * width, 3)
    is_grey = (sheet == sheet[:, :, :1]).all()
    buffer = io.BytesIO()
    Image.fromarray(sheet[:, :, 0] if is_grey else sheet).save(buffer, "png", optimize=True)
    return buffer.getvalue()
