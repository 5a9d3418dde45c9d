"""my_component: its value, worked out by hand."""

from pathlib import Path

from calgrid.components import plugins
from calgrid.components.metrics import plugin_metrics
from calgrid.metrics import evaluate

plugins.use([Path(__file__).parents[1]])

HINT = "replace this number: it is that of the template"


def test_one_of_four_images_is_wrong_and_confident() -> None:
    probs = [[0.95, 0.05], [0.95, 0.05], [0.6, 0.4], [0.2, 0.8]]
    values = evaluate(probs, [1, 0, 1, 0], further=plugin_metrics(["my_component"]))
    assert values["my_component"] == 0.25, HINT
