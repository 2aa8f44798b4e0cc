"""Policies: pure functions from a snapshot to a plan. None keeps anything between two calls."""
