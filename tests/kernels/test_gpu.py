"""When the GPU's program is taken, and what is made of its sums; how it computes them elsewhere."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from velocities import cloud, equations

import marginax as mx
from marginax.kernels import gpu, radial

EXACT = (jax.lax.Precision.HIGHEST,) * 2
SPLIT = jax.lax.DotAlgorithmPreset.TF32_TF32_F32_X3  # three products of halves
TF32 = jax.lax.DotAlgorithmPreset.TF32_TF32_F32


def machine(monkeypatch, backend="gpu", kind="NVIDIA H200", **device):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    devices = [SimpleNamespace(device_kind=kind, **device), SimpleNamespace(device_kind="other")]
    monkeypatch.setattr(jax, "devices", lambda: devices)


@pytest.mark.parametrize(
    ("given", "shape", "dtype", "fuses"),
    [
        ({"compute_capability": "9.0"}, (70, 3), np.float32, True),
        ({"compute_capability": "8.0"}, (70, 64), np.float32, True),
        ({"compute_capability": "7.5"}, (70, 3), np.float32, False),
        ({}, (70, 3), np.float32, False),
        ({"compute_capability": "9.0"}, (70, 65), np.float32, False),
        ({"compute_capability": "9.0"}, (70, 3), np.float64, False),
        ({"compute_capability": "9.0", "kind": "AMD Instinct"}, (70, 3), np.float32, False),
        ({"compute_capability": "9.0", "backend": "cpu"}, (70, 3), np.float32, False),
    ],
)
def test_when_it_is_taken(monkeypatch, given, shape, dtype, fuses):
    x = jnp.zeros(shape, dtype)
    machine(monkeypatch, **given)
    assert gpu.can_fuse(x) == fuses


@pytest.mark.parametrize(("backend", "is_gpu"), [("gpu", True), ("cpu", False), ("tpu", False)])
def test_whether_there_is_a_gpu(monkeypatch, backend, is_gpu):
    machine(monkeypatch, backend)
    assert radial.on_gpu() == is_gpu


@pytest.mark.parametrize("rounded", [False, True])
def test_its_sums_are_put_together_as_a_velocity(monkeypatch, rounded):
    x, s = cloud(n=9, d=2)
    x = x - jnp.mean(x, axis=0, keepdims=True)
    told = []

    def sums(profile, x, s, h2, *, rounded=False):
        told.append(rounded)
        apart = jnp.sum((x[:, None] - x[None]) ** 2, axis=2)
        gram, repulsion = profile(apart, h2)
        return gram @ s, repulsion @ x, repulsion.sum(axis=1)

    monkeypatch.setattr(radial, "fused_sums", sums)

    def profile(squared, h2):
        return 1 / (1 + squared / h2), 2 / (1 + squared / h2) ** 2

    h2 = jnp.asarray(1.7)
    gram, repulsion = profile(jnp.sum((x[:, None] - x[None]) ** 2, axis=2), h2)
    away = x[:, None] - x[None]
    expected = (gram @ s + jnp.einsum("ij,ijd->id", repulsion, away) / h2) / 9
    actual = radial._fused(profile, rounded, x, s, h2)
    np.testing.assert_allclose(actual, expected, rtol=1e-10)
    assert told == [rounded]


@pytest.mark.parametrize("precision", ["full", "tf32"])
def test_it_is_lowered_for_nvidia_alone_and_in_the_precision_asked_for(monkeypatch, precision):
    told = []

    def fused(profile, rounded, x, s, h2):
        told.append(rounded)
        return jnp.full_like(x, jnp.nan)

    monkeypatch.setattr(radial, "can_fuse", lambda x: True)
    monkeypatch.setattr(radial, "_fused", fused)
    x, s = cloud()
    velocity = mx.kernels.rbf(1.3, precision=precision, tile=20).velocity
    np.testing.assert_allclose(velocity(x, s), mx.kernels.rbf(1.3).velocity(x, s), rtol=1e-6)
    assert told == []
    jax.jit(velocity).trace(x, s).lower(lowering_platforms=("cuda",))
    assert told == [precision == "tf32"]


@pytest.mark.parametrize(
    ("options", "of_distances", "of_gram"),
    [
        ({}, SPLIT, SPLIT),
        ({"rounded": True}, SPLIT, TF32),  # distances never
        ({"interpret": True}, EXACT, EXACT),
        ({"rounded": True, "interpret": True}, EXACT, EXACT),
    ],
)
def test_precisions_columns_and_padding_of_the_program(monkeypatch, options, of_distances, of_gram):
    loops = []
    fori_loop = jax.lax.fori_loop

    def recording(lower, upper, *rest):
        loops.append((int(lower), int(upper)))
        return fori_loop(lower, upper, *rest)

    monkeypatch.setattr(jax.lax, "fori_loop", recording)
    monkeypatch.setattr(jnp, "int32", np.int32)  # a number while it is traced

    def profile(squared, h2):
        return 1 / (1 + squared / h2), 2 / (1 + squared / h2) ** 2

    x, h2 = jax.ShapeDtypeStruct((130, 17), np.float32), jax.ShapeDtypeStruct((), np.float32)
    traced = jax.make_jaxpr(partial(gpu.fused_sums, profile, **options))(x, x, h2)
    every = list(equations(traced.jaxpr))
    products = [e.params["precision"] for e in every if e.primitive.name == "dot_general"]
    assert products == [of_distances, of_gram, of_gram]
    (program,) = (e for e in every if e.primitive.name == "pallas_call")
    assert program.params["interpret"] is options.get("interpret", False)
    # Rows for two programs of 128, and a power of two of columns; each is walked over once.
    assert program.invars[0].aval.shape == (256, 32)
    assert loops == [(0, 256 // gpu.COLUMNS)]
