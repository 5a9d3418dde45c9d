"""calgrid: one protocol for the calibration of image classifiers."""

__version__ = "0.1.0"
