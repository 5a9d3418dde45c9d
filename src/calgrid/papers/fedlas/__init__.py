"""Figures of the FeDLaS paper, and the table of its indicator."""
