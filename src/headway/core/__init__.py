"""The scheduling core: one state machine under the live driver and the simulator.

It has no clock, no waiting, no randomness, no files and no network. `scheduler.Scheduler.handle` is the only entry
point.
"""
