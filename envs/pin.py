"""Write the versions of requirements.lock into the conda files beside it; `make lock` calls this.

Which packages a stage needs stands in its file. The files lie here, and not in workflow/envs,
beside the lock that they follow and that installs the whole project.
"""

import re
from pathlib import Path

HERE = Path(__file__).parent
#: where conda's name of a package is not PyPI's
CONDA_TO_PYPI = {"pytorch": "torch", "matplotlib-base": "matplotlib", "seaborn-base": "seaborn"}


def pin(text: str, lock: str) -> str:
    """Return a conda file in which every package but Python has its locked version."""
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)$", lock.lower().replace("_", "-"), re.MULTILINE))

    def line(found: re.Match[str]) -> str:
        name = found[1]
        return (
            found[0] if name == "python" else f"  - {name}={locked[CONDA_TO_PYPI.get(name, name)]}"
        )

    return re.sub(r"^  - ([\w.-]+)=.*$", line, text, flags=re.MULTILINE)


if __name__ == "__main__":
    for path in HERE.glob("*.yaml"):
        path.write_text(pin(path.read_text(), (HERE / "requirements.lock").read_text()))
