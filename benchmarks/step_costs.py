"""One step of every method against the matrix products that its equations ask for, by hand.

The Stein methods' products are of an N x N matrix with an N x D cloud, or of the cloud with itself;
those of the Langevin methods are a logistic regression's, rows x D with D x N. Every unit is timed
in turns with the step itself, so that only ratios count: 1 is a step that costs its products and
nothing else.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

import marginax as mx
from benchmarks.tables import save
from benchmarks.timing import interleaved, temporary_bytes

N, D = 2048, 2048
LARGE_N, LARGE_D = 4096, 1000
ROWS, FEATURES, PARTICLES = 4000, 1000, 200
MOVES = 4


def log_joint(theta: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """The toy model, whose scores cost next to nothing."""
    return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)


def stein_methods() -> dict[str, tuple[mx.Algorithm, int, int]]:
    """By name: the method, its products of N x N x D, and its solves with an N x N matrix."""
    k, rbf = mx.kernels, mx.kernels.rbf(30.0)

    def stein(kernel: mx.kernels.Kernel, **options: Any) -> mx.Algorithm:
        return mx.m_svgd_em(log_joint, 1e-4, 0.1, kernel, **options)

    return {
        "m_svgd_em, rbf": (stein(rbf), 3, 0),  # X X', K S, K X
        "m_svgd_em, paper_rbf": (stein(k.paper_rbf(60.0)), 3, 0),
        "m_svgd_em, imq": (stein(k.imq(30.0)), 3, 0),
        "m_svgd_em, inverse_log": (stein(k.inverse_log(30.0)), 3, 0),
        "m_svgd_em, energy": (stein(k.energy(30.0)), 3, 0),
        "m_svgd_em, gfsd": (stein(k.gfsd(30.0)), 2, 0),  # X X', K X
        "m_svgd_em, blob": (stein(k.blob(30.0)), 3, 0),  # X X' for the density; again, and W X
        "m_svgd_em, gfsf": (stein(k.gfsf(30.0)), 2, 1),  # X X', K X, and a solve
        "m_svgd_em, WAG": (stein(rbf, particle_momentum=mx.momentum.wag()), 3, 0),
        # X X', K S, K X; V V', K V, X G', weights X, weights V, K r; and V by a solve.
        "asvgd_em": (mx.asvgd_em(log_joint, 1e-4, 0.1, rbf), 9, 1),
        "asvgd_em, heavy ball": (mx.asvgd_em(log_joint, 1e-4, 0.1, rbf, quadratic=None), 3, 0),
        "coin_em, rbf": (mx.coin_em(log_joint, rbf), 3, 0),
    }


def langevin_methods(model: Any) -> dict[str, tuple[mx.Algorithm, int]]:
    """By name: the method, and how often it takes the density's two products."""
    f = model.log_joint
    m_step = mx.exact_m_step(lambda particles, data: jnp.mean(particles))
    prox = mx.proximal.of_latent(mx.proximal.soft_threshold(0.1))
    return {
        "pgd": (mx.pgd(f, 0.01, 0.01), 1),
        "mypgd": (mx.pgd(f, 0.01, 0.01, prox=prox, smoothing=0.1), 1),
        "ipla": (mx.ipla(f, 0.01), 1),
        "pipgla": (mx.ipla(f, 0.01, prox=prox), 1),
        "mpgd, RMSProp": (
            mx.mpgd(f, 0.01, 1.0, 10.0, theta_preconditioner=optax.scale_by_rms()),
            1,
        ),
        "adjusted_pmgd": (mx.adjusted_pmgd(f, m_step, 0.001), 2),
        "jala_em": (mx.jala_em(f, 0.01, 0.001), 2),
        f"mcem, {MOVES} moves": (mx.mcem(f, 0.01, 0.001, MOVES), MOVES + 1),
    }


def stepper(method: mx.Algorithm, theta: Any, x: jax.Array, y: Any) -> Callable[[], Any]:
    """One compiled step, called again and again."""
    state = method.init(jax.random.key(0), theta, x)
    step = jax.jit(method.step)
    return lambda: step(jax.random.key(1), state, y)


def compiled_memory(method: mx.Algorithm) -> int:
    """Bytes beside its arguments that a step takes at N = 4096, D = 1000, as the compiler plans."""
    x = jnp.zeros((LARGE_N, LARGE_D)).at[0, 0].set(1.0)
    state = jax.eval_shape(method.init, jax.random.key(0), jnp.zeros(()), x)
    y = jax.ShapeDtypeStruct((LARGE_D,), x.dtype)
    return temporary_bytes(jax.jit(method.step).lower(jax.random.key(0), state, y).compile())


def main() -> None:
    """Writes `results/step_costs.md`."""
    rows: list[dict] = []
    x = jax.random.normal(jax.random.key(0), (N, D))
    y = jax.random.normal(jax.random.key(1), (D,))
    gram = jnp.exp(-((x[:, :1] - x[:, 0]) ** 2)) + jnp.eye(N)
    product = jax.jit(lambda k, x: jnp.matmul(k, x, precision="highest"))
    solve = jax.jit(
        lambda k, x: jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(k, lower=True), x)
    )
    for name, (method, products, solves) in stein_methods().items():
        times = interleaved(
            {
                "step": stepper(method, jnp.zeros(()), x, y),
                "product": lambda: product(gram, x),
                "solve": lambda: solve(gram, x),
            },
            repeats=5,
        )
        by_hand = products * times["product"] + solves * times["solve"]
        rows.append(
            {
                "method": name,
                "counted": f"{products} products" + (" and a solve" if solves else ""),
                "ratio": times["step"] / by_hand,
                "memory": compiled_memory(method) / (LARGE_N * LARGE_N * LARGE_D * 4),
                "matrices": compiled_memory(method) / (LARGE_N * LARGE_N * 4),
            }
        )
        write(rows)
    model = mx.models.LogisticRegression(25.0)
    features = jax.random.normal(jax.random.key(2), (ROWS, FEATURES))
    data = mx.models.ClassificationData(features, (features[:, 0] > 0).astype(features.dtype))
    cloud = 0.1 * jax.random.normal(jax.random.key(3), (PARTICLES, FEATURES))
    forward = jax.jit(lambda a, b: jnp.matmul(a, b.T))
    backward = jax.jit(lambda a, r: jnp.matmul(r.T, a))
    fitted = forward(features, cloud)
    for name, (method, count) in langevin_methods(model).items():
        times = interleaved(
            {
                "step": stepper(method, jnp.zeros(()), cloud, data),
                "forward": lambda: forward(features, cloud),
                "backward": lambda: backward(features, fitted),
            },
            repeats=5,
        )
        by_hand = count * (times["forward"] + times["backward"])
        counted = f"{2 * count} products of the model"
        rows.append({"method": name, "counted": counted, "ratio": times["step"] / by_hand})
        write(rows)


def write(rows: list[dict]) -> None:
    """The table so far."""
    columns = {
        "method": lambda row: row["method"],
        "counted by hand": lambda row: row["counted"],
        "step / count": lambda row: f"{row['ratio']:.2f}",
        "temporary memory at N = 4096, D = 1000, in N x N matrices": lambda row: (
            f"{row['matrices']:.1f}" if "matrices" in row else ""
        ),
    }
    words = (
        "# Cost of a step\n\n`python -m benchmarks.step_costs`: time of one step over that of the "
        "products that its equations ask for, counted by hand and timed in turns with it (Stein "
        f"methods N = {N}, D = {D}; Langevin methods on a logistic regression of {ROWS} rows, "
        f"{FEATURES} features and {PARTICLES} particles). An N x N x D array would be "
        f"{LARGE_D} matrices."
    )
    save("step_costs", words, rows, columns)


if __name__ == "__main__":
    main()
