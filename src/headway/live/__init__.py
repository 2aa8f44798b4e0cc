"""The live system: a journal that is durable before anything is done, and the driver that owns time."""
