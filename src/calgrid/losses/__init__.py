"""Training objectives on a batch: one file = one loss = one identifier.

    loss = build_loss("mbls", num_classes=10, dataset="cifar10", lambda_=0.2)
    total = loss(logits, labels)  # scalar float32 tensor; the terms are in loss.last_terms

``calgrid new loss my_loss`` writes a new one, ``losses/my_loss.py``, and its test.
"""

from calgrid.optional import say_extra

with say_extra():
    from calgrid.losses.base import Loss, LossTerms, Terms, build_loss, planned_loss

__all__ = ["Loss", "LossTerms", "Terms", "build_loss", "planned_loss"]
