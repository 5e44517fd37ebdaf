"""Ingredients of a step: scores, the Stein flow, Langevin moves, momentum, optimizers, metrics."""
