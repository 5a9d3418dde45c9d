"""``calgrid init``: a new folder from which Snakemake runs a study."""

import shutil
from pathlib import Path

import yaml

from calgrid.cli.terminal import Arguments, write
from calgrid.components.validation import validated
from calgrid.errors import ConfigError
from calgrid.storage.atomic import new_folder
from calgrid.study.home import home
from calgrid.study.model import Config

CONFIGURATION = """\
# A small study of the embedded data set: minutes on two cores.
# calgrid schema prints all keys, with types, defaults and meanings.
study: {name}
plugins: [plugins]                   # methods of your own: calgrid new loss my_loss

grids:
  - protocol: digits
    datasets: [digits]
    backbones: [resnet8]
    methods: [ce, mbls, fedlas_mbls]
    seeds: [1, 2, 3]
    calibrators: [none, ts, smart]
    shifts: [digits_c]
"""
SNAKEFILE = """\
# The workflow of the installed calgrid, with the study in config/config.yaml.
from calgrid.study.home import home


include: home() / "workflow/Snakefile"


rule default:
    default_target: True
    input:
        rules.all.input,
"""


def init(options: Arguments) -> None:
    """Write configuration, Snakefile, profiles and a plugin folder; on an error, nothing."""
    folder: Path = options.folder
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ConfigError(
            f"{folder} exists already and is not an empty folder; choose another name."
        )
    workflow = home() / "workflow"
    text = CONFIGURATION.format(name=folder.resolve().name)
    validated(Config, yaml.safe_load(text), f"the name of the folder {folder}")
    with new_folder(folder.resolve()) as new:
        for path, content in {
            "Snakefile": SNAKEFILE,
            "config/config.yaml": text,
            "plugins/.gitkeep": "",
        }.items():
            (new / path).parent.mkdir(parents=True, exist_ok=True)
            (new / path).write_text(content, encoding="utf-8")
        shutil.copytree(workflow / "profiles" / "default", new / "profiles" / "default")
        shutil.copytree(workflow / "profiles" / "slurm", new / "slurm")
    write(
        f"wrote {folder}\nStudy:   config/config.yaml (check it: calgrid check "
        f"config/config.yaml)\n"
        f"Run it:  cd {folder} && calgrid run config/config.yaml\n"
        "Cluster: slurm/config.yaml, then calgrid run config/config.yaml --profile slurm\n"
        "Methods: plugins/ (add one: calgrid new loss my_loss)\n"
    )
