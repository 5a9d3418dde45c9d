"""Probes of a configuration: registered ones and named variants."""

from collections.abc import Mapping
from typing import Any

from calgrid import registry
from calgrid.configuration.methods import Method
from calgrid.configuration.variants import VariantBook
from calgrid.errors import ConfigError


class ProbeBook(VariantBook):
    """All probes that a configuration can name."""

    kind = "probe"


def check_head(probe: Mapping[str, Any], name: str, method: Method, where: str) -> None:
    """Refuse a probe of the linear head for a method that has none.

    Parameters
    ----------
    probe : resolved. name : of the method.
    """
    needed = registry.spec("probe", probe["id"]).info.get("needs_linear_head", False)
    if needed and not registry.spec("procedure", method.procedure).info.get("linear_head", True):
        raise ConfigError(
            f"{where}.probes: '{probe['name']}' needs a linear last layer on the features, which '{name}' does not "
            "have; put the method into a grid without this probe."
        )
