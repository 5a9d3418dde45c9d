"""Share of samples in the positive mode of the gate, and of those whose mode flips (FeDLaS, Figure
3).
"""

from calgrid.report.figures.histories import Curve, Histories

FIGURE = Histories(
    # negative lower limits keep lines at 0 visible, those of fixed gates
    {
        "positive_share": Curve("Positive mode (%)", low=-3),
        "flip_rate": Curve("Mode flipped (%)", low=-1, high=None),
    },
    "positive_share",
    5.2,
    "Gate of FeDLaS on {place}, by epoch; {seeds}. Share of the training samples in positive mode "
    "(gate +1, more smoothing where the indicator is high), and share whose mode differs from that "
    "of the previous epoch. A wide band: seeds converged to opposite modes. A fixed gate stays "
    "at 0 or 100 % and never flips. The modes are the signs of a gate that lowers the training "
    "loss, not labels of over- or under-confidence.",
)

collect, draw, caption = FIGURE.collect, FIGURE.draw, FIGURE.caption
