"""When the Gram matrix is held whole and when in tiles, and how large these are."""

import jax
import numpy as np
import pytest
from velocities import cloud

import marginax as mx
from marginax.kernels import fields, radial

MAKE = {radial: mx.kernels.rbf, fields: mx.kernels.gfsd}


@pytest.mark.parametrize(
    ("gpu", "tile", "n", "rows"),
    [
        (False, None, 7, {radial: None, fields: None}),  # 49 numbers fit
        (False, None, 8, {radial: 6, fields: 3}),  # of 24 numbers; radial ones are 4 wide
        (True, None, 14, {radial: None, fields: None}),
        (True, None, 15, {radial: 4, fields: 4}),  # of 72 numbers
        (False, 60, 7, {radial: None, fields: None}),
        (False, 64, 8, {radial: None, fields: None}),
        (False, 60, 8, {radial: 15, fields: 7}),
        (True, 60, 8, {radial: 7, fields: 7}),
        (False, 3, 8, {radial: 1, fields: 1}),  # a row is the least
    ],
)
@pytest.mark.parametrize("module", [radial, fields], ids=lambda module: module.__name__)
def test_how_much_is_held_at_a_time(monkeypatch, module, gpu, tile, n, rows):
    kernel = MAKE[module](1.3, tile=tile)
    x, s = cloud(n=n, d=2)
    expected = kernel.velocity(x, s)
    sizes = {"DENSE": 49, "TILE": 24, "DENSE_ON_GPU": 196, "TILE_ON_GPU": 72}
    for name, size in sizes.items():
        monkeypatch.setattr(module, name, size)
    monkeypatch.setattr(radial, "COLUMNS", 4)
    monkeypatch.setattr(module, "on_gpu", lambda: gpu)
    taken = []
    lax_map = jax.lax.map

    def recording(function, xs, *, batch_size=None):
        taken.append(batch_size)
        return lax_map(function, xs, batch_size=batch_size)

    monkeypatch.setattr(jax.lax, "map", recording)
    np.testing.assert_allclose(kernel.velocity(x, s), expected, rtol=1e-9, atol=1e-12)
    assert set(taken) == (set() if rows[module] is None else {rows[module]})
