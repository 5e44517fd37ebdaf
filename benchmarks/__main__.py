"""The suite: `make bench`, or `python -m benchmarks [--full] [--write-baseline]`.

It ends with 1 if a ratio of two timings is more than 1.3 times its baseline. With `--full` it also
measures growth to a million groups and 50,000 particles, time to accuracy beside other methods and
what one fit compiles, and makes the documentation's page and figures.
"""

import argparse
import json
import os
import sys
from statistics import median

import jax

from benchmarks import baseline, ratios, run_overhead, scaling, sweep
from benchmarks.tables import RESULTS

FILE = RESULTS / "bench.json"


def main(full: bool, write_baseline: bool) -> int:
    """All parts; 0 if no ratio is worse."""
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    found["jax"] = jax.__version__
    found["device"] = f"{jax.devices()[0].device_kind}, {os.cpu_count()} cores"
    print(f"jax {found['jax']} on {found['device']}\n\nRatios of timings taken in turns:")
    if write_baseline:  # the median of several, for one lucky run would fail the next
        several = [ratios.measure({}) for _ in range(3)]
        found["ratios"] = {name: median(run[name] for run in several) for name in several[0]}
        baseline.write(found["ratios"])
    else:
        found["ratios"] = ratios.measure(baseline.read())
    print("\nOne step against its size:")
    found["scaling"] = scaling.measure()
    FILE.write_text(json.dumps(found, indent=1) + "\n")
    print()
    for benchmark in (sweep, run_overhead):
        benchmark.main()
    if full:
        heavy(found)
    worse = baseline.complaints(found["ratios"], baseline.read())
    print(
        "\n" + "\n".join(["WORSE THAN THE BASELINE:", *worse.values()] if worse else ["No worse."])
    )
    return 1 if worse else 0


def heavy(found: dict) -> None:
    """What takes long or much memory; each part is saved when it is done."""
    from benchmarks import compilations, growth, page, time_to_accuracy

    # The last of them turns x64 on for good.
    parts = {
        "growth": growth.main,
        "compilations": compilations.measure,
        "time_to_accuracy": time_to_accuracy.measure,
    }
    for name, measure in parts.items():
        print(f"\n{name}:")
        jax.clear_caches()
        found[name] = measure()
        FILE.write_text(json.dumps(found, indent=1) + "\n")
    page.write(found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the heavy parts, too")
    parser.add_argument("--write-baseline", action="store_true", help="make this the baseline")
    sys.exit(main(**vars(parser.parse_args())))
