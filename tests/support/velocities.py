"""The velocity by its definition, an asymmetric cloud, and the equations of a trace."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params

TOLERANCE = 1e-12 if jax.config.jax_enable_x64 else 2e-5


def cloud(n=7, d=3, seed=0):
    """Skewed and off centre: a symmetric cloud cannot see a sign error."""
    key_x, key_s = jax.random.split(jax.random.key(seed))
    x = jnp.exp(jax.random.normal(key_x, (n, d))) + 0.5
    return x, jax.random.normal(key_s, (n, d)) - 0.3


def by_definition(k, x, s):
    """phi_i = (1/N) sum_j [k(x_j, x_i) s_j + grad_1 k(x_j, x_i)], nothing rearranged.

    A kernel of the distance itself, and not of its square, takes it from `distance`.
    """

    def phi(x_i):
        terms = jax.vmap(lambda x_j, s_j: k(x_j, x_i) * s_j + jax.grad(k, 0)(x_j, x_i))(x, s)
        return jnp.sum(terms, axis=0) / len(x)

    return jax.jit(jax.vmap(phi))(x)


def distance(a, b):
    """|a - b| with the gradient 0 at 0, where that of a square root is NaN."""
    r2 = jnp.sum((a - b) ** 2)
    return jnp.where(r2 > 0, jnp.sqrt(jnp.where(r2 > 0, r2, 1)), 0)


def squared(x):
    x = np.asarray(x, np.float64)
    return np.array([[np.sum((a - b) ** 2) for a in x] for b in x])


def bandwidth_of(rule, x):
    r2 = squared(x)
    if rule == "median":
        return np.sqrt(np.median(r2) / (2 * np.log(len(x) + 1)))
    if rule == "mean":
        return np.sqrt(np.mean(r2) / (2 * np.log(len(x) + 1)))
    return rule


def equations(jaxpr):
    """All equations, those of inner functions too."""
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in jaxprs_in_params(eqn.params):
            yield from equations(inner)
