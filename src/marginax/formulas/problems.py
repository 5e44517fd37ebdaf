r"""A mixed model that is not linear as a `Problem`: its log joint, with standardised latents.

    b = diag(sd) C u,   u ~ N(0, I),   eta = X beta + Z b + offset

With u and not b as the latent nothing is singular where a standard deviation is 0. Columns of X and
Z are scaled to unit size, so that no parameter has a unit that Newton's method would have to find.

One group with up to three effects has blocks that quadrature integrates (`Problem.grouped`);
everything else is one block, whose sparse curvature does.
"""

from collections.abc import Callable
from itertools import combinations
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from marginax.formulas.covariances import VarianceName
from marginax.formulas.design import Design
from marginax.formulas.families import Family
from marginax.formulas.random_terms import Group
from marginax.formulas.responses import Response
from marginax.formulas.starts import Start, first_fit
from marginax.likelihood.quadrature import MOST_DIMENSIONS
from marginax.model.groups import pad_groups
from marginax.model.problem import Problem
from marginax.model.transforms import correlation_cholesky, positive

__all__ = ["MixedProblem", "make_problem"]

PADDING = 6.0  # times more rows than there are: beyond it groups are not padded


class MixedProblem(NamedTuple):
    """A problem, and how its numbers stand in the units of the data.

    Attributes:
        problem: with theta a dict: `beta`, `effects_...`, `values_...`.
        is_grouped: whether the levels of the one group are blocks.
        units: of every number of the table, what to multiply it by.
        abouts: of every number of the table what it is, if it is of random effects.
        scales: of X's columns, and of Z's by group.
        names: of the numbers of the table.
    """

    problem: Problem
    is_grouped: bool
    units: np.ndarray
    abouts: tuple[VarianceName | None, ...]
    scales: tuple[np.ndarray, tuple[np.ndarray, ...]]
    names: tuple[str, ...]


class _Part(NamedTuple):
    """The keys of theta for a block of effects."""

    group: int
    block: tuple[int, ...]
    sd: str
    corr: str


def make_problem(design: Design, family: Family, link: str, response: Response) -> MixedProblem:
    """The problem of a design.

    Args:
        design: with X, Z and the offset.
        family: of the response.
        link: its name.
        response: checked.
    """
    columns, groups = design.columns, design.columns.groups
    scale_x = _sizes(columns.fixed)
    scale_z = tuple(_sizes(group.columns) for group in groups)
    fixed = columns.fixed / scale_x
    scaled = tuple(
        group._replace(columns=group.columns / s) for group, s in zip(groups, scale_z, strict=True)
    )
    start = first_fit(family, link, response, fixed, columns.offset, scaled)
    parts = _parts(groups)
    theta, transforms = _theta(family, start, parts)
    names, numbers = _names(design, family, groups, parts, theta)
    data = _rows(design, family, response, fixed)
    is_grouped = len(groups) == 1 and len(groups[0].effects) <= MOST_DIMENSIONS
    make = _grouped if is_grouped else _whole
    problem = make(
        scaled,
        data,
        _density(family, link, parts, groups),
        {
            "theta": theta,
            "theta_transforms": transforms,
            "names": names,
            "num_observations": design.num_rows,
        },
    )
    units, abouts = _units(numbers, scale_x, scale_z, groups)
    return MixedProblem(
        problem, is_grouped, units, abouts, (scale_x, scale_z), tuple(one.name for one in numbers)
    )


def _sizes(columns: np.ndarray) -> np.ndarray:
    size = np.sqrt(np.mean(columns**2, axis=0))
    return np.where(size > 0, size, 1.0)


def _parts(groups: tuple[Group, ...]) -> list[_Part]:
    blocks = [(g, block) for g, group in enumerate(groups) for block in group.blocks]
    return [
        _Part(g, block, f"effects_{i:02d}_a_sd", f"effects_{i:02d}_b_corr")
        for i, (g, block) in enumerate(blocks)
    ]


def _theta(
    family: Family, start: Start, parts: list[_Part]
) -> tuple[dict[str, Any], dict[str, Any]]:
    theta: dict[str, Any] = {}
    transforms: dict[str, Any] = {}
    if len(start.fixed):
        theta["beta"] = start.fixed
    for part in parts:
        theta[part.sd] = start.sds[part.group][list(part.block)]
        transforms[part.sd] = positive
        if len(part.block) > 1:
            theta[part.corr] = np.eye(len(part.block))
            transforms[part.corr] = correlation_cholesky(len(part.block))
    for one in family.parameters:
        theta[f"values_{one.name}"] = np.asarray(start.values[one.name], float)
        transforms[f"values_{one.name}"] = one.transform
    return theta, transforms


class _Number(NamedTuple):
    """A number of the table: its name, and whose it is."""

    name: str
    kind: str
    places: tuple[int, ...]
    group: int = -1


def _names(
    design: Design,
    family: Family,
    groups: tuple[Group, ...],
    parts: list[_Part],
    theta: dict[str, Any],
) -> tuple[dict[str, Any], list[_Number]]:
    """Names for the problem, and all numbers in the order of its tables."""
    by_key: dict[str, list[_Number]] = {}
    if "beta" in theta:
        by_key["beta"] = [_Number(name, "fixed", (k,)) for k, name in enumerate(design.names)]
    for part in parts:
        by_key[part.sd] = [_of_effects(groups, part, (i,)) for i in part.block]
        pairs = list(combinations(part.block, 2))
        if pairs:  # row by row, as Cholesky factors are shown
            by_key[part.corr] = [
                _of_effects(groups, part, pair) for pair in sorted(pairs, key=lambda p: p[::-1])
            ]
    for one in family.parameters:
        key = f"values_{one.name}"
        by_key[key] = [_Number(label, "value", ()) for label in _labels(one.name, theta[key])]
    names = {key: [one.name for one in numbers] for key, numbers in by_key.items()}
    return names, sum((by_key[key] for key in theta), [])


def _of_effects(groups: tuple[Group, ...], part: _Part, places: tuple[int, ...]) -> _Number:
    group = groups[part.group]
    about = VarianceName(group.name, tuple(group.effects[i] for i in places))
    return _Number(about.text, "corr" if len(places) == 2 else "sd", places, part.group)


def _labels(name: str, value: Any) -> list[str]:
    size = int(np.size(value))
    return [name] if size == 1 else [f"{name}[{k + 1}]" for k in range(size)]


def _units(
    numbers: list[_Number],
    scale_x: np.ndarray,
    scale_z: tuple[np.ndarray, ...],
    groups: tuple[Group, ...],
) -> tuple[np.ndarray, tuple[VarianceName | None, ...]]:
    units, abouts = [], []
    for one in numbers:
        unit, about = 1.0, None
        if one.kind == "fixed":
            unit = 1 / scale_x[one.places[0]]
        elif one.kind in ("sd", "corr"):
            group = groups[one.group]
            about = VarianceName(group.name, tuple(group.effects[i] for i in one.places))
            unit = 1 / scale_z[one.group][one.places[0]] if one.kind == "sd" else 1.0
        units.append(unit)
        abouts.append(about)
    return np.array(units), tuple(abouts)


def _rows(
    design: Design, family: Family, response: Response, fixed: np.ndarray
) -> dict[str, np.ndarray]:
    trials = np.ones(design.num_rows) if response.trials is None else response.trials
    rows = {
        "y": response.values,
        "offset": design.columns.offset,
        "constant": family.constant(response.values, trials),
    }
    if fixed.shape[1]:
        rows["x"] = fixed
    if response.trials is not None:
        rows["trials"] = response.trials
    if design.weights is not None and family.name != "binomial":
        rows["weight"] = design.weights
    return {name: np.asarray(values, float) for name, values in rows.items()}


Density = Callable[[Any, list[Array], dict[str, Array]], Array]


def _density(
    family: Family, link: str, parts: list[_Part], groups: tuple[Group, ...]
) -> tuple[Density, Callable[[Any, int], Array]]:
    """log p(y | theta, effects) of every row, and the root of a group's covariance."""

    def root(theta: Any, group: int) -> Array:
        size = len(groups[group].effects)
        found = jnp.zeros((size, size), theta[parts[0].sd].dtype)
        for part in parts:
            if part.group != group:
                continue
            sd = theta[part.sd]
            block = jnp.diag(sd) if len(part.block) == 1 else sd[:, None] * theta[part.corr]
            first = part.block[0]  # blocks are of neighbours
            found = found.at[first : first + len(sd), first : first + len(sd)].set(block)
        return found

    def of_rows(theta: Any, added: list[Array], rows: dict[str, Array]) -> Array:
        eta = rows["offset"]
        if "x" in rows:
            eta = eta + rows["x"] @ theta["beta"]
        for one in added:
            eta = eta + one
        values = {one.name: theta[f"values_{one.name}"] for one in family.parameters}
        trials = rows["trials"] if "trials" in rows else jnp.ones_like(rows["y"])
        found = family.log_density(link, rows["y"], eta, values, trials) + rows["constant"]
        return found * rows["weight"] if "weight" in rows else found

    return of_rows, root


def _grouped(
    groups: tuple[Group, ...],
    data: dict[str, np.ndarray],
    density: tuple[Density, Callable[[Any, int], Array]],
    keywords: dict[str, Any],
) -> Problem:
    (group,), (of_rows, root) = groups, density
    size = group.columns.shape[1]

    def log_joint(theta: Any, u: Array, rows: dict[str, Array]) -> Array:
        b = root(theta, 0) @ u
        terms = of_rows(theta, [rows["z"] @ b], rows)
        return jnp.sum(jnp.where(rows["mask"] > 0, terms, 0.0)) + _standard(u)

    counts = np.bincount(group.codes, minlength=group.num_levels)
    if group.num_levels * counts.max() <= PADDING * len(group.codes):
        padded = dict(pad_groups(group.codes, **data, z=group.columns))
        return Problem.grouped(log_joint, padded, latent=np.zeros(size), **keywords)

    def at_once(theta: Any, u: Array, rows: dict[str, Array]) -> Array:
        b = u @ root(theta, 0).T
        terms = of_rows(theta, [jnp.sum(rows["z"] * b[rows["index"]], axis=1)], rows)
        sums = jnp.zeros(len(u), terms.dtype).at[rows["index"]].add(terms)
        return sums - 0.5 * jnp.sum(u**2, axis=1) - 0.5 * size * np.log(2 * np.pi)

    rows = {**data, "z": group.columns, "index": group.codes}
    return Problem.grouped(
        at_once, rows, latent=np.zeros(size), num_groups=group.num_levels, **keywords
    )


def _whole(
    groups: tuple[Group, ...],
    data: dict[str, np.ndarray],
    density: tuple[Density, Callable[[Any, int], Array]],
    keywords: dict[str, Any],
) -> Problem:
    of_rows, root = density
    names = [f"u{i}" for i in range(len(groups))]

    def log_joint(theta: Any, latent: Any, rows: dict[str, Array]) -> Array:
        added = []
        for i, name in enumerate(names):
            # Read by rows before anything else, which `likelihood.structure` can then follow.
            u = latent[name][rows[f"index{i}"]]
            if f"z{i}" not in rows:  # an intercept alone
                added.append(root(theta, i)[0, 0] * u[:, 0])
            else:
                added.append(jnp.sum(rows[f"z{i}"] * (u @ root(theta, i).T), axis=1))
        prior = sum(_standard(latent[name]) for name in names)
        return jnp.sum(of_rows(theta, added, rows)) + prior

    rows = dict(data)
    for i, group in enumerate(groups):
        rows[f"index{i}"] = group.codes
        if group.columns.shape[1] > 1 or np.any(group.columns != 1.0):
            rows[f"z{i}"] = group.columns
    shapes = {
        name: np.zeros((group.num_levels, group.columns.shape[1]))
        for name, group in zip(names, groups, strict=True)
    }
    return Problem(log_joint, latent=shapes, data=rows, **keywords)


def _standard(u: Array) -> Array:
    """The log density of independent standard normals."""
    return -0.5 * jnp.sum(u**2) - 0.5 * u.size * np.log(2 * np.pi)
