"""Blocks in tiles, and how tiles are cut where groups are spread over devices."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marginax.kernels import blocks

N, SIZE = 3, 2


def velocity(x, s):
    return x * jnp.sum(s) + jnp.arange(SIZE, dtype=x.dtype)[None]


def spread_over(monkeypatch, devices, tile):
    """As if groups were on so many devices, with room for so many blocks in a tile."""
    shape = {} if devices is None else {"groups": devices}
    told = SimpleNamespace(sharding=SimpleNamespace(mesh=SimpleNamespace(shape=shape)))
    monkeypatch.setattr(jax, "typeof", lambda x: told)
    monkeypatch.setattr(blocks, "TILE", tile * N**2)
    mapped = []
    lax_map = jax.lax.map

    def recording(function, pairs, *, batch_size):
        mapped.append((pairs, batch_size))
        return lax_map(function, pairs, batch_size=batch_size)

    monkeypatch.setattr(jax.lax, "map", recording)
    return mapped


@pytest.mark.parametrize(
    ("devices", "tile", "num_blocks", "in_tiles"),
    [
        (None, 4, 4, None),  # all at once
        (None, 4, 5, (5, 1, 4)),
        (None, 0.5, 2, (2, 1, 1)),  # not even one block fits: one at a time
        (3, 2, 6, None),  # every device has two
        (3, 2, 9, (3, 3, 2)),
        (2, 2, 9, (9, 1, 2)),  # cannot be divided among them
        (1, 2, 3, (3, 1, 2)),
    ],
)
def test_a_tile_has_blocks_of_every_device(monkeypatch, devices, tile, num_blocks, in_tiles):
    x, s = np.random.default_rng(0).normal(size=(2, num_blocks, N, SIZE))
    mapped = spread_over(monkeypatch, devices, tile)
    moved = blocks._over_blocks(velocity, jnp.asarray(x), jnp.asarray(s))
    each = [velocity(jnp.asarray(a), jnp.asarray(b)) for a, b in zip(x, s, strict=True)]
    np.testing.assert_allclose(moved, np.stack(each), rtol=1e-12)
    if in_tiles is None:
        assert mapped == []
        return
    ((pairs, batch_size),) = mapped
    steps, together, size = in_tiles
    assert batch_size == size
    for part, whole in zip(pairs, (x, s), strict=True):
        # Step i works on the i-th block of every device; a device has neighbouring blocks.
        expected = whole.reshape(together, steps, N, SIZE).swapaxes(0, 1)
        np.testing.assert_array_equal(part, expected)
