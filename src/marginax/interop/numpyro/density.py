"""The log density of a NumPyro model as a function of theta, latent and data, term by term.

theta is substituted on its constrained scale and never gets a Jacobian: a likelihood does not
transform. A latent whose support depends on theta or on another latent is given on the reals, with
the Jacobian that NumPyro computes anew at every point; the others get theirs from the problem.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from marginax._core.threads import ONE_AT_A_TIME
from marginax.model.log_joint import Batching

__all__ = ["NumPyroDensity", "split", "with_rows"]


@dataclass(frozen=True, eq=False)
class NumPyroDensity:
    """log p_theta(x, y) of a model.

    Attributes:
        model: the model.
        arrays: the arrays among its arguments.
        rebuild: from such arrays to (args, kwargs).
        latents: the latents, with those in `moving`.
        moving: latents that are given on the reals, because their support is not fixed.
        subsampled: plates that the model subsamples, with their full sizes.
        batched: the one of them whose rows may be minibatches: no latent is in it.
    """

    model: Callable[..., Any]
    arrays: list[Any]
    rebuild: Callable[[list[Any]], Any]
    latents: tuple[str, ...]
    moving: tuple[str, ...]
    subsampled: Mapping[str, int]
    batched: str | None

    @property
    def data(self) -> Any:
        """What the problem hands back as data: the arrays, and the rows of subsampled plates."""
        if not self.subsampled:
            return self.arrays
        rows = {name: jnp.arange(size) for name, size in self.subsampled.items()}
        return {"arrays": self.arrays, "rows": rows}

    @property
    def batching(self) -> Batching | None:
        """The rows of the batched plate; NumPyro itself rescales what is inside it."""
        if self.batched is None:
            return None
        name = self.batched

        def take(data: Any, rows: Array) -> Any:
            return {**data, "rows": {**data["rows"], name: rows}}

        return Batching(self.subsampled[name], take)

    def density(self, theta: PyTree, latent: PyTree, data: Any) -> Array:
        """log p_theta(x, y), with the Jacobian of moving latents only."""
        return sum(map(jnp.sum, self.terms(theta, latent, data).values()), start=jnp.zeros(()))

    def terms(self, theta: PyTree, latent: PyTree, data: Any) -> dict[str, Array]:
        """Its terms by site, an array over the site's batch shape each."""
        from numpyro.infer.util import compute_log_probs

        missing = set(self.latents) - set(latent)
        if missing:
            raise ValueError(f"The latents {sorted(missing)} are not given; the model has them.")
        model, args, kwargs = self._substituted(theta, latent, data)
        log_probs, _ = compute_log_probs(model, args, kwargs, {}, sum_log_prob=False)
        return {name: jnp.asarray(term) for name, term in log_probs.items()}

    def constrained(self, theta: PyTree, latent: PyTree) -> dict[str, Array]:
        """All latents on their constrained scales."""
        from numpyro import handlers

        model, args, kwargs = self._substituted(theta, latent, self.data)
        with ONE_AT_A_TIME:
            trace = handlers.trace(model).get_trace(*args, **kwargs)
        return {name: trace[name]["value"] for name in latent}

    def _substituted(self, theta: PyTree, latent: PyTree, data: Any) -> Any:
        from numpyro import handlers
        from numpyro.infer.util import _unconstrain_reparam

        model = self.model
        if self.subsampled:
            model, data = with_rows(model, data["rows"]), data["arrays"]
        args, kwargs = self.rebuild(data)
        # Nothing seeds the model: a latent that was forgotten has no key to be drawn with, and
        # fails instead of being drawn anew at every evaluation.
        theta, latent = jax.tree.map(jnp.asarray, (theta, latent))
        fixed = {name: value for name, value in latent.items() if name not in self.moving}
        model = handlers.substitute(model, data={**theta, **fixed})
        if self.moving:
            free = {name: latent[name] for name in self.moving}
            model = handlers.substitute(model, substitute_fn=partial(_unconstrain_reparam, free))
        return model, args, kwargs


def with_rows(model: Callable[..., Any], rows: Mapping[str, Any] | None = None) -> Any:
    """The model with these rows of its subsampled plates; with all of them if none are given."""
    from numpyro.primitives import Messenger

    class Rows(Messenger):
        def process_message(self, msg: Any) -> None:
            if msg["type"] != "plate":
                return
            size, taken = msg["args"]
            if rows is None and taken not in (None, size):
                msg["value"] = jnp.arange(size)
            elif rows is not None and msg["name"] in rows:
                msg["value"] = rows[msg["name"]]
            else:
                return
            msg["args"] = (size, len(msg["value"]))

    return Rows(model)


def split(
    arguments: Any, is_data: Callable[[Any], bool]
) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """The arrays among the arguments, and how to put such arrays back in their places."""
    leaves, structure = jax.tree.flatten(arguments)
    places = [i for i, leaf in enumerate(leaves) if is_data(leaf)]

    def rebuild(data: list[Any]) -> Any:
        whole = list(leaves)
        for place, value in zip(places, data, strict=True):
            whole[place] = value
        return jax.tree.unflatten(structure, whole)

    # As they were given: a problem keeps the digits that JAX's precision does not hold.
    return [leaves[i] for i in places], rebuild
