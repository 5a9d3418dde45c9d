"""Plain training: one stage, every parameter, from random weights."""

from calgrid.registry import register
from calgrid.training.procedure import Procedure


@register(source="the protocol alone")
class Standard(Procedure):
    """Plain training with the method's loss."""
