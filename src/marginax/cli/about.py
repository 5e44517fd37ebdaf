"""What is installed, and where compiled programs are kept: for `marginax info` and every result."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import jax
from rich.table import Table

from marginax._version import __version__

__all__ = ["installed", "keep_compiled", "versions", "what_is_here", "where_compiled"]

NEEDED = ("jax", "jaxlib", "numpy", "scipy", "optax")
# The package, what of marginax needs it, and how to get it.
EXTRAS = (
    ("numpyro", "NumPyro models", "marginax[numpyro]"),
    ("blackjax", "posterior draws of the latents", "marginax[blackjax]"),
    ("arviz", "posterior.nc", "marginax[arviz]"),
    ("matplotlib", "figures", "marginax[plot]"),
    ("orbax-checkpoint", "--resume", "marginax[checkpoint]"),
    ("typer", "this command", "marginax[cli]"),
    ("rich", "this command", "marginax[cli]"),
    ("pyarrow", "data in .parquet", "pyarrow"),
)


def installed(package: str) -> str | None:
    """The version of a package, without importing it; None if it is not there."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def versions() -> dict[str, str]:
    """Of marginax, Python and every package that is here."""
    known = {name: installed(name) for name in (*NEEDED, *(extra[0] for extra in EXTRAS))}
    here = {name: present for name, present in known.items() if present is not None}
    return {"marginax": __version__, "python": platform.python_version()} | here


def what_is_here() -> Table:
    """The table that `marginax info` prints."""
    import jax
    import jax.numpy as jnp

    present = versions()
    table = Table("", "version", "", box=None, pad_edge=False, header_style="none")
    for name in ("marginax", "python", *NEEDED):
        table.add_row(name, present.get(name, "not installed"), "")
    table.add_row()
    for name, use, how in EXTRAS:
        missing = f" (pip install '{how}')" if name not in present else ""
        table.add_row(name, present.get(name, "not installed"), f"for {use}{missing}")
    table.add_row()
    devices = ", ".join(f"{device.device_kind} ({device.platform})" for device in jax.devices())
    table.add_row("devices", devices, "")
    width = jnp.result_type(float).name
    table.add_row("compiled", str(where_compiled()), "`marginax fit` keeps programs here")
    table.add_row("default float", width, "in Python; `marginax fit` computes in float64")
    return table


def where_compiled() -> Path:
    """JAX's own setting, or a folder in the user's cache."""
    chosen = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    if chosen:
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "marginax" / "compiled"


def keep_compiled() -> None:
    """Makes JAX write what it compiles to disk; where that cannot be, nothing is kept."""
    try:
        folder = where_compiled()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # read-only, or no home at all
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
