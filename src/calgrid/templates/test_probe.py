"""my_component: its measurement, worked out by hand."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from calgrid.components import plugins
from calgrid.probes import build_probe

plugins.use([Path(__file__).parents[1]])

HINT = "replace this number: it is that of the template"


def test_norms_of_two_images() -> None:
    outputs = SimpleNamespace(features=np.array([[3.0, 4.0], [0.0, 1.0]]))
    subject: Any = SimpleNamespace(labels=np.array([0, 1]), outputs=outputs)
    table = build_probe("my_component", power=2.0).measure(subject)
    assert table["norm"].tolist() == [5.0, 1.0], HINT
    assert table["label"].tolist() == [0, 1]
