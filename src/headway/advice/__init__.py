"""Deciders: what one is asked and what it answers, as JSON, and how it is asked over HTTP."""
