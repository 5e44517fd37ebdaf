"""What a traced function makes, without running it."""

import jax
import numpy as np


def largest_array(jaxpr):
    """How many numbers the largest array has that a traced function makes."""
    sizes = [0]
    for equation in jaxpr.eqns:
        sizes += [int(np.prod(one.aval.shape, dtype=int)) for one in equation.outvars]
        for part in jax.tree.leaves(list(equation.params.values())):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                sizes.append(largest_array(inner))
    return max(sizes)
