"""Plain training: one stage, every parameter, from random weights."""

from calgrid.procedures._base import Procedure
from calgrid.registry import register


@register(source="the protocol alone")
class Standard(Procedure):
    """Plain training with the method's loss."""
