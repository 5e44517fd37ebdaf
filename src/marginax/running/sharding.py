"""Where the arrays of a run live on many devices: a mesh over particles, over groups, or over both.

    leaf                         sharding
    particles [N, ...]           P("particles")
    particles [N, G, ...]        P("particles", "groups")    groups independent given theta
    data [G, ...]                P("groups")                 leaves of another length: replicated
    theta, counts, summaries     replicated

A layout never changes what is computed, only where: XLA adds the communication. State leaves in the
shape of the particles (momentum, look-ahead, optimizer moments) lie as the particles do, except in
fields that the algorithm declares to be `replicated`. Inside a run an axis over starts comes
first.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jax.tree_util import keystr, tree_flatten_with_path
from jaxtyping import PyTree

from marginax._core.processes import spans_processes
from marginax.running.steps import Block
from marginax.typing import Data, Particles, Theta

__all__ = ["Layout", "check_mesh", "check_mesh_divides", "lay_out", "num_shards", "over_groups"]

AXES = ("particles", "groups")


class Layout(NamedTuple):
    """The mesh of a run, and the sizes by which its arrays are told apart.

    Attributes:
        mesh: of the user, checked.
        num_groups: G; None if the mesh has no axis over groups.
        shapes: of the particles' leaves.
    """

    mesh: Mesh
    num_groups: int | None
    shapes: frozenset[tuple[int, ...]]

    @property
    def replicated(self) -> NamedSharding:
        """The same on every device."""
        return NamedSharding(self.mesh, PartitionSpec())

    def of_state(self, state: Any, replicated: tuple[str, ...]) -> Any:
        """A sharding for every leaf of an algorithm's State: like the particles, or replicated.

        Args:
            state: of all starts.
            replicated: which fields are whole everywhere, as `Algorithm.replicated` declares.
        """

        def of_leaf(path: Any, leaf: Any) -> NamedSharding:
            field = str(getattr(path[0], "name", ""))
            if field in replicated or leaf.shape not in self.shapes:
                return self.replicated
            return self._of_cloud()

        return jax.tree_util.tree_map_with_path(of_leaf, state)

    def of_data(self, data: Data) -> Any:
        """A sharding for every leaf of the data: by groups where it has a row for each."""

        def of_leaf(leaf: Any) -> NamedSharding:
            by_group = self.num_groups is not None and np.shape(leaf)[:1] == (self.num_groups,)
            spec = PartitionSpec("groups") if by_group else PartitionSpec()
            return NamedSharding(self.mesh, spec)

        return jax.tree.map(of_leaf, data)

    def spread(self, theta: Theta, particles: Particles, data: Data) -> tuple[Any, Any, Any]:
        """The start and the data, each on its devices."""
        return (
            jax.tree.map(lambda leaf: _placed(leaf, self.replicated), theta),
            jax.tree.map(lambda leaf: _placed(leaf, self._of_cloud()), particles),
            jax.tree.map(_placed, data, self.of_data(data)),
        )

    def placed(self, state: Any, replicated: tuple[str, ...]) -> Any:
        """A State on its devices."""
        return jax.tree.map(_placed, state, self.of_state(state, replicated))

    def keep(self, block: Callable[..., Any], state: Any, replicated: tuple[str, ...]) -> Any:
        """The same jitted block, whose state stays where it is and whose rest is on every device.

        Otherwise XLA may choose to return the cloud replicated, and the host of one process could
        not read what lies on the devices of another.
        """
        # jit remembers by the function it is given and by its shardings: nothing compiles twice.
        everywhere = self.replicated
        shardings = Block(self.of_state(state, replicated), everywhere, everywhere)
        return jax.jit(block, out_shardings=shardings)

    def _of_cloud(self) -> NamedSharding:
        cloud = [name if name in self.mesh.axis_names else None for name in AXES]
        cloud = cloud if self.num_groups is not None else cloud[:1]
        return NamedSharding(self.mesh, PartitionSpec(None, *cloud))


def check_mesh(mesh: Any) -> Mesh:
    """Refuses a mesh with axes that mean nothing here; Explicit axes become Auto ones."""
    if not isinstance(mesh, Mesh):
        raise TypeError(
            f"mesh is {mesh!r}, but it must be a `jax.sharding.Mesh`: make it with "
            "`jax.make_mesh((8,), ('groups',))`, or leave it out for one device."
        )
    unknown = [name for name in mesh.axis_names if name not in AXES]
    if unknown or not mesh.axis_names:
        raise ValueError(
            f"mesh has the axes {mesh.axis_names}, but only 'particles' and 'groups' have a "
            "meaning here. Make it with `jax.make_mesh((8,), ('groups',))`, or with both names."
        )
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * mesh.devices.ndim)


def lay_out(mesh: Mesh, particles: Particles) -> Layout:
    """The layout of a run, or a sentence that says why its arrays do not fit the mesh.

    Args:
        mesh: with an axis "particles", "groups", or both.
        particles: where the clouds start, with a leading axis over starts.
    """
    mesh = check_mesh(mesh)
    leaves = tree_flatten_with_path(particles)[0]
    sizes: dict[str, set[int]] = {name: set() for name in mesh.axis_names}
    for path, leaf in leaves:
        shape = np.shape(leaf)
        for name in mesh.axis_names:
            axis = 1 + AXES.index(name)
            if len(shape) <= axis:
                raise ValueError(
                    f"mesh has an axis {name!r}, but particles{keystr(path)} has shape {shape[1:]} "
                    f"and no axis {axis - 1}, which runs over {name}. Use a mesh without {name!r}, "
                    "or a problem made by `Problem.grouped`."
                )
            sizes[name].add(shape[axis])
    for name, lengths in sizes.items():
        if len(lengths) > 1 and name == "groups":
            raise ValueError(
                "mesh has an axis 'groups', but the leaves of particles have "
                f"{' and '.join(map(str, sorted(lengths)))} groups. All must have the same groups; "
                "otherwise use a mesh over 'particles' alone."
            )
        for length in lengths:
            _check_divides(mesh, name, length)
    num_groups = next(iter(sizes["groups"]), None) if "groups" in sizes else None
    return Layout(mesh, num_groups, frozenset(np.shape(leaf) for _, leaf in leaves))


def check_mesh_divides(mesh: Mesh | None, num_particles: int, num_groups: int | None) -> None:
    """Refuses before anything is computed what `lay_out` would refuse later."""
    if mesh is None:
        return
    sizes = {"particles": num_particles, "groups": num_groups}
    for name in check_mesh(mesh).axis_names:
        length = sizes[name]
        if length is None:
            raise ValueError(
                "mesh has an axis 'groups', but this problem has no groups: use a mesh over "
                "'particles', or `Problem.grouped` if its latents fall into independent groups."
            )
        _check_divides(mesh, name, length)


def over_groups(mesh: Mesh | None, num_groups: int, tree: PyTree) -> PyTree:
    """Leaves whose leading axis runs over the groups, each device with its own of them.

    Other leaves, and all leaves without a mesh over groups, stay as they are.
    """
    if mesh is None or "groups" not in mesh.axis_names:
        return tree
    _check_divides(mesh, "groups", num_groups)
    sharding = NamedSharding(check_mesh(mesh), PartitionSpec("groups"))
    return jax.tree.map(
        lambda leaf: _placed(leaf, sharding) if np.shape(leaf)[:1] == (num_groups,) else leaf, tree
    )


def num_shards(mesh: Mesh | None) -> int:
    """Over how many devices the groups are spread."""
    return 1 if mesh is None else dict(mesh.shape).get("groups", 1)


def _check_divides(mesh: Mesh, name: str, length: int) -> None:
    devices = mesh.shape[name]
    if length % devices:
        remedy = (
            f"Take {-(-length // devices) * devices} particles"
            if name == "particles"
            else "Leave groups out or give them empty data (`pad_groups`)"
        )
        raise ValueError(
            f"There are {length} {name}, which cannot be spread evenly over the {devices} devices "
            f"of the mesh's axis {name!r}. {remedy}, or choose a mesh with an axis that divides "
            f"{length}."
        )


def _placed(leaf: Any, sharding: NamedSharding) -> Any:
    """An array on its devices, also if some of them belong to other processes."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        data = _placed(jax.random.key_data(leaf), sharding)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        return jax.jit(lambda x: x, out_shardings=sharding)(leaf)
    if not spans_processes(sharding.mesh):
        return jax.device_put(leaf, sharding)
    # Every process holds all of it, and keeps its own part.
    host = np.asarray(jnp.asarray(leaf))
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])
