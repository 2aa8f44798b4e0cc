"""When jobs start and end, and how sure that is: futures of a state, bounds that hold, and trials of both on logs."""
