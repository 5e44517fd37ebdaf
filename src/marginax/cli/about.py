"""What is installed, and where compiled programs are kept: for `marginax info` and every result."""

import platform
from importlib.metadata import PackageNotFoundError, version

from rich.table import Table

from marginax._core.disk_cache import cache_folder, cache_size, clear_cache, is_of_jax
from marginax._version import __version__

__all__ = ["clear_compiled", "installed", "versions", "what_is_here", "where_compiled"]

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
    ("formulae", "mixed models from formulas", "marginax[mixed]"),
    ("narwhals", "mixed models from formulas", "marginax[mixed]"),
    ("pandas", "mixed models from formulas", "marginax[mixed]"),
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
    table = Table("", box=None, pad_edge=False, header_style="none")
    table.add_column("version", overflow="fold")  # a path is to be read to its end
    table.add_column("")
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
    table.add_row("compiled", *where_compiled())
    table.add_row("default float", width, "in Python; `marginax fit` computes in float64")
    return table


def where_compiled() -> tuple[str, str]:
    """The folder of compiled programs, and what it holds."""
    folder = cache_folder()
    if folder is None:
        return "not kept", "MARGINAX_CACHE, `configure` or JAX's own options say so"
    number, size = cache_size(folder)
    whose = "by JAX's own option" if is_of_jax() else "--clear-cache removes them"
    return str(folder), f"{number} programs, {size / 1e6:.1f} MB ({whose})"


def clear_compiled() -> str:
    """Removes compiled programs, and says so."""
    folder = cache_folder()
    if folder is None:
        return "No programs are kept."
    if is_of_jax():
        return (
            f"Nothing was removed: JAX's own option chose {folder}, where programs of others may "
            "be too. Remove it yourself, or unset JAX_COMPILATION_CACHE_DIR."
        )
    number, size = clear_cache(folder)
    return f"Removed {number} programs, {size / 1e6:.1f} MB, from {folder}."
