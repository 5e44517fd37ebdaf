"""Bad input raises before compilation, with a sentence that names the argument and the remedy."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import marginax as mx
from marginax._core.checks import check_count

MODEL = mx.models.ToyHierarchical()
METHOD = mx.svgd_em(MODEL.log_joint, 0.1, 0.1, mx.kernels.rbf(1.0))
Y = jnp.array([1.0, 2.0])
X = jnp.arange(8.0).reshape(4, 2) + 1.0


@pytest.fixture(autouse=True)
def nothing_is_compiled(monkeypatch):
    """A loop that starts, starts with this scan: it must not be reached."""

    def reached(*args, **kwargs):
        raise AssertionError("the loop was entered")

    monkeypatch.setattr(jax.lax, "scan", reached)


def run(theta=0.0, particles=X, data=Y, log_joint=None, num_steps=3):
    method = METHOD if log_joint is None else METHOD._replace(log_joint=log_joint)
    return mx.trajectory(method, theta, particles, data, num_steps, key=jax.random.key(0))


BAD = {
    "different leading axes": (
        {"particles": {"a": jnp.ones((4, 2)), "b": jnp.ones((3, 2))}},
        ValueError,
        r"particles\['a'\] holds 4 particles and particles\['b'\] holds 3.*same number",
    ),
    "integer latent": (
        {"particles": jnp.ones((4, 2), int)},
        TypeError,
        r"particles has dtype int.*astype\(float\).*summed out",
    ),
    "integer theta": ({"theta": 0}, TypeError, r"theta has dtype int.*Write 0\.0"),
    "boolean leaf": (
        {"particles": (X, jnp.ones(4, bool))},
        TypeError,
        r"particles\[1\] has dtype bool",
    ),
    "theta is no array": ({"theta": {"a": "one"}}, TypeError, r"theta\['a'\] is 'one' of type str"),
    "theta of the wrong structure": (
        {"theta": {"mean": 0.0}, "log_joint": lambda theta, x, y: -jnp.sum((x - theta) ** 2)},
        ValueError,
        r"log_joint failed at the start with TypeError.*theta = \{mean: float64\[\]\}.*structure",
    ),
    "theta of the wrong shape": (
        {"theta": np.zeros(3), "log_joint": lambda theta, x, y: -jnp.sum((x - theta) ** 2)},
        ValueError,
        r"log_joint failed at the start.*theta = float64\[3\].*shapes",
    ),
    "latent of the wrong shape": (
        {"particles": jnp.ones((4, 3))},
        ValueError,
        r"one latent = float64\[3\] and data = float64\[2\]",
    ),
    "no particles": ({"particles": jnp.ones((0, 2))}, ValueError, r"length 0.*at least one"),
    "an empty tree": ({"particles": {}}, ValueError, "particles has no arrays"),
    "a particle without its axis": (
        {"particles": jnp.array(1.0)},
        ValueError,
        "particles is a single number.*add an axis",
    ),
    "non-scalar log joint": (
        {"log_joint": lambda theta, x, y: -((x - y) ** 2)},
        ValueError,
        r"log_joint returned an array of shape \(2,\).*Sum over the observations",
    ),
    "integer log joint": (
        {"log_joint": lambda theta, x, y: jnp.array(1)},
        TypeError,
        "log_joint returned dtype int",
    ),
    "NaN in theta": ({"theta": float("nan")}, ValueError, "theta is not finite.*1 of its 1"),
    "NaN in the cloud": (
        {"particles": X.at[1, 0].set(jnp.nan)},
        ValueError,
        "particles is not finite.*1 of its 8 values.*finite numbers",
    ),
    "infinite log joint": (
        {"log_joint": lambda theta, x, y: jnp.where(x[0] > 0, -jnp.inf, 0.0) + theta},
        ValueError,
        "log_joint is -inf at the start: it is not finite for 4 of the 4 particles.*support",
    ),
    "NaN log joint from the data": (
        {"data": jnp.array([1.0, jnp.nan])},
        ValueError,
        "log_joint is nan at the start",
    ),
    "NaN gradient": (
        {"log_joint": lambda theta, x, y: jnp.linalg.norm(x - X[0]) + theta},
        ValueError,
        "gradient of log_joint with respect to particles is not finite.*norm at zero",
    ),
    "no steps": ({"num_steps": 0}, ValueError, "num_steps is 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_start(case):
    arguments, error, sentence = BAD[case]
    with pytest.raises(error, match=f"(?s){sentence}"):
        run(**arguments)


def test_good_input_reaches_the_loop():
    with pytest.raises(AssertionError, match="the loop was entered"):
        run()


def test_a_non_scalar_log_joint_is_named_in_a_loop_of_ones_own_too():
    method = mx.pgd(lambda theta, x, y: -((x - y) ** 2), 0.1, 0.1)
    state = method.init(jax.random.key(0), 0.0, X)
    with pytest.raises(ValueError, match="log_joint returned an array"):
        method.step(jax.random.key(0), state, Y)


RBF = mx.kernels.rbf(1.0)
M_STEP = mx.exact_m_step(lambda particles, data: jnp.mean(particles))
bare = inspect.unwrap  # as users have them, without the tests' type checker
# Every constructor with arguments it takes.
GOOD = {
    mx.svgd_em: {"theta_optimizer": 0.1, "particle_optimizer": 0.1, "kernel": RBF},
    mx.m_svgd_em: {"theta_optimizer": 0.1, "particle_optimizer": 0.1, "kernel": RBF},
    mx.asvgd_em: {"theta_optimizer": 0.1, "step_size": 0.1, "kernel": RBF},
    mx.coin_em: {"kernel": RBF},
    mx.pgd: {"theta_optimizer": 0.1, "step_size": 0.1},
    mx.pqn: {"step_size": 0.1},
    mx.ipla: {"step_size": 0.1},
    mx.soul: {"theta_optimizer": 0.1, "step_size": 0.1},
    mx.mpgd: {"step_size": 0.1, "friction": 1.0, "inverse_mass": 1.0},
    mx.kipla: {"step_size": 0.1, "friction": 1.0},
    mx.jala_em: {"theta_optimizer": 0.1, "step_size": 0.1},
    mx.mcem: {"theta_optimizer": 0.1, "step_size": 0.1},
    mx.adjusted_pmgd: {"m_step": M_STEP, "step_size": 0.1},
}
SLOTS = [(make, slot) for make, given in GOOD.items() for slot in given]
METRIC = mx.metrics.curvature


def names(value):
    return getattr(value, "__name__", None)


def test_the_table_has_every_algorithm():
    made_of_another = {"Algorithm", "tuning_free"}
    assert {make.__name__ for make in GOOD} == set(mx.algorithms.__all__) - made_of_another


OF_OTHER_KINDS = ("kernel", "m_step")


@pytest.mark.parametrize(
    ("make", "slot"), [s for s in SLOTS if s[1] not in OF_OTHER_KINDS], ids=names
)
def test_bad_step_size(make, slot):
    for bad in (0.0, -0.1, float("nan"), float("inf"), np.ones(2)):
        with pytest.raises(ValueError, match=f"{slot} (is|has shape)"):
            bare(make)(MODEL.log_joint, **GOOD[make] | {slot: bad})
    with pytest.raises(TypeError, match=f"{slot} is 'fast', but|'name': '{slot}'"):
        bare(make)(MODEL.log_joint, **GOOD[make] | {slot: "fast"})


@pytest.mark.parametrize("make", [s[0] for s in SLOTS if s[1] == "kernel"], ids=names)
def test_bad_kernel(make):
    for bad, words in ((mx.kernels.rbf, r"call it: `rbf\(...\)`"), (1.0, "kernel is 1.0, but")):
        with pytest.raises(TypeError, match=words):
            bare(make)(MODEL.log_joint, **GOOD[make] | {"kernel": bad})


BAD_OPTIONS = [
    (mx.svgd_em, {"particle_metric": METRIC}, TypeError, "particle_metric is .*; call it"),
    (mx.m_svgd_em, {"particle_metric": METRIC}, TypeError, "particle_metric is .*; call it"),
    (mx.m_svgd_em, {"theta_momentum": 1.0}, ValueError, "theta_momentum is 1.0"),
    (mx.m_svgd_em, {"particle_momentum": -0.1}, ValueError, "particle_momentum is -0.1"),
    (mx.soul, {"num_warmup": -1}, ValueError, "num_warmup is -1, but it must be an integer"),
    (mx.soul, {"num_warmup": 1.5}, ValueError, "num_warmup is 1.5, but it must be an integer"),
    (mx.adjusted_pmgd, {"m_step": 0.1}, TypeError, "m_step is 0.1, but adjusted_pmgd needs"),
    (mx.mcem, {"num_moves": 0}, ValueError, "num_moves is 0, but it must be an integer"),
    (mx.kipla, {"discretization": "euler"}, ValueError, "is 'euler'.*'kiplmc1', 'kiplmc2'"),
]


@pytest.mark.parametrize(("make", "bad", "error", "sentence"), BAD_OPTIONS)
def test_bad_options(make, bad, error, sentence):
    with pytest.raises(error, match=sentence):
        bare(make)(MODEL.log_joint, **GOOD[make] | bad)


def test_bounds_unlike_theta():
    method = mx.soul(MODEL.log_joint, 0.1, 0.1, theta_bounds=({"a": 0.0}, 1.0))
    with pytest.raises(ValueError, match=r"theta_bounds is \{'a': 0.0\}, which is neither one"):
        method.init(jax.random.key(0), 0.0, X)


def test_maximiser_of_the_wrong_shape():
    method = mx.pgd(MODEL.log_joint, mx.exact_m_step(lambda x, y: jnp.mean(x, axis=0)), 0.1)
    state = method.init(jax.random.key(0), 0.0, X)
    with pytest.raises(ValueError, match=r"maximizer given to exact_m_step.*\(2,\).*full theta"):
        method.step(jax.random.key(0), state, Y)


@pytest.mark.parametrize("count", [0, -1, 2.0, True, "3", None, np.float64(2), jnp.array(2)])
def test_what_is_no_count(count):
    # The bugs: 50.0 rows a batch, and NumPy's 500 steps refused as no integer.
    with pytest.raises(ValueError, match="steps is .*, but it must be an integer of at least 1"):
        check_count(count, "steps")


@pytest.mark.parametrize("kind", [int, np.int64, np.int32, np.uint8])
def test_what_is_a_count(kind):
    assert check_count(kind(3), "steps") == 3
    assert type(check_count(kind(3), "steps")) is int
    assert check_count(kind(0), "warm_up", least=0) == 0
