"""Collectors: plug-ins that measure nodes for the status checker (Lin14 3.5.1)."""
