"""The process of a node, and its guard: supervises what runs in the processes of the slots."""
