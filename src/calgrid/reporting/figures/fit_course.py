"""Course of a calibrator's fit in the plane of ECE and NLL (SMART, Figure 2)."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from calgrid.calibrators import Calibrator, build_calibrator
from calgrid.metrics import ece, nll
from calgrid.reporting import text
from calgrid.reporting.figures import _fits, _style
from calgrid.reporting.study import UNCALIBRATED, Group, StudyData
from calgrid.storage.logits import Logits

#: calibrators in the order of their colours
NAMES = tuple(_fits.FITTED)
#: the bins of the trace
BINS = 15


def caption(data: StudyData, group: Group) -> str:
    """Say what the paths are."""
    fits = _fits.fits(data, group)
    traced = text.listed([name for name, each in fits.calibrators.items() if _trace(each)])
    val = fits.logits("val")
    error, loss = _errors(build_calibrator(UNCALIBRATED).fit(val.logits, val.label), val)
    return (
        f"NLL against ECE ({BINS} bins) of the {len(val):,} validation images while {traced} "
        f"{'is' if ' ' not in traced else 'are'} fitted to them, every 20th epoch; {_fits.whose(data, group)}. "
        "Hollow: the first weights; filled: the weights that are kept, or the only ones. Without calibration: ECE "
        f"{text.amount('ece', error)}, NLL {text.amount('nll', loss)}. "
        "These images fitted the calibrators: what holds on new ones is in the tables, with accuracy and the ECE null."
    )


def draw(data: StudyData, group: Group) -> Figure | None:
    """Draw one path a calibrator that is fitted step by step, and a point for the others."""
    fits = _fits.fits(data, group)
    if fits is None:
        return None
    val = fits.logits("val")
    figure = _style.new_figure(_style.WIDTH, 4.6)
    ax = figure.subplots()
    for name, calibrator in fits.calibrators.items():
        _course(ax, name, calibrator, val)
    ax.set_xlabel(f"{text.in_unit('ece')} of the validation images")
    ax.set_ylabel(f"{text.in_unit('nll')} of the validation images")
    handles = [Line2D([], [], label=name, **_look(name)) for name in fits.calibrators]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    return figure


def _course(ax: Axes, name: str, calibrator: Calibrator, val: Logits) -> None:
    look, trace = _look(name), _trace(calibrator)
    if trace:
        errors, losses = [_style.scaled("ece", value) for value in trace["trace_ece"]], trace["trace_nll"]
        ax.plot(errors, losses, color=look["color"], linewidth=1.2, alpha=0.8)
        ax.plot(errors[:1], losses[:1], **{**look, "markerfacecolor": "none", "markersize": 8})
    error, loss = _errors(calibrator, val)
    ax.plot([_style.scaled("ece", error)], [loss], **look)


def _errors(calibrator: Calibrator, data: Logits) -> tuple[float, float]:
    """ECE and NLL of calibrated logits."""
    probabilities = calibrator.predict_proba(data.logits)
    return ece(probabilities, data.label, n_bins=BINS), nll(probabilities, data.label)


def _trace(calibrator: Calibrator) -> dict[str, list[float]]:
    """Course of the fit, empty where there is none."""
    return {key: value for key, value in calibrator.fit_history.items() if key.startswith("trace_")}


def _look(name: str) -> dict[str, object]:
    shade = _style.colour(NAMES, name)
    return {"color": shade, "marker": _style.marker(NAMES, name), "linestyle": "", "markersize": 6}
