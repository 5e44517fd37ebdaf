"""Runs the quick benchmarks: `python -m benchmarks`, or `make bench`.

`python -m benchmarks.stopping_rules` takes longer and is run by hand: it makes the documentation's
table.
"""

import jax

from benchmarks import run_overhead, sweep, velocity

if __name__ == "__main__":
    print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}\n")
    for benchmark in (sweep, run_overhead, velocity):
        benchmark.main()
        print()
