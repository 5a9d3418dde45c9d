"""Calibrators of a configuration: registered ones and named variants."""

from typing import Any

from calgrid import registry
from calgrid.configuration.variants import VariantBook
from calgrid.errors import ConfigError


class CalibratorBook(VariantBook):
    """All calibrators that a configuration can name."""

    kind = "calibrator"

    def resolve(self, name: str, where: str) -> dict[str, Any]:
        """Return ``{"name", "id", "options", "stochastic", "needs"}`` of a calibrator, all options filled in."""
        if "seed" in self.changes(name):
            raise ConfigError(f"{where}: seeds of a calibrator are given by calibrator_seeds, not by 'seed'.")
        resolved = super().resolve(name, where)
        resolved["options"].pop("seed", None)
        info = registry.spec("calibrator", resolved["id"]).info
        return {
            **resolved,
            "stochastic": bool(info.get("stochastic", False)),
            "needs": list(info.get("needs", ("logits",))),
        }
