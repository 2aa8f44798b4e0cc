"""Adapters to things that really run tasks; each keeps the protocol of `headway.engines.base`."""
