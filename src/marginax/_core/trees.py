"""Arithmetic on pytrees and on clouds of pytrees, written once so that dtypes follow the leaves."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, Float, PyTree

from marginax.typing import Key, Latent, Particles

__all__ = [
    "add_scaled",
    "cloud_size",
    "difference",
    "first_particle",
    "inner",
    "normal_like",
    "number_or_like",
    "particle_mean",
    "ravel_cloud",
    "unravel_cloud",
    "unraveler",
]


def add_scaled(tree: PyTree, scale: ArrayLike, other: PyTree) -> PyTree:
    """tree + scale * other in the dtype of `tree`: a float64 step must not promote the rest."""
    return jax.tree.map(lambda x, y: x + jnp.asarray(scale).astype(x.dtype) * y, tree, other)


def difference(tree: PyTree, other: PyTree) -> PyTree:
    """Tree - other, leaf by leaf."""
    return jax.tree.map(jnp.subtract, tree, other)


def inner(tree: PyTree, other: PyTree) -> Array:
    """The Euclidean inner product of two trees of the same structure, at full precision."""
    # Not `vdot`, which makes a vector of each first: of a cloud spread over devices by its second
    # axis, all of it would have to be sent to every device.
    products = jax.tree.map(
        lambda x, y: jnp.tensordot(x, y, jnp.ndim(x), precision=jax.lax.Precision.HIGHEST),
        tree,
        other,
    )
    leaves = jax.tree.leaves(products)
    dtype = jnp.result_type(*leaves) if leaves else jnp.result_type(float)
    return sum((leaf.astype(dtype) for leaf in leaves), jnp.zeros((), dtype))


def normal_like(key: Key, tree: PyTree) -> PyTree:
    """Independent standard normal draws in the shape and dtype of `tree`."""
    return optax.tree_utils.tree_random_like(key, tree, jax.random.normal)


def number_or_like(value: PyTree, like: PyTree, name: str) -> PyTree:
    """One number for all of `like`, or a tree like it, in its shapes and dtypes; others refused."""
    leaves = jax.tree.leaves(like)
    structure: Any = jax.tree.structure(like)
    try:
        parts = [value] * len(leaves)
        if not jax.tree_util.all_leaves([value]) or jnp.ndim(value) > 0:
            parts = structure.flatten_up_to(value)
        spread = [
            jnp.broadcast_to(jnp.asarray(part, leaf.dtype), leaf.shape)
            for part, leaf in zip(parts, leaves, strict=True)
        ]
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} is {value!r}, which is neither one number nor a tree of the shapes "
            f"{jax.tree.map(jnp.shape, like)}."
        ) from error
    return jax.tree.unflatten(structure, spread)


def cloud_size(particles: Particles) -> int:
    """N, the number of particles: the length of the leading axis."""
    return jax.tree.leaves(particles)[0].shape[0]


def first_particle(particles: Particles) -> Latent:
    """One latent of the cloud, for its structure and shapes."""
    return jax.tree.map(lambda leaf: leaf[0], particles)


def particle_mean(cloud: PyTree) -> PyTree:
    """The mean over the leading (particle) axis of every leaf."""
    return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), cloud)


def ravel_cloud(particles: Particles) -> Float[Array, "n d"]:
    """The cloud as an N x D matrix, one particle a row: what distances are computed on."""
    return jax.vmap(lambda latent: ravel_pytree(latent)[0])(particles)


def unravel_cloud(matrix: Float[Array, "n d"], like: Particles) -> Particles:
    """The inverse of `ravel_cloud`: rows back into the structure, shapes and dtypes of `like`."""
    _, unravel = ravel_pytree(first_particle(like))
    return jax.vmap(unravel)(matrix)


def unraveler(like: PyTree) -> Callable[[Any], PyTree]:
    """The way back of `ravel_pytree`, for arrays of NumPy's too, found without computing anything.

    Args:
        like: a tree of arrays, or of their shapes.
    """
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([math.prod(leaf.shape) for leaf in leaves]).tolist()

    def unravel(flat: Any) -> PyTree:
        parts = [flat[first:end] for first, end in zip([0, *ends[:-1]], ends, strict=True)]
        shaped = [
            part.reshape(leaf.shape).astype(leaf.dtype)
            for part, leaf in zip(parts, leaves, strict=True)
        ]
        return jax.tree.unflatten(structure, shaped)

    return unravel
