"""What a step communicates under each sharding: `python -m benchmarks.communication`.

Compiled for 8 and for 64 fake CPU devices and read off XLA's program: nothing is run, and no two of
the devices are real. Bytes are what one device receives per step with ring algorithms: of k devices
that take part, an all-gather of n bytes brings it n (k - 1) / k, an all-reduce twice that.
"""

import math
import re
from typing import Any, NamedTuple

import jax

jax.config.update("jax_num_cpu_devices", 64)  # before a backend starts

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import AxisType, Mesh  # noqa: E402

import marginax as mx  # noqa: E402
from benchmarks.tables import save  # noqa: E402
from marginax.fitting.plan import make_plan  # noqa: E402
from marginax.running.sharding import lay_out  # noqa: E402

NUM_PARTICLES, NUM_GROUPS, NUM_OBSERVATIONS = 1024, 4096, 8
SCORES = 20 * NUM_PARTICLES * NUM_GROUPS * NUM_OBSERVATIONS  # operations, about
VELOCITY = 6 * NUM_PARTICLES**2 * NUM_GROUPS * 2  # distances and two products with N x N matrices
FLOPS = 30e12  # per second, what a current GPU does in float32 without trying hard
NEAR, FAR = 450e9, 50e9  # bytes per second: NVLink within a node of 8, the network between nodes
NEAR_START, FAR_START = 10e-6, 30e-6  # seconds that a collective takes however little it carries

SHAPES = {
    (8, "particles"): {"particles": 8},
    (8, "groups"): {"groups": 8},
    (8, "both"): {"particles": 2, "groups": 4},
    (64, "particles"): {"particles": 64},
    (64, "groups"): {"groups": 64},
    (64, "both"): {"particles": 8, "groups": 8},
}
SIZES = {"pred": 1, "s8": 1, "u8": 1, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8}
KINDS = ("all-gather", "all-reduce", "reduce-scatter", "collective-permute", "all-to-all")


class Traffic(NamedTuple):
    """Of one step.

    Attributes:
        number: of collectives.
        received: bytes, by one device.
    """

    number: float
    received: float

    def __add__(self, other: Any) -> "Traffic":
        return Traffic(self.number + other.number, self.received + other.received)

    def times(self, count: float) -> "Traffic":
        """The same, repeated."""
        return Traffic(count * self.number, count * self.received)


def traffic(program: str) -> Traffic:
    """What a compiled program communicates, with loops as often as they run."""
    computations, entry, name = {}, "", ""
    for line in program.splitlines():
        head = re.match(r"(ENTRY )?%?([\w.\-]+) .*\{$", line)
        if head and not line.startswith(" "):
            name = head[2]
            computations[name] = []
            entry = name if head[1] else entry
        elif name:
            computations[name].append(line)

    def of(name: str) -> Traffic:
        total = Traffic(0, 0)
        for line in computations[name]:
            total = total + _of_line(line)
            runs = re.search(r'known_trip_count":\{"n":"(\d+)"', line)
            for called in re.findall(
                r"(?:body|calls|to_apply|true_computation|false_computation)=%?([\w.\-]+)", line
            ):
                if called in computations and not any(kind in line for kind in KINDS):
                    total = total + of(called).times(int(runs[1]) if runs else 1)
        return total

    return of(entry)


def _of_line(line: str) -> Traffic:
    found = re.match(rf"\s+(?:ROOT )?%\S+ = (.*?) ({'|'.join(KINDS)})(?:-start)?\(", line)
    if not found:
        return Traffic(0, 0)
    shapes = re.findall(r"(\w+)\[([\d,]*)\]", found[1])
    size = 0
    for dtype, dims in shapes:
        count = 1
        for dim in filter(None, dims.split(",")):
            count *= int(dim)
        size += count * SIZES[dtype]
    k = _taking_part(line)
    share = {
        "all-gather": (k - 1) / k,
        "all-reduce": 2 * (k - 1) / k,
        "reduce-scatter": k - 1,  # of the result, a k-th of what goes in
        "collective-permute": 1,
        "all-to-all": (k - 1) / k,
    }[found[2]]
    return Traffic(1, size * share)


def _taking_part(line: str) -> int:
    """How many devices a collective joins, in any of the three ways that XLA writes it."""
    if "collective-permute" in line:
        return 2
    if iota := re.search(r"replica_groups=\[(\d+),(\d+)\]", line):
        return int(iota[2])
    if listed := re.search(r"replica_groups=\{\{([\d,]+)\}", line):
        return len(listed[1].split(","))
    if named := re.search(r"replica_groups=mesh\[(.*?)\].*? \{('.*?)\}", line):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", named[1]))
        return math.prod(int(sizes[axis]) for axis in re.findall(r"'(\w+)'", named[2]))
    raise ValueError(f"This collective says not who takes part: {line}")


def methods() -> dict[str, Any]:
    """A method of each kind: all particles see each other whole, by groups, or only through theta.

    The model: y_gi ~ N(x_g0 + x_g1 t_i, 1), x_g ~ N(mean, sd^2).
    """

    def of_a_group(theta: Any, x: Any, y: Any) -> Any:
        t = jnp.linspace(-1.0, 1.0, NUM_OBSERVATIONS, dtype=y.dtype)
        z = (x - theta["mean"]) * jnp.exp(-theta["log_sd"])
        each = y - x[0] - x[1] * t
        return -0.5 * jnp.sum(z**2) - jnp.sum(theta["log_sd"]) - 0.5 * jnp.sum(each**2)

    theta = {name: jnp.zeros(2, jnp.float32) for name in ("mean", "log_sd")}
    y = jnp.zeros((NUM_GROUPS, NUM_OBSERVATIONS), jnp.float32)
    latent = jnp.zeros(2, jnp.float32)
    problem = mx.Problem.grouped(of_a_group, y, theta=theta, latent=latent)
    log_joint, rbf = problem.unconstrained_log_joint, mx.kernels.rbf(1.0)
    return {
        "M-SVGD-EM, one kernel over the whole latent": mx.m_svgd_em(log_joint, 0.1, 0.1, rbf),
        "M-SVGD-EM, a kernel per group": mx.m_svgd_em(
            log_joint, 0.1, 0.1, mx.kernels.blockwise(rbf, "leading")
        ),
        "M-SVGD-EM as `fit` runs it": make_plan(problem, NUM_PARTICLES, None).algorithm,
        "MPGD": mx.mpgd(log_joint, 0.01, 1.0, 10.0),
    }


def compiled(algorithm: Any, axes: dict[str, int]) -> Any:
    """One step of one start, compiled for arrays that are described and do not exist."""
    shape = jax.ShapeDtypeStruct
    theta = {name: shape((1, 2), jnp.float32) for name in ("mean", "log_sd")}
    particles = shape((1, NUM_PARTICLES, NUM_GROUPS, 2), jnp.float32)
    data = shape((NUM_GROUPS, NUM_OBSERVATIONS), jnp.float32)
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 1))
    state = jax.eval_shape(jax.vmap(algorithm.init), keys, theta, particles)

    def step(keys: Any, state: Any, data: Any) -> Any:
        return jax.vmap(algorithm.step, (0, 0, None))(keys, state, data)[0]

    shape_of_mesh = tuple(axes.values())
    devices = np.array(jax.devices()[: math.prod(shape_of_mesh)]).reshape(shape_of_mesh)
    mesh = Mesh(devices, tuple(axes), axis_types=(AxisType.Auto,) * len(axes))
    layout = lay_out(mesh, particles)
    places = layout.of_state(state, algorithm.replicated)
    inside = (layout.replicated, places, layout.of_data(data))
    given = jax.tree.map(
        lambda leaf, place: shape(leaf.shape, leaf.dtype, sharding=place),
        (keys, state, data),
        inside,
    )
    return jax.jit(step, out_shardings=places).lower(*given).compile()


def main() -> None:
    """The table, as Markdown and JSON."""
    rows: list[dict] = []
    for method, algorithm in methods().items():
        flops = SCORES + (0 if method == "MPGD" else VELOCITY)
        for (devices, name), axes in SHAPES.items():
            found = traffic(compiled(algorithm, axes).as_text())
            # Between nodes the slowest link decides, and every collective crosses it.
            rate, start = (NEAR, NEAR_START) if devices == 8 else (FAR, FAR_START)
            seconds = found.received / rate + found.number * start
            rows.append(
                {
                    "method": method,
                    "devices": devices,
                    "sharding": name,
                    "axes": " x ".join(map(str, axes.values())),
                    "collectives": found.number,
                    "received": found.received,
                    "communication_seconds": seconds,
                    "step_seconds": flops / FLOPS,
                    "speed": flops / FLOPS / (flops / FLOPS / devices + seconds),
                }
            )
            print(rows[-1], flush=True)
    cloud = NUM_PARTICLES * NUM_GROUPS * 2 * 4
    words = (
        f"What one device receives per step: {NUM_PARTICLES} particles, {NUM_GROUPS} groups of two "
        f"latents, float32; the cloud has {cloud / 1e6:.1f} MB. Read off XLA's program for fake "
        "CPU devices. Predicted, not measured: the times, with "
        f"{NEAR / 1e9:.0f} GB/s and {NEAR_START * 1e6:.0f} us per collective within a node of 8, "
        f"{FAR / 1e9:.0f} GB/s and {FAR_START * 1e6:.0f} us between nodes, and a step's arithmetic "
        f"at {FLOPS / 1e12:.0f} TFLOP/s, perfectly divided.\n\nMade by "
        "`python -m benchmarks.communication`."
    )
    save(
        "communication",
        words,
        rows,
        {
            "method": lambda row: row["method"],
            "devices": lambda row: str(row["devices"]),
            "sharding": lambda row: f"{row['sharding']} ({row['axes']})",
            "collectives": lambda row: f"{row['collectives']:.0f}",
            "received": lambda row: _bytes(row["received"]),
            "predicted communication": lambda row: _time(row["communication_seconds"]),
            "arithmetic on one device": lambda row: _time(row["step_seconds"]),
            "predicted speed-up": lambda row: f"{row['speed']:.2g}",
        },
    )


def _bytes(number: float) -> str:
    for unit, size in (("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.0f} B"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


if __name__ == "__main__":
    main()
