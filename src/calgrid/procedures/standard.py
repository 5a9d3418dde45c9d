"""Plain training of all parameters in one stage."""

from calgrid.components.registry import register
from calgrid.training.procedure import Procedure


@register(source="the protocol alone", several_gpus=True, cuda_graph=True, averaged_weights=True)
class Standard(Procedure):
    """Plain training with the method's loss."""
