"""Calibrators of a configuration: registered ones and named variants."""

from collections.abc import Mapping
from typing import Any

from calgrid import registry
from calgrid.errors import ConfigError, unknown_id


class CalibratorBook:
    """All calibrators that a configuration can name.

    Parameters
    ----------
    variants : name -> {"base": registered id, hyper-parameter: value, ...}.
    """

    def __init__(self, variants: Mapping[str, Mapping[str, Any]]) -> None:
        self.variants = variants
        known = registry.specs("calibrator")
        for name, variant in variants.items():
            if name in known:
                raise ConfigError(f"calibrators.{name}: '{name}' is a registered calibrator; choose another name.")
            registry.spec("calibrator", variant["base"], f"calibrators.{name}.base")
            self.resolve(name, f"calibrators.{name}")

    def base(self, name: str, where: str) -> registry.Spec:
        """Registered calibrator behind a registered id or a variant's name."""
        known = registry.specs("calibrator")
        base = self.variants[name]["base"] if name in self.variants else name
        if base not in known:
            raise unknown_id("calibrator", name, [*known, *self.variants], where)
        return known[base]

    def resolve(self, name: str, where: str) -> dict[str, Any]:
        """Return ``{"name", "id", "options", "stochastic", "needs"}`` of a calibrator, all options filled in."""
        spec = self.base(name, where)
        options = {key: value for key, value in self.variants.get(name, {}).items() if key != "base"}
        if "seed" in options:
            raise ConfigError(f"{where}: seeds of a calibrator are given by calibrator_seeds, not by 'seed'.")
        resolved = spec.resolve(options, where=where)
        resolved.pop("seed", None)
        return {
            "name": name,
            "id": spec.id,
            "options": resolved,
            "stochastic": bool(spec.info.get("stochastic", False)),
            "needs": list(spec.info.get("needs", ("logits",))),
        }
