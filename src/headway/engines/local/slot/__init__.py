"""The process of a slot: runs functions and commands."""
