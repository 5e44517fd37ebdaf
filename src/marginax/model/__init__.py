"""A model with its data: the density, groups, where parameters live, and their names."""
