"""Machines that are rented: price lists, which to choose, and the providers that rent them out."""
