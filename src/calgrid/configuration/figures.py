"""Figures of papers: files ``config/figures/{paper}.yaml`` that say which of our figures shows what was printed."""

from pathlib import Path
from typing import Any

from calgrid.configuration.reading import read_yaml
from calgrid.configuration.schema import validate
from calgrid.errors import ConfigError

#: keys that name runs and what they must hold; a missing one asks for nothing
WANTED = ("dataset", "backbone", "method", "calibrator", "shift")


def load_figures(path: Path, schema: Path) -> list[dict[str, Any]]:
    """Read and check the figures of a paper.

    Returns
    -------
    Each figure with ``number``, ``shows``, ``figure`` (id of ours, empty where there is none), a list for each key of
    ``WANTED``, ``needs`` and ``note`` (empty where they are not given).

    Raises
    ------
    ConfigError : for a file that does not follow the schema, a number that is there twice, or a figure without ours
        and without a note that says why.
    """
    what = f"figures {path.name}"
    raw = read_yaml(path, what)
    validate(raw, schema, what)
    seen: set[str] = set()
    for entry in raw["figures"]:
        number = entry["number"]
        if number in seen:
            raise ConfigError(f"{what}: the number '{number}' is there twice; name its part, as in '2b'.")
        seen.add(number)
        if not {"figure", "note"} & set(entry):
            raise ConfigError(f"{what}: '{number}' names no figure of ours; name one in 'figure' or say why in 'note'.")
    return [_resolved(entry) for entry in raw["figures"]]


def _resolved(entry: dict[str, Any]) -> dict[str, Any]:
    wanted = {key: entry.get(key, []) for key in WANTED}
    return {
        **{key: entry.get(key, "") for key in ("number", "shows", "figure", "needs", "note")},
        **{key: [value] if isinstance(value, str) else list(value) for key, value in wanted.items()},
    }
