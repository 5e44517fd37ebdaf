"""Runs every benchmark: `python -m benchmarks`, or `make bench`."""

import jax

from benchmarks import sweep, velocity

if __name__ == "__main__":
    print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}\n")
    sweep.main()
    print()
    velocity.main()
