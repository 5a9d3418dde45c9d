"""Share of weights that the mask keeps by epoch (MaC-Cal, Figure 8)."""

from calgrid.report.figures.histories import Curve, Histories

FIGURE = Histories(
    {
        "retention": Curve("Weights kept (%)"),
        "masked_accuracy": Curve("Training\naccuracy (%)"),
        "masked_confidence": Curve("Training\nconfidence (%)"),
        "clip": Curve("Largest change\n(points)", high=None),
    },
    "retention",
    7.0,
    "Masking of MaC-Cal on {place}, by epoch of the second stage; {seeds}. Panels: share of "
    "weights that the mask of an epoch keeps; accuracy and mean confidence over its training "
    "batches with the mask, whose weighted difference determines the next share; and the largest "
    "change that the threshold allows (percentage points, 0 for a fixed share). Accuracy and "
    "confidence are measured on training images, not on the test split.",
    align=True,
)

collect, draw, caption = FIGURE.collect, FIGURE.draw, FIGURE.caption
