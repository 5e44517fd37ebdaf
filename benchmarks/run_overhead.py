"""What `run` costs over a bare jitted scan: 20 particles, 20 dimensions, 20,000 steps."""

import jax

import marginax as mx
from benchmarks.compilations import count
from benchmarks.timing import interleaved


def main() -> None:
    """Prints both times, the ratio of the best of several alternating runs, and compilations."""
    model = mx.models.ToyHierarchical(12.0, 12.0)
    y = model.simulate(jax.random.key(0), 10.0, 20)
    particles = jax.random.normal(jax.random.key(1), (20, 20))
    method = mx.m_svgd_em(model.log_joint, 0.3, 0.3, mx.kernels.rbf(5.0))
    steps, key = 20_000, jax.random.key(2)

    @jax.jit
    def bare(theta, particles, y):
        record = {"record": lambda state, info: ()}
        return mx.trajectory(method, theta, particles, y, steps, key=key, **record).state

    def with_run():
        settings = {"max_steps": steps, "block_size": 500, "stop": mx.stopping.settled(1e-30)}
        return mx.run(method, 0.0, particles, y, progress=False, key=key, **settings).state

    forms = {"bare jitted scan": lambda: bare(0.0, particles, y), "run": with_run}
    for function in forms.values():
        function()
    best: dict[str, float] = {}
    compiled, _ = count(lambda: best.update(interleaved(forms, 30)))
    print(f"{steps} steps, N = 20, D = 20, block 500")
    for name, value in best.items():
        print(f"  {name:<18} {value:.3f} s   ({value / best['bare jitted scan']:.3f} x)")
    print(f"  compilations in thirty more runs: {len(compiled)}")


if __name__ == "__main__":
    main()
