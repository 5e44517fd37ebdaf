"""`Problem`, what `fit` is given: a log joint, where theta and the latent live, and the data.

    Problem(log_joint, theta=..., latent=..., data=...)               log p_theta(x, y), whole
    Problem.grouped(log_joint_of_a_group, data, theta=..., latent=...)  sum_g log p_theta(x_g, y_g)

The second says that groups are independent given theta, as in mixed models, item response, factor
models and pharmacokinetics; kernels, curvature, quadrature and likelihood then go group by group.
"""

import contextlib
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from marginax._core.at_start import NotFiniteError
from marginax._core.checks import is_traced
from marginax._core.disk_cache import kept_on_disk
from marginax._core.precision import hold
from marginax._core.threads import ONE_AT_A_TIME
from marginax.model.groups import PaddedGroups, shared_axis
from marginax.model.inputs import (
    as_starts,
    as_written,
    check_names,
    check_structure,
    lengths,
    widened,
)
from marginax.model.log_joint import Batching, LogJoint, as_log_joint, take_rows
from marginax.model.problem_checks import check_problem
from marginax.model.transforms.trees import (
    forward,
    inverse,
    log_abs_det_jacobian,
    transforms_for,
)
from marginax.typing import Data, Latent, LogDensity, Theta

__all__ = ["Problem", "in_double_precision"]


FINITE_IN_DOUBLE = "The log joint or its gradient is finite at the start in float64 alone."


@dataclass(frozen=True, eq=False)
class Problem:
    """A latent-variable model with its data.

    Args:
        log_joint: `log_joint(theta, latent, data)`, the log density of ONE latent and the data,
            with theta and the latent on their constrained scales.
        theta: where theta starts, on its constrained scale: any pytree of numbers and arrays.
        latent: where one latent starts, constrained scale; its shape matters more than its values.
        data: handed to `log_joint` as its third argument.
        theta_transforms: where theta is not free: a dict or tree like theta whose entries are
            `transforms` (positive, interval(0, 1), correlation_cholesky(3)), the rest is free.
        latent_transforms: likewise for the latent; the change of volume is added to the density.
        names: for the entries of theta, `{"b": ["intercept", "slope"]}`; otherwise from the tree.
        num_observations: how many there are, for BIC; by default the groups are counted.
        structure: of the curvature of very many dependent latents: "dense", "chain", "arrow" or
            "sparse"; by default the cheapest that suits what is found.
        latent_blocks: how a latent without groups falls into blocks, where it is too large to be
            one, as in `kernels.blockwise(blocks=...)`.
        num_groups: set by `Problem.grouped`.
        group_log_joint: of one group, if `Problem.grouped` was given it.
        group_log_joints: of all groups at once, if `Problem.grouped` was given that.
        notes: what should be known of how the problem was made, in sentences.
        group_labels: of the groups, in their order; taken from what `pad_groups` made.

    Attributes:
        loses_digits: what JAX's precision cannot hold of what was given, a sentence for every leaf,
            or that the model is finite in float64 alone; mostly empty. Where it is not, `fit`
            computes in double precision throughout.
    """

    log_joint: LogDensity
    theta: Theta
    latent: Latent
    data: Data = None
    theta_transforms: PyTree = None
    latent_transforms: PyTree = None
    names: Mapping[str, Any] = field(default_factory=dict)
    num_observations: int | None = None
    latent_blocks: Any = None
    structure: str | None = None
    num_groups: int | None = None
    group_log_joint: LogDensity | None = None
    group_log_joints: LogDensity | None = None
    notes: tuple[str, ...] = ()
    group_labels: np.ndarray | None = None
    loses_digits: list[str] = field(init=False, repr=False, default_factory=list)
    # Of a model without data, whose programs other processes may have compiled: see `LogJoint`.
    _identity: str | None = field(init=False, repr=False, default=None)
    # The leaves of theta in the order in which they were written, for tables.
    _written: tuple[int, ...] = field(init=False, repr=False, default=())
    # As it was given, what was rounded when it became JAX's: of theta, latent and data.
    _exact: Mapping[str, Any] = field(init=False, repr=False, default_factory=dict)

    @classmethod
    def grouped(  # noqa: PLR0913, a constructor: all but two are keywords
        cls,
        log_joint: LogDensity,
        data: Data,
        *,
        theta: Theta,
        latent: Latent,
        theta_transforms: PyTree = None,
        latent_transforms: PyTree = None,
        names: Mapping[str, Any] | None = None,
        num_observations: int | None = None,
        num_groups: int | None = None,
        notes: tuple[str, ...] = (),
    ) -> "Problem":
        """A model whose groups are independent given theta.

        Args:
            log_joint: `log_joint(theta, x_g, y_g)` of ONE group; or with `num_groups`,
                `log_joint(theta, x, y)` of all of them, which returns an array of one number per
                group (a long table with `jax.ops.segment_sum`) in which no group's latent matters
                to another's number.
            data: every leaf has a leading axis over the groups; `pad_groups` makes such data of
                groups of different sizes, with a mask. With `num_groups`, anything.
            theta: as above, shared by the groups.
            latent: where the latent of one group starts.
            theta_transforms: as above.
            latent_transforms: as above, for one group.
            names: as above.
            num_observations: as above.
            num_groups: how many there are, if `log_joint` is of all of them.
            notes: as above.
        """
        at_once = num_groups is not None
        labels = data.labels if isinstance(data, PaddedGroups) else None
        data = dict(data) if isinstance(data, PaddedGroups) else data
        if num_groups is None:
            num_groups = shared_axis(data)
        if num_groups < 1:
            raise ValueError(f"num_groups is {num_groups}, but there must be at least one group.")
        groups_log_joint = log_joint if at_once else jax.vmap(log_joint, (None, 0, 0))

        def whole(theta: Theta, latent: Latent, data: Data) -> Array:
            return jnp.sum(groups_log_joint(theta, latent, data))

        return cls(
            log_joint=whole,
            theta=theta,
            latent=latent,
            data=data,
            theta_transforms=theta_transforms,
            latent_transforms=latent_transforms,
            names=names or {},
            num_observations=num_observations,
            num_groups=num_groups,
            group_log_joint=None if at_once else log_joint,
            group_log_joints=log_joint if at_once else None,
            notes=notes,
            group_labels=None if labels is None or len(labels) != num_groups else labels,
        )

    def __post_init__(self) -> None:
        set_field = object.__setattr__  # the one moment at which a frozen problem may change
        set_field(self, "_written", as_written(self.theta))
        held = {
            "theta": as_starts(self.theta, "theta"),
            "latent": as_starts(self.latent, "latent"),
            "data": hold(self.data, "data"),
        }
        for name, part in held.items():
            set_field(self, name, part.arrays)
        exact = {name: part.exact for name, part in held.items() if part.exact is not None}
        set_field(self, "_exact", exact)
        set_field(self, "loses_digits", [said for part in held.values() for said in part.lost])
        check_names(self.names, self.theta)
        check_structure(self.structure, self.num_groups)
        for name in ("theta", "latent"):
            maps = transforms_for(getattr(self, f"{name}_transforms"), getattr(self, name), name)
            set_field(self, f"{name}_transforms", maps)
        with kept_on_disk():
            if self.loses_digits:
                with jax.enable_x64(True):
                    check_problem(in_double_precision(self))
            else:
                self._check_in_single_or_double()

    def _check_in_single_or_double(self) -> None:
        """In JAX's precision; in double where the model is finite only there."""
        try:
            check_problem(self)
        except NotFiniteError:
            if jnp.result_type(float) == jnp.float64:
                raise
            with jax.enable_x64(True), contextlib.suppress(NotFiniteError):
                check_problem(in_double_precision(self))
                self.loses_digits.append(FINITE_IN_DOUBLE)
            if not self.loses_digits:
                raise

    # On the reals, where algorithms live.

    def start_theta(self) -> Theta:
        """The start of theta on the reals."""
        return inverse(self.theta_transforms, self.theta)

    def start_latent(self) -> Latent:
        """The start of one whole latent on the reals (all groups)."""
        one = inverse(self.latent_transforms, self.latent)
        if self.num_groups is None:
            return one
        size = self.num_groups
        host = jnp if any(map(is_traced, jax.tree.leaves(one))) else np
        return jax.tree.map(lambda leaf: host.broadcast_to(leaf, (size, *leaf.shape)), one)

    def constrained_theta(self, theta: Theta) -> Theta:
        """theta from the reals to its constrained scale."""
        return forward(self.theta_transforms, theta)

    def constrained_latent(self, latent: Latent) -> Latent:
        """One whole latent from the reals to its constrained scale."""
        if self.num_groups is None:
            return forward(self.latent_transforms, latent)
        return jax.vmap(lambda one: forward(self.latent_transforms, one))(latent)

    @cached_property  # one object, so that what is compiled for it is found again
    def unconstrained_log_joint(self) -> LogJoint:
        """The log joint of theta and latent on the reals, with the latent's change of volume.

        It knows the groups of the problem, how batches are taken, and the blocks of the latent.
        """
        blocks: Any = "whole" if self.latent_blocks is None else self.latent_blocks
        blocks = blocks if self.num_groups is None else "leading"
        return LogJoint(self._unconstrained_density, self.batching, blocks, self._identity)

    def _unconstrained_density(self, theta: Theta, latent: Latent, data: Data) -> Array:
        if self.num_groups is not None:
            return jnp.sum(self.unconstrained_group_log_joints(theta, latent, data))
        constrained = self.constrained_theta(theta), forward(self.latent_transforms, latent)
        with ONE_AT_A_TIME:
            value = self.log_joint(*constrained, data)
        return value + log_abs_det_jacobian(self.latent_transforms, latent)

    def unconstrained_group_log_joints(self, theta: Theta, latent: Latent, data: Data) -> Array:
        """The same for every group: one number each."""
        constrained = self.constrained_theta(theta), self.constrained_latent(latent)
        with ONE_AT_A_TIME:
            if self.group_log_joint is not None:
                each = jax.vmap(self.group_log_joint, (None, 0, 0))(*constrained, data)
            elif self.group_log_joints is not None:
                each = self.group_log_joints(*constrained, data)
            else:
                raise ValueError(
                    "This problem has no groups: it was not made by `Problem.grouped`."
                )
        return each + jax.vmap(lambda one: log_abs_det_jacobian(self.latent_transforms, one))(
            latent
        )

    def with_data(self, data: Data, num_observations: int | None = None) -> "Problem":
        """The same model of other data, for simulated data sets and new samples.

        Args:
            data: like the problem's own.
            num_observations: by default as before if the data are as long, otherwise not known.
        """
        if num_observations is None and lengths(data) == lengths(self.data):
            num_observations = self.num_observations
        log_joint = self.group_log_joint or self.group_log_joints
        if log_joint is None:
            new = replace(self, **self._starts(), data=data, num_observations=num_observations)
            return _changed(new, _written=self._written)
        new = Problem.grouped(
            log_joint,
            data,
            **self._starts(),
            theta_transforms=self.theta_transforms,
            latent_transforms=self.latent_transforms,
            names=self.names,
            num_observations=num_observations,
            num_groups=None if self.group_log_joint is not None else self.num_groups,
            notes=self.notes,
        )
        kept = {"_written": self._written}
        if new.group_labels is None and new.num_groups == self.num_groups:
            kept["group_labels"] = self.group_labels  # type: ignore[assignment]
        return _changed(new, **kept)

    def with_names(self, names: Mapping[str, Any]) -> "Problem":
        """The same with other names for entries of theta, such as those of a NumPyro model.

        Args:
            names: by leaf, `{"b": ["intercept", "slope"]}`; others keep theirs.
        """
        check_names(names, self.theta)
        return _changed(self, names={**self.names, **names})

    @property
    def written_order(self) -> tuple[int, ...]:
        """The leaves of theta, as JAX counts them, in the order in which they were written."""
        return self._written

    def with_groups(self, rows: Any) -> "Problem":
        """The same model of some of the groups, with all the digits that were given.

        Args:
            rows: which groups, by their places.
        """
        some = hold(take_rows(self._exact.get("data", self.data), rows), "data")
        # All groups have passed the constructor's checks.
        return _changed(
            self,
            data=some.arrays,
            num_groups=len(rows),
            num_observations=None,
            group_labels=None if self.group_labels is None else self.group_labels[rows],
            loses_digits=list(self.loses_digits),
            _exact={**self._exact, "data": some.arrays if some.exact is None else some.exact},
        )

    def _starts(self) -> dict[str, Any]:
        """The starts of theta and latent, as they were given."""
        return {name: self._exact.get(name, getattr(self, name)) for name in ("theta", "latent")}

    def without_data(self) -> "Problem":
        """The model alone, for what is compiled and kept: data is handed to it anyway."""
        return _changed(self, data=None)

    def traced_once(self, identity: str | None) -> "Problem":
        """The same with the user's function under `jit`: all programs share what JAX saw of it.

        Args:
            identity: of what it computes.
        """
        name = "log_joint" if self.group_log_joints is None else "group_log_joints"
        name = name if self.group_log_joint is None else "group_log_joint"
        function = getattr(self, name)
        if isinstance(function, LogJoint):  # which says more than it computes
            return self
        # A new function: one that JAX knows comes with the values that global variables had then.
        once = jax.jit(lambda *parts: function(*parts))
        return _changed(self, **{name: once, "_identity": identity})

    @property
    def batching(self) -> Batching | None:
        """How `run(..., batch_size=...)` takes batches: of groups, or as the log joint says."""
        if self.group_log_joint is not None and self.num_groups is not None:
            return Batching(self.num_groups, take_rows, of_groups=True)
        return as_log_joint(self.log_joint).batching

    # What tables say.

    @property
    def sample_size(self) -> int | None:
        """What BIC counts: observations where given, otherwise groups."""
        return self.num_observations or self.num_groups

    @property
    def num_parameters(self) -> int:
        """How many numbers theta has on the reals."""
        return sum(np.size(leaf) for leaf in jax.tree.leaves(self.start_theta()))

    @property
    def latent_size(self) -> int:
        """Numbers in the latent of one group, or in the whole latent without groups."""
        one = inverse(self.latent_transforms, self.latent)
        return sum(np.size(leaf) for leaf in jax.tree.leaves(one))


def in_double_precision(problem: Problem) -> Problem:
    """The same problem in float64, of what was given; to be called where x64 is enabled."""
    parts = {name: getattr(problem, name) for name in ("theta", "latent", "data")}
    floats = [leaf.dtype for leaf in jax.tree.leaves(parts) if leaf.dtype.kind == "f"]
    if not problem._exact and all(dtype == jnp.float64 for dtype in floats):
        return problem
    return _changed(problem, **widened({**parts, **problem._exact}))


def _changed(problem: Problem, **parts: Any) -> Problem:
    """A copy with other parts, without the constructor's checks: the original has passed them."""
    changed = copy(problem)
    # It is bound to the original, and its data.
    changed.__dict__.pop("unconstrained_log_joint", None)
    if "data" in parts:
        parts.setdefault("loses_digits", [])
    exact = {name: part for name, part in problem._exact.items() if name not in parts}
    for name, part in {"_exact": exact, **parts}.items():
        object.__setattr__(changed, name, part)
    return changed
