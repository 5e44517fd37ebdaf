"""Bridges to other libraries: NumPyro models in, ArviZ data out."""
