"""The experiments of DN13, repeated."""
