"""Calibrators of a configuration: registered ones and named variants."""

from collections.abc import Mapping
from typing import Any

from calgrid import registry
from calgrid.configuration.variants import VariantBook
from calgrid.errors import ConfigError


class CalibratorBook(VariantBook):
    """All calibrators that a configuration can name."""

    kind = "calibrator"

    def __init__(self, variants: Mapping[str, Mapping[str, Any]]) -> None:
        super().__init__(variants)
        for name in variants:
            self._build(name, f"calibrators.{name}")

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

    def _build(self, name: str, where: str) -> None:
        """Raise ConfigError for hyper-parameters that the calibrator itself refuses."""
        resolved = self.resolve(name, where)
        try:
            registry.load("calibrator", resolved["id"])(**resolved["options"])
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
