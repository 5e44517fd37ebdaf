"""Random models and data sets, fitted and judged by an oracle that shares no code with the library.

    python tests/hard/fuzz.py --minutes 30 [--seed 0] [--fits N] [--write table.md]
    python tests/hard/fuzz.py --minutes 30 --shard 1/2     and in another process --shard 2/2
    python tests/hard/fuzz.py --seed 0 --only 137          repeats one fit, with its summary
    python tests/hard/fuzz.py --family normal,bernoulli    only this prior and likelihood

Fifteen data sets of each model and shape come one after another, because what is compiled for the
first serves them all.
"""

import argparse
import gc
import re
import statistics
import sys
import time
import traceback
import warnings
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import jax
from fuzz_draws import Chunk, Draw, chunk, draw
from fuzz_families import problem
from fuzz_judge import LABELS, Verdict, judge

import marginax as mx

PER_CHUNK = 15
SHOWN = ("WRONG", "CRASH", "false alarm", "wrong errors", "refused", "missed", "?")


def fit_and_judge(one: Draw, show: bool = False) -> Verdict:
    """Fits a data set and judges the fit; an exception is a verdict too."""
    began = time.perf_counter()
    stage = "refused"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            family = one.chunk.family
            made = problem(family, one.data, one.in_units(one.start), one.latent)
            stage = "CRASH"
            fit = mx.fit(made, progress=False)
            if show:
                print(fit)
    except Exception as error:  # noqa: BLE001, whatever it is
        if show:
            traceback.print_exc()
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        said = f"{type(error).__name__} at {where}: {' '.join(str(error).split())[:300]}"
        return Verdict(one, stage, (said,), time.perf_counter() - began)
    seconds = time.perf_counter() - began
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return judge(one, fit, seconds)


def enter(of: Chunk) -> None:
    """Sets up JAX for a chunk, without the programs of the last one."""
    jax.clear_caches()
    gc.collect()
    jax.config.update("jax_enable_x64", of.x64)


def run(arguments: argparse.Namespace) -> list[Verdict]:
    """Fits until the time is up."""
    verdicts: list[Verdict] = []
    ends = time.perf_counter() + 60 * arguments.minutes
    shard, shards = (int(part) for part in arguments.shard.split("/"))
    number = -1
    while time.perf_counter() < ends and len(verdicts) < arguments.fits:
        number += 1
        if number % shards != shard - 1:
            continue
        of = chunk(arguments.seed, number)
        wanted = arguments.family.split(",") if arguments.family else []
        if wanted and not {of.family.prior, of.family.likelihood} >= set(wanted):
            continue
        enter(of)
        for index in range(number * PER_CHUNK, (number + 1) * PER_CHUNK):
            if time.perf_counter() > ends or len(verdicts) >= arguments.fits:
                break
            verdict = fit_and_judge(draw(of, arguments.seed, index))
            verdicts.append(verdict)
            if verdict.label in SHOWN or arguments.verbose:
                print(verdict.line(), flush=True)
        tally = Counter(verdict.label for verdict in verdicts)
        counts = ", ".join(f"{tally[label]} {label}" for label in LABELS if tally[label])
        print(f"--- {len(verdicts)} fits, last {of.family} {of.shape}: {counts}", flush=True)
    return verdicts


def table(verdicts: list[Verdict]) -> str:
    """By prior and by likelihood, in Markdown."""
    rows: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        family = verdict.draw.chunk.family
        rows[f"prior {family.prior}"].append(verdict)
        rows[f"rows {family.likelihood}"].append(verdict)
        rows["x64" if verdict.draw.chunk.x64 else "float32"].append(verdict)
    rows["all"] = verdicts
    lines = [
        "| family | fits | believed | believed and wrong | wrong errors | false alarms | "
        "missed, and said so | true doubts | crashes | refused | ? | median s |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in sorted(rows, key=lambda name: (name == "all", name)):
        these = rows[name]
        tally = Counter(verdict.label for verdict in these)
        cells = [len(these), sum(verdict.believed for verdict in these)]
        cells += [tally[label] for label in LABELS[1:]]
        median = statistics.median(verdict.seconds for verdict in these) if these else 0.0
        lines.append(f"| {name} | {' | '.join(map(str, cells))} | {median:.2f} |")
    return "\n".join(lines)


def sentences(verdicts: list[Verdict]) -> str:
    """Which sentences are said, and how often they are false alarms."""
    said: dict[str, Counter[str]] = defaultdict(Counter)
    for verdict in verdicts:
        for sentence in verdict.sentences:
            start = re.sub(r"[-+.\d]+", "#", " ".join(sentence.split()[:5]))
            said[start][verdict.label] += 1
    lines = ["| sentence | with which verdicts |", "|---|---|"]
    for start, tally in sorted(said.items(), key=lambda item: -sum(item[1].values())):
        lines.append(f"| {start} ... | {', '.join(f'{n} {k}' for k, n in tally.most_common())} |")
    return "\n".join(lines)


def offenders(verdicts: list[Verdict], seed: int) -> str:
    lines = []
    for label in SHOWN:
        for verdict in verdicts:
            if verdict.label == label:
                again = f"python tests/hard/fuzz.py --seed {seed} --only {verdict.draw.index}"
                lines.append(f"- `{again}`: {verdict.line()}")
    return "\n".join(lines) or "No offenders."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fits", type=int, default=10**9, help="at most so many")
    parser.add_argument("--only", type=int, help="the number of one data set")
    parser.add_argument("--shard", default="1/1", help="i/n: every n-th model, from the i-th")
    parser.add_argument("--family", default="", help="a prior, a likelihood, or both: a,b")
    parser.add_argument("--write", type=Path, help="a Markdown file for the tables")
    parser.add_argument("--verbose", action="store_true", help="every verdict")
    arguments = parser.parse_args()
    if arguments.only is not None:
        of = chunk(arguments.seed, arguments.only // PER_CHUNK)
        enter(of)
        print(fit_and_judge(draw(of, arguments.seed, arguments.only), show=True).line())
        return
    verdicts = run(arguments)
    parts = table(verdicts), sentences(verdicts), offenders(verdicts, arguments.seed)
    text = "\n\n".join(parts)
    print(f"\n{text}")
    if arguments.write is not None:
        arguments.write.write_text(text + "\n")


if __name__ == "__main__":
    main()
