"""MyComponent: say here which paper measures this."""

import numpy as np
import pandas as pd

from calgrid.components.registry import register
from calgrid.probes import Probe, Subject


@register(
    source="authors, title, year",
    limits={"power": "(0, inf)"},
)
class MyComponent(Probe):
    """Length of the feature vector of each test image."""

    power: float = 2.0

    def measure(self, subject: Subject) -> pd.DataFrame:
        """Return one row for each test image: its label and the norm of its features."""
        norms = np.linalg.norm(subject.outputs.features, ord=self.power, axis=1)
        return pd.DataFrame({"label": subject.labels, "norm": norms})
