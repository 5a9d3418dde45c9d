"""Figures of the SMART paper."""
