"""Location of the workflow: rules, protocols, studies and definitions of paper tables."""

from pathlib import Path


def home() -> Path:
    """Folder with ``workflow`` and ``config``: the checkout, or (in a wheel) inside the package.

    A wheel has both through the links in ``src/calgrid/_home``.
    """
    package = Path(__file__).parents[1]
    checkout = package.parents[1]
    if (checkout / "workflow" / "Snakefile").is_file():
        return checkout
    return package / "_home"
