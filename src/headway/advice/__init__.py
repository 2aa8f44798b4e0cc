"""Deciders: questions and answers as JSON, and how they are exchanged over HTTP."""
