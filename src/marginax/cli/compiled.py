"""Where the shell keeps compiled programs, so that the second fit of a model starts at once."""

import os
from pathlib import Path

import jax

__all__ = ["keep_compiled", "where_compiled"]


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
