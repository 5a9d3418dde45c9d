"""Folders of papers, ``config/papers/{paper}``, and protocols whose runs equal a paper's study."""

from pathlib import Path

from calgrid.components.validation import validated
from calgrid.study.model import Config
from calgrid.study.yaml_files import read_yaml

#: what a paper declares for its tables, figures and report
DECLARED = ("tables.yaml", "claims.yaml", "figures.yaml")
#: file with the printed numbers of a paper
PUBLISHED = "published.csv"
#: parts of a configuration that give names a meaning
DEFINITIONS = ("datasets", "methods", "calibrators", "protocols")


def paper_folder(home: Path, name: str) -> Path:
    """Folder of a paper, below the folder with ``config``."""
    return home / "config" / "papers" / name


def own_protocols(home: Path, name: str, config: Config) -> list[str]:
    """Protocols of a paper's ``study.yaml`` with the same ``lines`` in a configuration; none unless
    it defines all names as this file does. Their runs are those of the paper's study, except for
    added or omitted data sets, methods and seeds.
    """
    path = paper_folder(home, name) / "study.yaml"
    if not path.is_file():
        return []
    what = f"study {name}/{path.name}"
    own = validated(Config, read_yaml(path, what), what)
    pairs = [(getattr(own, part), getattr(config, part)) for part in DEFINITIONS]
    are_defined = all(ours.items() <= theirs.items() for ours, theirs in pairs)
    if not are_defined or own.overrides != config.overrides:
        return []
    lines, own_lines = line_of(config), line_of(own)
    protocols = sorted({grid.protocol for grid in own.grids})
    return [each for each in protocols if lines.get(each) == own_lines.get(each)]


def line_of(config: Config) -> dict[str, str]:
    """Protocol -> its line, the key by which protocols share tables of papers."""
    return {each: line for line, protocols in config.lines.items() for each in protocols}
