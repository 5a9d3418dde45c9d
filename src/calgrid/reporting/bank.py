"""The page of a bank of results: rankings of its methods and calibrators, licence and citation."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calgrid.configuration.manifest import Manifest
from calgrid.reporting.html import facts_of, template
from calgrid.reporting.study import StudyData
from calgrid.reporting.tables import built, methods, ranks
from calgrid.storage.atomic import write_text
from calgrid.storage.records import sha256_of

#: tables of the page
RANKINGS = (ranks.method_ranks, ranks.calibrator_ranks, methods.calibrators)


def write_page(study: Path, manifest: Manifest, origin: Mapping[str, Any], archive: Path) -> Path:
    """Write ``index.html``, without scripts, beside the archive of a finished study.

    Parameters
    ----------
    origin : creators, licence and citation.

    Raises
    ------
    DataError : a file of the study is missing or damaged.
    """
    data = StudyData(study, manifest)
    context = {
        "study": manifest["configuration"]["study"],
        "facts": facts_of(data),
        "origin": origin,
        "tables": list(built(data, RANKINGS)),
        "archive": archive.name,
        "sha256": sha256_of(archive),
    }
    page = archive.with_name("index.html")
    write_text(page, template("bank.html.j2").render(context))
    return page
