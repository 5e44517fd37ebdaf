"""A saved fit is read for the problem it was made with, or refused in a sentence."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import marginax as mx
from marginax._core.fingerprints import program_digest
from marginax.fitting import saving
from marginax.fitting.saving import fingerprint
from marginax.model.transforms import interval, lower_bound, positive

pytestmark = pytest.mark.usefixtures("as_users_write")

Y = 1 + np.random.default_rng(0).normal(size=(8, 2))


def log_joint(theta, x, y):
    return norm.logpdf(x, theta["m"], theta["s"]) + jnp.sum(norm.logpdf(y, x, 1.0))


def problem(density=log_joint, s=positive, **more):
    options = {"theta": {"m": 0.0, "s": 1.0}, "latent": 0.0, "theta_transforms": {"s": s}}
    return mx.Problem.grouped(density, Y, **options | more)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("fits") / "fit.npz"
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        fit = mx.fit(problem(), key=jax.random.key(0), num_starts=1, max_steps=20)
        fit.save(path)
    return path


def changed(path, tmp_path, arrays=None, **words):
    """The file with other arrays, or other words."""
    with np.load(path) as file:
        inside = {name: file[name] for name in file.files}
    told = json.loads(str(inside.pop("words")))
    told |= words
    inside |= arrays or {}
    np.savez(tmp_path / "other.npz", words=np.array(json.dumps(told)), **inside)
    return tmp_path / "other.npz"


@pytest.mark.slow
def test_the_same_problem_made_anew_is_known(saved):
    def renamed(theta, x, y):  # another name, another file, another line

        return norm.logpdf(x, theta["m"], theta["s"]) + jnp.sum(norm.logpdf(y, x, 1.0))

    assert str(mx.Fit.load(saved, problem(renamed))) == str(mx.Fit.load(saved, problem()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda: problem(s=lower_bound(0.5)), "other transforms"),
        (lambda: problem(s=interval(0.0, 9.0)), "other transforms"),
        (lambda: problem(latent=1.0, latent_transforms=positive), "other transforms"),
        (lambda: problem(lambda t, x, y: log_joint(t, x, y) - 0.5 * x**2), "log joint computes"),
        (lambda: problem(lambda t, x, y: log_joint(t, 2.0 * x, y)), "log joint computes"),
        (lambda: problem(names={"m": "mean"}), "other parameters"),
    ],
)
def test_another_problem_is_refused(saved, given, words):
    """Names, shapes and data were compared, and nothing else: a wrong model was CONVERGED."""
    with pytest.raises(ValueError, match=f"a fit of another problem than the one given: .*{words}"):
        mx.Fit.load(saved, given())


def test_bounds_that_a_name_rounds_are_told_apart():
    one, other = (fingerprint(problem(s=lower_bound(low))) for low in (0.5, 0.50000001))
    assert one["transforms"] != other["transforms"]


def test_arrays_in_a_log_joint_count():
    def weighted(weights):
        return lambda theta, x, y: log_joint(theta, x, y) - jnp.sum(weights * x**2)

    ones = [fingerprint(problem(weighted(jnp.ones(3))))["log joint"] for _ in range(2)]
    assert ones[0] == ones[1]
    assert fingerprint(problem(weighted(jnp.array([1.0, 1.0, 2.0]))))["log joint"] != ones[0]


def _squares(x):
    return jnp.sum(x**2)


def test_the_name_of_a_function_does_not_count():
    @jax.jit
    def one(theta, x, y):
        return log_joint(theta, x, y)

    @jax.jit
    def two(theta, x, y):
        return log_joint(theta, x, y)

    assert fingerprint(problem(one)) == fingerprint(problem(two))
    for within in (lambda f: lambda x: f(x) + f(2.0 * x), jax.vmap):  # at the top, and in its place
        digests = {
            program_digest(within(jax.jit(f)), (jnp.ones((2, 3)),))
            for f in (lambda x: jnp.sum(x**2), _squares)
        }
        assert len(digests) == 1


IN_A_PROCESS = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_enable_x64", True)
from jax.scipy.stats import norm
import marginax as mx
from marginax.fitting.saving import fingerprint
print("many lines before")
def log_joint(theta, x, y):
    return norm.logpdf(x, theta["m"], theta["s"]) + jnp.sum(norm.logpdf(y, x, 1.0))
Y = 1 + np.random.default_rng(0).normal(size=(8, 2))
made = mx.Problem.grouped(log_joint, Y, theta={"m": 0.0, "s": 1.0}, latent=0.0,
                          theta_transforms={"s": mx.transforms.positive})
print(json.dumps(fingerprint(made)))
"""


@pytest.mark.slow
def test_another_process_has_the_same_fingerprint():
    if not jax.config.jax_enable_x64:
        pytest.skip("the process computes in float64")
    ran = subprocess.run(
        [sys.executable, "-c", IN_A_PROCESS], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1]) == fingerprint(problem())


def test_another_jax_cannot_tell_a_log_joint_and_says_so(monkeypatch):
    """Another version may trace the same model to other operations."""
    made = fingerprint(problem())
    older = made | {"log joint": "0", "traced by": "jax 0.1 in float64"}
    with pytest.warns(UserWarning, match="made with jax 0.1 .* cannot be told"):
        saving._check_same("fit.npz", older, made)
    with pytest.raises(ValueError, match="other transforms"):
        saving._check_same("fit.npz", older | {"transforms": []}, made)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"unconstrained_theta": np.array([np.nan, 0.0])}, "1 values that are not finite"),
        ({"unconstrained_theta": np.zeros(3)}, r"unconstrained_theta has shape \(3,\)"),
        ({"information": np.eye(3)}, r"information has shape \(3, 3\)"),
        ({"score_covariance": np.zeros(2)}, r"score_covariance has shape \(2,\)"),
        ({"run.theta.0": np.zeros(4)}, r"run.theta has shape \(4,\)"),
        ({"run.particles.0": np.zeros((1, 20, 7))}, r"run.particles has shape \(1, 20, 7\)"),
        ({"run.history.0": np.zeros(1)}, r"run.history has shape \(1,\)"),
        ({"likelihood.mean": np.zeros((7, 1))}, r"mean has shape \(7, 1\)"),
        ({"likelihood.by_group": np.zeros(7)}, r"by_group has shape \(7,\)"),
        ({"draws.draws": np.zeros((2, 3, 7, 1))}, r"draws has shape \(2, 3, 7, 1\)"),
        ({"unconstrained_theta": np.array(["a", "b"])}, "dtype <U1"),
    ],
)
def test_contents_that_are_not_this_problems_are_refused(saved, tmp_path, arrays, words):
    """They were taken, and failed with errors of NumPy's when the fit was printed."""
    if "draws.draws" in arrays:
        pytest.importorskip("blackjax")
    with pytest.raises(ValueError, match=f"not a saved fit, or it is damaged .*{words}"):
        mx.Fit.load(changed(saved, tmp_path, arrays), problem())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"start": 5}, "its start is 5, of 1"),
        ({"start": "first"}, "start is 'first'"),
        ({"boundaries": [7]}, r"its boundaries are \(7,\), of 2 parameters"),
        ({"warnings": "none"}, "warnings is 'none'"),
        ({"converged": None}, "converged is None"),
        ({"likelihood": {"log_likelihood": "high"}}, "log_likelihood is 'high'"),
        ({"format": 3}, "has format 3, but this version of marginax reads 4"),
    ],
)
def test_words_that_are_none_are_refused(saved, tmp_path, words, said):
    with pytest.raises(ValueError, match=said):
        mx.Fit.load(changed(saved, tmp_path, **words), problem())


def ratio(larger, smaller):
    from types import SimpleNamespace

    from marginax.fitting.uncertainty import likelihood_ratio

    fits = [
        SimpleNamespace(
            unconstrained_theta=np.zeros(one.num_parameters),
            problem=one,
            log_likelihood=value,
            likelihood=SimpleNamespace(error=0.0),
        )
        for one, value in ((larger, -9.0), (smaller, -10.0))
    ]
    return likelihood_ratio(*fits).note


def test_a_ratio_test_speaks_of_variances_where_one_may_be_dropped():
    """The note on variances stood under the test of a fixed effect too."""

    def density(theta, x, y):
        return -0.5 * jnp.sum((x - sum(jnp.sum(one) for one in theta.values())) ** 2)

    def model(latent=0.0, transforms=None, **theta):
        return mx.Problem(density, theta=theta, latent=latent, theta_transforms=transforms)

    scale, variance = {"s": positive}, "sets a variance to 0"
    full = model(b=jnp.zeros(3), s=1.0, transforms=scale)
    assert ratio(full, model(b=jnp.zeros(2), s=1.0, transforms=scale)) == ""
    assert ratio(model(a=0.0, s=1.0, transforms=scale), model(s=1.0, transforms=scale)) == ""
    assert variance in ratio(full, model(b=jnp.zeros(3)))
    assert variance in ratio(full, model(other=jnp.zeros(3)))  # names that do not match
    # On a log scale nothing tells a variance but that its latents are gone.
    slopes = model(latent=jnp.zeros(2), m=0.0, log_s=0.0)
    assert variance in ratio(slopes, model(latent=jnp.zeros(1), m=0.0))
    assert ratio(slopes, model(latent=jnp.zeros(2), log_s=0.0)) == ""
