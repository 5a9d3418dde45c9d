"""Calibrators in other libraries: scikit-learn and PyTorch."""
