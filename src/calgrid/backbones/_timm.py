"""The library timm, imported without wandb.

timm imports wandb, if it is installed, for a script of its own: that takes five times as long as
all the rest of timm.
"""

import sys

wandb = sys.modules.get("wandb")
sys.modules["wandb"] = wandb  # type: ignore[assignment]  # None: an import of it fails
try:
    import timm
finally:
    if wandb is None:
        del sys.modules["wandb"]

__all__ = ["timm"]
