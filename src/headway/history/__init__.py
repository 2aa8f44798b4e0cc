"""What earlier jobs tell of later ones: predicted run times, the same for the simulator and the live system."""
