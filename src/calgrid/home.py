"""Where the workflow is: rules, schemas, protocols, studies, and all that tables of papers need."""

from pathlib import Path


def home() -> Path:
    """Folder that holds ``workflow`` and ``config``: the checkout that this package lies in, or its own folder.

    A wheel has both inside the package, through the links in ``src/calgrid/_home``.
    """
    checkout = Path(__file__).parents[2]
    return checkout if (checkout / "workflow" / "Snakefile").is_file() else Path(__file__).parent / "_home"
