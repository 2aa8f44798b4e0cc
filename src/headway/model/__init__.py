"""The nouns of Headway: frozen values that the core, the policies and the drivers exchange."""
