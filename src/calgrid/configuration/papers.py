"""Folders of papers, ``config/papers/{paper}``: which there are, the modules that draw their
figures (``figures.yaml``), and runs that are those of their studies.
"""

from dataclasses import dataclass, field
from pathlib import Path

from calgrid.components.validation import validated
from calgrid.configuration.model import Config
from calgrid.configuration.yaml_files import read_yaml

#: package with a folder for each paper; its modules are imported by name alone
PAPERS = "calgrid.papers"
#: file with the printed numbers of a paper
PUBLISHED = "published.csv"
#: parts of a configuration that give names a meaning
DEFINITIONS = ("datasets", "methods", "calibrators", "protocols")


def paper_folder(home: Path, name: str) -> Path:
    """Folder of a paper, below the folder with ``config``."""
    return home / "config" / "papers" / name


def paper_names(home: Path) -> list[str]:
    """Names of all papers, in alphabetical order."""
    return sorted(path.parent.name for path in paper_folder(home, "").glob(f"*/{PUBLISHED}"))


def own_protocols(home: Path, name: str, config: Config) -> list[str]:
    """Protocols of the ``study.yaml`` of a paper that share tables as there, if a configuration
    defines all names as that file does, else none: their runs are those of the paper's study,
    except for data sets, methods and seeds that are left out or added.
    """
    path = paper_folder(home, name) / "study.yaml"
    if not path.is_file():
        return []
    what = f"study {name}/{path.name}"
    own = validated(Config, read_yaml(path, what), what)
    for part in DEFINITIONS:
        if not getattr(own, part).items() <= getattr(config, part).items():
            return []
    if own.overrides != config.overrides:
        return []
    lines, own_lines = line_of(config), line_of(own)
    shared = set()
    for grid in own.grids:
        if lines.get(grid.protocol) == own_lines.get(grid.protocol):
            shared.add(grid.protocol)
    return sorted(shared)


def line_of(config: Config) -> dict[str, str]:
    """Protocol -> the line by which it shares tables of papers with others."""
    lines: dict[str, str] = {}
    for line, protocols in config.lines.items():
        lines.update(dict.fromkeys(protocols, line))
    return lines


@dataclass(frozen=True)
class PaperModules:
    """Modules of all papers by their full names, in the order of ``figures.yaml`` of each paper.

    Attributes
    ----------
    figures : module -> the figure that it draws for any study with its data: arguments of
        ``calgrid.reporting.figure.FigureKind``.
    tables : modules that build a table of any study with its data.
    diagnostics : module that measures fitted calibrators in every job ``calibrate`` -> files that
        it makes in the folder of a study.
    """

    figures: dict[str, dict[str, str]] = field(default_factory=dict)
    tables: list[str] = field(default_factory=list)
    diagnostics: dict[str, list[str]] = field(default_factory=dict)


def paper_modules(home: Path) -> PaperModules:
    """Modules that the files ``figures.yaml`` of all papers name."""
    modules = PaperModules()
    for path in figure_files(home):
        package = f"{PAPERS}.{path.parent.name}"
        content = read_yaml(path, f"figures {path.parent.name}/{path.name}")
        for figure in content["drawn"]:
            modules.figures[f"{package}.{figure['id']}"] = figure
        for table in content.get("tabulated", ()):
            modules.tables.append(f"{package}.{table}")
        for diagnostic in content.get("diagnostics", ()):
            modules.diagnostics[f"{package}.{diagnostic['module']}"] = diagnostic["files"]
    return modules


def figure_files(home: Path) -> list[Path]:
    """The file ``figures.yaml`` of each paper."""
    return [paper_folder(home, name) / "figures.yaml" for name in paper_names(home)]
