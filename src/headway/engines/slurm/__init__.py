"""Nodes of a Slurm cluster, beside whatever else runs there. Each attempt is a job of Slurm, placed by name."""
