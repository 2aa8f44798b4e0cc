"""Engines whose nodes are on other machines: agents are reached over a line, and share no disk with the driver."""
