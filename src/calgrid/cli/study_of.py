"""The study named by an argument: its configuration, or the folder of its results."""

import zipfile
from collections.abc import Iterator
from pathlib import Path

from calgrid.components.options import Options
from calgrid.errors import ConfigError, StateError, refuse
from calgrid.storage.manifest import Manifest, plans
from calgrid.storage.records import BANK, HIDDEN, MANIFEST, read_record, why_not_current
from calgrid.storage.schema import METRICS
from calgrid.study.home import home
from calgrid.study.model import Config
from calgrid.study.study import Study
from calgrid.study.yaml_files import read_configuration, with_plugins

#: configuration in an archive, and in the hidden folder of a study that was run by its folder
STUDY_FILE = "study.yaml"
EXPECTED = "give the configuration of a study (YAML), or its folder, such as results/digits"


def study_folder(place: Path) -> Path:
    """Folder of the results of a study, finished or not, named by its configuration, the folder
    itself or an unpacked archive.

    Raises
    ------
    ConfigError : the place is nothing of these, or the study has no results.
    """
    if not place.is_dir():
        folder = configured_folder(_read(place))
        if not _is_study(folder):
            raise ConfigError(
                f"The study of {place} has no results in {folder}; run it with 'calgrid run "
                f"{place}'."
            )
        return folder
    inside = studies(place) if (place / BANK).is_file() else []
    folder = inside[0] if len(inside) == 1 else place
    if not _is_study(folder):
        raise ConfigError(f"The folder {place} holds no study; {EXPECTED}.")
    return folder if folder.name not in ("", "..") else folder.resolve()


def finished_study(place: Path) -> Path:
    """Folder of the results of a finished study with current files, named as in
    :func:`study_folder`.

    Raises
    ------
    ConfigError : as in :func:`study_folder`.
    StateError : the study is not finished, or its files are damaged or outdated.
    """
    study = study_folder(place)
    if not (study / MANIFEST).is_file():
        raise StateError(f"The study in {study} is not finished; run it first.")
    require_current(study, study)
    return study


def require_current(study: Path, place: Path) -> None:
    """Raise StateError unless all files of the study exist, are intact and current; the message
    names its ``place``.
    """
    if why := why_not_current(study):
        raise StateError(
            f"The files of the study in {place} do not belong together: {why}; run it again."
        )


def configuration(place: Path) -> Options:
    """Configuration of a study: from its file, or from the last run of the study in a folder.

    Raises
    ------
    ConfigError : as in :func:`study_folder`, or the file is no valid YAML.
    DataError : its list of results is damaged.
    """
    if not place.is_dir():
        return with_plugins(_read(place), place)
    folder = study_folder(place)
    packed = folder.with_name(STUDY_FILE)
    if folder.with_name(BANK).is_file():
        values = with_plugins(read_configuration(packed), packed)
    else:
        values = last_manifest(folder)["given"]
    if configured_folder(values).resolve() != folder.resolve():  # it was copied or unpacked
        values = {**values, "results": str(folder.parent), "study": folder.name}
    return values


def read_study(place: Path, data_root: Path | None = None) -> Study:
    """Read and expand the configuration of a study; ``data_root`` replaces the one in it.

    Raises
    ------
    ConfigError, DataError : as in :func:`configuration`, or it is invalid.
    """
    chosen = {} if data_root is None else {"data_root": str(data_root)}
    return Study({**configuration(place), **chosen}, home())


def configured_folder(values: Options) -> Path:
    """Folder of the study of a configuration, which need not be valid otherwise.

    Raises
    ------
    ConfigError : it names no study.
    """
    if "study" not in values:
        raise ConfigError(f"The configuration has no key 'study'; {EXPECTED}.")
    results = values.get("results") or Config.model_fields["results"].default
    return Path(str(results), str(values["study"]))


def studies(results: Path) -> list[Path]:
    """Folders of all studies, finished or not, in a folder of results."""
    return sorted(path.parent for path in results.glob(f"*/{HIDDEN}"))


def is_results(place: Path) -> bool:
    """Whether a folder holds the results of studies, or of runs alone."""
    return (place / "runs").is_dir() or bool(studies(place))


def manifests(study: Path) -> Iterator[Manifest]:
    """Manifest of a study, and of the newest plan of an unfinished one."""
    if (study / MANIFEST).is_file():
        yield read_record(study / MANIFEST, "manifest")
    if planned := plans(study):
        yield read_record(planned[-1], "plan")["manifest"]


def last_manifest(study: Path) -> Manifest:
    """Manifest of the last call of a study."""
    *_, last = manifests(study)
    return last


def _is_study(folder: Path) -> bool:
    # prepared data have a manifest, too; a copy may be without the hidden folder
    finished = any((folder / name).exists() for name in (HIDDEN, METRICS))
    return bool(plans(folder)) or ((folder / MANIFEST).is_file() and finished)


def _read(file: Path) -> Options:
    refuse(
        (not file.exists(), f"There is no {file}; {EXPECTED}."),
        (
            zipfile.is_zipfile(file),
            f"{file} is an archive; unpack it with 'python -m zipfile -e {file} archive', and give "
            "the folder archive.",
        ),
    )
    return read_configuration(file)
