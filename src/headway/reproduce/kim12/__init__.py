"""Kim12: estimates from the history of a program, and due dates that can be kept."""
