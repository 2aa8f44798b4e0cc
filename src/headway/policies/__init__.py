"""Policies: pure functions from what is the case to who shall hold what. None keeps anything between two calls."""
