"""The engine of this machine, a package for each of its processes: driver, agent, slot; and what they share."""
