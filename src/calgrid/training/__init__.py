"""Training: one loop for all methods."""
