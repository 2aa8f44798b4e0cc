"""Headway decides which job gets which machines, now and next, so that due dates are met."""

__version__ = "0.1.0"

__all__ = ["__version__"]
