"""Machine code that other processes find by identity: the right one or none, and no failure."""

import pickle
import subprocess
import sys
import zlib
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

import marginax as mx
from marginax._core import disk_cache, executables
from marginax._core.disk_cache import kept_on_disk
from marginax._core.programs import ById, Program, program, recent, result_shapes
from marginax.model.model_key import shared_model

OPTIONS = (disk_cache.FOLDER, disk_cache.THRESHOLD)


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """A cache of this test's own; the one that all tests have is JAX's, which would win."""
    before = {name: getattr(jax.config, name) for name in OPTIONS}
    jax.config.update(disk_cache.FOLDER, None)
    jax.config.update(disk_cache.THRESHOLD, disk_cache.USUAL_THRESHOLD)
    monkeypatch.setattr(disk_cache, "_chosen", [tmp_path])
    yield tmp_path
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


class Traced:
    """A function that counts how often JAX looks into it."""

    def __init__(self, factor=2.0):
        self.count, self.factor = 0, factor

    def __call__(self, x):
        self.count += 1
        return {"scaled": self.factor * x, "sum": jnp.sum(x)}

    __name__ = "scale"


def called(function, identity, *arguments):
    """What a new process would get from a program of this identity."""
    with kept_on_disk():
        made = Program(function, identity)(*arguments)
    _wait()
    return made


def _wait():
    """Until what was compiled is written: in threads of their own."""
    import threading

    for one in threading.enumerate():
        if one is not threading.current_thread() and not one.daemon:
            one.join()


def files(folder):
    return sorted(folder.glob(f"*{disk_cache.PROGRAM}"))


def test_another_process_neither_traces_nor_compiles(folder):
    x = jnp.arange(3.0)
    first, second = Traced(), Traced()
    one, two = called(first, "a", x), called(second, "a", x)
    assert (first.count, second.count) == (1, 0)
    assert len(files(folder)) == 1
    assert files(folder)[0].name.startswith("scale-")
    jax.tree.map(np.testing.assert_array_equal, one, two)


@pytest.mark.parametrize(
    ("identity", "argument"),
    [
        ("b", np.arange(3.0)),  # another model
        ("a", np.arange(4.0)),  # other shapes
        ("a", np.arange(3.0, dtype=np.float16)),  # another dtype
        ("a", {"in": np.arange(3.0)}),  # another structure
        (None, np.arange(3.0)),  # nothing is known of it
    ],
)
def test_what_differs_is_not_taken_for_the_same(folder, identity, argument):
    called(Traced(), "a", np.arange(3.0))
    other = Traced()
    if isinstance(argument, dict):
        called(lambda tree: other(tree["in"]), identity, argument)
    else:
        called(other, identity, argument)
    assert other.count == 1


def test_precision_versions_and_sources_tell_programs_apart(folder, monkeypatch):
    called(Traced(), "a", np.arange(3.0, dtype=np.float32))
    with jax.enable_x64(not jax.config.jax_enable_x64):
        other = Traced()
        called(other, "a", np.arange(3.0, dtype=np.float32))
        assert other.count == 1
    monkeypatch.setattr(executables, "_versions", lambda: "another release")
    later = Traced()
    called(later, "a", np.arange(3.0, dtype=np.float32))
    assert later.count == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(file.read_bytes()[:100]),
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(zlib.compress(pickle.dumps((b"no program", [0])))),
        lambda file: (file.unlink(), file.mkdir()),
    ],
)
def test_a_broken_file_is_compiled_anew(folder, damage):
    x = jnp.arange(3.0)
    first = called(Traced(), "a", x)
    damage(files(folder)[0])
    again = Traced()
    jax.tree.map(np.testing.assert_array_equal, called(again, "a", x), first)
    assert again.count == 1


def test_a_full_disk_costs_nothing_but_the_file(folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(executables, "write_atomically", full)
    assert called(Traced(), "a", jnp.arange(3.0))["sum"] == 3.0
    assert files(folder) == []


def test_what_is_debugged_is_traced():
    called(Traced(), "a", jnp.arange(3.0))
    with jax.debug_nans(True):
        watched = Traced()
        called(watched, "a", jnp.arange(3.0))
        assert watched.count == 1


def test_within_another_program_it_is_part_of_that():
    inner = Traced()

    @jax.jit
    def outer(x):
        return Program(inner, "a")(x)["sum"]

    with kept_on_disk():
        assert outer(jnp.arange(3.0)) == 3.0
    assert jax.grad(outer)(jnp.arange(3.0)).tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("identity", ["a", None])
def test_what_was_prepared_is_ready(identity):
    function = Traced()
    ready = Program(function, identity)
    ready.prepare(jax.ShapeDtypeStruct((3,), jnp.result_type(float)))
    assert function.count == 1
    assert ready(np.arange(3.0))["sum"] == 3.0
    assert function.count == 1
    shapes = result_shapes(ready, np.arange(3.0))
    assert shapes["scaled"].shape == (3,)
    assert function.count == 1


def test_identities_are_made_of_all_that_is_fixed():
    def outer(value, number):
        @program(ById(value, value, identity="model"), number, (1, "word"))
        def inner(x):
            return x

        return inner

    assert outer("v", 1)._identity == outer("w", 1)._identity is not None
    assert outer("v", 1)._identity != outer("v", 2)._identity
    # A function made within another may hold anything.
    assert recent(partial)(lambda x: x)._identity is None
    assert recent(Traced())(ById(1, 1))._identity is None


def squares(theta, x, y):
    return -0.5 * jnp.sum((x - theta) ** 2) - jnp.sum((y - x) ** 2)


def identity_of(log_joint):
    made = mx.Problem.grouped(log_joint, np.arange(6.0).reshape(3, 2), theta=0.0, latent=0.0)
    return shared_model(made).unconstrained_log_joint.identity


def with_rule(slope):
    """x^2 with a derivative of our own making."""

    @jax.custom_jvp
    def square(x):
        return x**2

    square.defjvp(lambda at, along: (square(*at), slope * at[0] * along[0]))
    return lambda theta, x, y: -square(x - theta) - jnp.sum((y - x) ** 2)


def test_models_are_told_apart_by_what_they_compute():
    scale = 3.0
    assert identity_of(squares) == identity_of(lambda t, x, y: squares(t, x, y)) is not None
    assert identity_of(squares) != identity_of(lambda t, x, y: scale * squares(t, x, y))
    weights = jnp.arange(2.0)
    heavier = jnp.arange(2.0) + 1
    assert identity_of(lambda t, x, y: squares(t, x, weights * y)) != identity_of(
        lambda t, x, y: squares(t, x, heavier * y)
    )


def test_derivative_rules_are_part_of_a_model():
    # The bug this would be: two rules of the same value share machine code.
    assert identity_of(with_rule(2.0)) == identity_of(with_rule(2.0)) is not None
    assert identity_of(with_rule(2.0)) != identity_of(with_rule(3.0))
    logistic = lambda t, x, y: squares(t, x, y) - jax.nn.softplus(x)  # noqa: E731
    assert identity_of(logistic) is not None


def test_what_the_text_does_not_say_has_no_identity():
    @jax.custom_vjp
    def square(x):
        return x**2

    square.defvjp(lambda x: (x**2, x), lambda x, g: (2 * x * g,))
    assert identity_of(lambda t, x, y: -square(x - t) - jnp.sum((y - x) ** 2)) is None


def test_copies_have_no_identity():
    density = mx.LogJoint(squares, identity="a")
    assert density.wrap(lambda *parts: 0.5 * squares(*parts)).identity is None
    method = mx.pgd(squares, 0.1, 0.1)._replace(identity="a")
    assert method.identity == "a"
    assert method._replace(stochastic=False).identity is None


FIT = """
import sys
import jax, jax.numpy as jnp, numpy as np, marginax as mx
jax.config.update("jax_enable_x64", True)
programs = set()
def listen(event, seconds, fun_name="", **_):
    if event.endswith("jaxpr_to_mlir_module_duration"):
        programs.add(fun_name.removeprefix("jit(").removesuffix(")"))
jax.monitoring.register_event_duration_secs_listener(listen)
def log_joint(theta, x, y):
    return -0.5 * {weight} * (x - theta) ** 2 - jnp.sum((y - x) ** 2) - jax.nn.softplus(x)
y = np.random.default_rng(0).normal(size=(7, 3))
fit = mx.fit(mx.Problem.grouped(log_joint, y, theta=0.0, latent=0.0), num_starts=1)
print(*sorted(programs))
print(repr(fit.log_likelihood), repr(float(fit.theta)), repr(fit.draws.draws.sum()))
"""


def fit_in_a_process(folder, weight):
    ran = subprocess.run(
        [sys.executable, "-c", FIT.format(weight=weight)],
        env={"MARGINAX_CACHE": str(folder), "PATH": "", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    programs, numbers = ran.stdout.splitlines()
    return set(programs.split()), numbers


@pytest.mark.slow
def test_a_second_process_fits_without_tracing_again_and_another_model_is_another(tmp_path):
    large = {"find", "local", "two_rules", "_advance", "sample"}
    made, first = fit_in_a_process(tmp_path, 1.0)
    assert large <= made
    found, again = fit_in_a_process(tmp_path, 1.0)
    assert again == first
    assert not large & found
    _, other = fit_in_a_process(tmp_path, 2.0)
    _, alone = fit_in_a_process(tmp_path / "new", 2.0)
    assert other == alone != first


LAPACK = """
import sys
import jax, jax.numpy as jnp
from marginax._core.disk_cache import kept_on_disk
from marginax._core.programs import Program
with kept_on_disk():
    values, _ = Program(lambda a: jnp.linalg.eigh(a), "eigh")(jnp.diag(jnp.arange(9.0)))
print(float(values[-1]))
"""


@pytest.mark.slow
def test_a_process_that_has_not_called_lapack_can(tmp_path):
    # The bug: machine code from a file called LAPACK where JAX had not looked for it yet, and the
    # process died of a segmentation fault: theta of more than 8 numbers, in the second process.
    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, "-c", LAPACK],
            env={"MARGINAX_CACHE": str(tmp_path), "PATH": "", "JAX_PLATFORMS": "cpu"},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (ran.returncode, ran.stdout) == (0, "8.0\n"), ran.stderr
    assert len(files(tmp_path)) == 1


def test_what_calls_functions_of_others_is_not_kept():
    assert executables.can_keep(set())
    assert executables.can_keep({"lapack_dsyevd_ffi"})
    assert not executables.can_keep({"lapack_dsyevd_ffi", "somebody_elses"})


def test_an_attribute_of_a_users_function_is_no_identity(folder):
    # The bug this would be: two densities that both call something else of theirs `identity`.
    class Density:
        identity = "mine"

        def __init__(self, scale):
            self.scale = scale

        def __call__(self, theta, x, y):
            return self.scale * squares(theta, x, y)

    for scale in (1.0, 2.0):
        method = mx.pgd(Density(scale), 0.1, 0.1)
        options = {"max_steps": 2, "key": jax.random.key(0), "diagnose": False}
        mx.run(method, 0.0, jnp.zeros((3, 2)), jnp.ones(2), **options)
    _wait()
    assert not [one for one in files(folder) if one.name.startswith("_values_and_scores")]
