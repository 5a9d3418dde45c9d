"""Shared parts of figures: styles, lines of means, panels of points."""
