"""``calgrid show``: one run."""

import argparse
import sys
from pathlib import Path

from calgrid.cli.reliability import check_figure
from calgrid.errors import ConfigError, visible_lines
from calgrid.reporting.run import Run, describe, draw
from calgrid.storage.atomic import replacing, require_writable


def show(options: argparse.Namespace) -> None:
    """Print configuration, training history and reliability of a run; also draw them if a file is
    given.
    """
    check_figure(options.plot)
    run = Run.newest(_folder(options.run_folder, options.results))
    text = describe(run, options.checkpoint, options.bins)
    if options.plot:
        require_writable(options.plot)
        figure = draw(run, options.checkpoint, options.bins)
        with replacing(options.plot) as temporary:
            figure.savefig(temporary, format=options.plot.suffix[1:].lower())
    sys.stdout.write(visible_lines(text))


def _folder(text: str, results: Path) -> Path:
    """Folder of a run, given as a path or as ``protocol/dataset/backbone/method/seed1``."""
    places = [Path(text), results / "runs" / text]
    for place in places:
        if any(place.glob("predict-*")) or any(place.glob("train-*")):
            return place
    raise ConfigError(
        f"There is no run in {places[0]} or {places[1]}; give its folder, or "
        "protocol/dataset/backbone/method/seed1 and --results."
    )
