"""The scheduling core: one state machine under the live driver and the simulator.

No clock, no waiting, no chance, no files, no network. `scheduler.Scheduler.handle` is the only door.
"""
