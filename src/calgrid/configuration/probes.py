"""Probes of a configuration: registered ones and named variants."""

from collections.abc import Mapping
from typing import Any

from calgrid import registry
from calgrid.configuration.methods import Method
from calgrid.errors import ConfigError, unknown_id


class ProbeBook:
    """All probes that a configuration can name.

    Parameters
    ----------
    variants : name -> {"base": registered id, option: value, ...}.
    """

    def __init__(self, variants: Mapping[str, Mapping[str, Any]]) -> None:
        self.variants = variants
        known = registry.specs("probe")
        for name, variant in variants.items():
            if name in known:
                raise ConfigError(f"probes.{name}: '{name}' is a registered probe; choose another name.")
            registry.spec("probe", variant["base"], f"probes.{name}.base")
            self.resolve(name, f"probes.{name}")

    def resolve(self, name: str, where: str) -> dict[str, Any]:
        """Return ``{"name", "id", "options"}`` of a probe, all options filled in."""
        known = registry.specs("probe")
        change = dict(self.variants.get(name, {"base": name}))
        base = change.pop("base")
        if base not in known:
            raise unknown_id("probe", name, [*known, *self.variants], where)
        return {"name": name, "id": base, "options": known[base].resolve(change, where=where)}


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
