"""Figures of the MaC-Cal paper."""
