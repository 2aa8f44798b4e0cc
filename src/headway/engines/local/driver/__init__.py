"""The part in the driver's process: it starts and finds agents, and makes reports of what they say."""
