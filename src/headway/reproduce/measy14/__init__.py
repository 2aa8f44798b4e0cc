"""The experiments of MEASY14: parallel jobs on two tiers, with kills, reservations or migrations."""
