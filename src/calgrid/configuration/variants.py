"""Components of a configuration: registered ones, and its named variants of them."""

from collections.abc import Mapping
from typing import Any, ClassVar

from calgrid import registry
from calgrid.errors import ConfigError, unknown_id


class VariantBook:
    """All components of one kind that a configuration can name.

    Parameters
    ----------
    variants : name -> {"base": registered id, option: value, ...}.

    Raises
    ------
    ConfigError : a variant has the name of a registered component, or an unknown base or option.
    """

    #: kind in the registry; its plural is the key of the configuration
    kind: ClassVar[str]

    def __init__(self, variants: Mapping[str, Mapping[str, Any]]) -> None:
        self.variants = variants
        known = registry.specs(self.kind)
        for name, variant in variants.items():
            where = f"{self.kind}s.{name}"
            if name in known:
                raise ConfigError(f"{where}: '{name}' is a registered {self.kind}; choose another name.")
            registry.spec(self.kind, variant["base"], f"{where}.base")
            self.resolve(name, where)

    def base(self, name: str, where: str) -> registry.Spec:
        """Registered component behind a registered id or a variant's name."""
        known = registry.specs(self.kind)
        base = self.variants[name]["base"] if name in self.variants else name
        if base not in known:
            raise unknown_id(self.kind, name, [*known, *self.variants], where)
        return known[base]

    def changes(self, name: str) -> dict[str, Any]:
        """Options in which a variant differs from its base; none for a registered component."""
        return {key: value for key, value in self.variants.get(name, {}).items() if key != "base"}

    def resolve(self, name: str, where: str) -> dict[str, Any]:
        """Return ``{"name", "id", "options"}`` of a component, all options filled in."""
        spec = self.base(name, where)
        return {"name": name, "id": spec.id, "options": spec.resolve(self.changes(name), where=where)}
