"""The live system over HTTP."""
