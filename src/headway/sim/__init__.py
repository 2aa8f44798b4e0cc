"""The simulator: the same core as live, under a virtual clock."""
