"""Checkpoints of a run, with orbax: atomic, asynchronous, the last few kept, checked when read.

A folder belongs to one run, known by a fingerprint of everything that decides its numbers: the step
as it is traced, the key, the start, the data. Whatever cannot be read back, or does not have the
checksum it was written with, is passed over with a warning for the checkpoint before it, and stays
until the run comes to that step again or has written as many newer ones as are kept.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from marginax.fingerprints import digest, plain, what_differs

__all__ = ["Checkpoint", "CheckpointError", "Store", "open_store", "orbax"]


class CheckpointError(RuntimeError):
    """A checkpoint folder that cannot be used, or a write that failed."""


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often to save; `run(..., checkpoint="folder")` uses the defaults.

    Attributes:
        directory: the folder of this one run.
        every_seconds: at most so often, at the end of a block; also at the end of the run.
        keep: how many of the latest checkpoints stay.
    """

    directory: str | Path
    every_seconds: float = 30.0
    keep: int = 3


@dataclass(frozen=True)
class Store:
    """An open checkpoint folder.

    Attributes:
        save: `save(num_steps, tree)` starts writing in the background.
        load: `load(like) -> tree | None`, the newest checkpoint that is intact.
        is_busy: whether the last write is still going on.
        close: waits for the last write and reports its error.
    """

    save: Callable[[int, PyTree], None]
    load: Callable[[PyTree], PyTree | None]
    is_busy: Callable[[], bool]
    close: Callable[[], None]


def orbax() -> Any:
    """The library, or what to install."""
    try:
        import orbax.checkpoint  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError(
            "checkpoint needs orbax: install it with `pip install 'marginax[checkpoint]'`."
        ) from error
    return orbax.checkpoint


def open_store(checkpoint: Checkpoint, prints: dict[str, str]) -> Store:
    """Opens the folder, and refuses it if it belongs to another run.

    Args:
        checkpoint: where.
        prints: what identifies this run, part by part, from `fingerprints.of_run`.
    """
    ocp = orbax()
    directory = Path(checkpoint.directory).absolute()
    try:
        options = ocp.CheckpointManagerOptions(
            max_to_keep=checkpoint.keep, enable_async_checkpointing=True, create=True
        )
        manager = ocp.CheckpointManager(directory, options=options)
    except OSError as error:
        raise CheckpointError(
            f"The checkpoint folder {directory} cannot be used: {error}. Choose one that can be "
            "written to."
        ) from error

    passed_over: set[int] = set()

    def save(num_steps: int, tree: PyTree) -> None:
        if num_steps in passed_over:
            manager.delete(num_steps)  # only now: it may have been a passing fault of the disk
            passed_over.remove(num_steps)
        if num_steps in manager.all_steps():
            return  # nothing has happened since
        leaves = _leaves(tree)
        shapes = {name: [list(leaf.shape), str(leaf.dtype)] for name, leaf in leaves.items()}
        note = {
            "prints": prints,
            "checksum": digest(leaves),
            "shapes": shapes,
            "jax": jax.__version__,
        }
        arguments = ocp.args.Composite(
            run=ocp.args.StandardSave(leaves), note=ocp.args.JsonSave(note)
        )
        try:
            manager.save(num_steps, args=arguments, force=True)
        except Exception as error:
            raise _write_error(directory, error) from error

    def load(like: PyTree) -> PyTree | None:
        for step in sorted(manager.all_steps(), reverse=True):
            try:
                note = manager.restore(step, args=ocp.args.Composite(note=ocp.args.JsonRestore()))
                note = note["note"]
            except Exception as error:
                passed_over.add(_warned(step, error))
                continue
            other = what_differs(note["prints"], prints)
            if other is not None:
                raise _another_run(directory, other, note["jax"])
            try:
                room = _room(note["shapes"], like)
                read = ocp.args.Composite(run=ocp.args.StandardRestore(room))
                tree = manager.restore(step, args=read)["run"]
                if digest(tree) != note["checksum"]:
                    raise ValueError("its contents do not have the checksum they were written with")
            except Exception as error:
                passed_over.add(_warned(step, error))
                continue
            return _like(tree, like)
        return None

    def is_busy() -> bool:
        return bool(manager.is_saving_in_progress())

    def close() -> None:
        try:
            manager.wait_until_finished()
        except Exception as error:
            raise _write_error(directory, error) from error
        finally:
            manager.close()

    return Store(save, load, is_busy, close)


def _another_run(directory: Path, other: str, version: str) -> CheckpointError:
    written = "" if version == jax.__version__ else f" (written with jax {version})"
    return CheckpointError(
        f"The checkpoint folder {directory} holds a run with {other}{written}. Resume with exactly "
        "what that run was started with, or choose another folder."
    )


def _warned(step: int, error: Exception) -> int:
    """The step, after a warning that it was passed over."""
    first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
    warnings.warn(
        f"The checkpoint at step {step} could not be read and was passed over ({first_line}).",
        stacklevel=4,
    )
    return step


def _write_error(directory: Path, error: Exception) -> CheckpointError:
    text = str(error)
    if "No space left" in text:
        text = "no space is left on the device."
    elif len(text) > 200:
        text = f"{text[:200]} ..."
    return CheckpointError(f"The checkpoint could not be written to {directory}: {text}")


def _is_shared(leaf: Any) -> bool:
    """Whether parts of it are on the devices of other processes."""
    return isinstance(leaf, jax.Array) and not leaf.is_fully_addressable


def _leaves(tree: PyTree) -> dict[str, Any]:
    """NumPy arrays in a plain dict, typed keys as their data: any orbax can write that.

    Arrays that several processes share stay as they are: each process writes its own part.
    """

    def host(leaf: Any) -> Any:
        leaf = plain(leaf)
        return leaf if _is_shared(leaf) else np.asarray(leaf)

    return {f"{i:04d}": host(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}


def _room(shapes: dict[str, Any], like: PyTree) -> dict[str, Any]:
    """What is to be read: NumPy arrays, or this process's part of an array that several share."""
    templates = _leaves(like)

    def room(name: str, shape: list[int], dtype: str) -> Any:
        if _is_shared(templates[name]):
            sharding = templates[name].sharding
            return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)
        return np.empty(shape, dtype)

    return {name: room(name, *shape) for name, shape in shapes.items()}


def _like(leaves: dict[str, Any], like: PyTree) -> PyTree:
    """The leaves in the structure, the types and the places of `like`."""
    templates, structure = jax.tree.flatten(like)

    def device(leaf: Any, template: Any) -> Any:
        if plain(template) is not template:
            return jax.random.wrap_key_data(jnp.asarray(leaf), impl=jax.random.key_impl(template))
        if not isinstance(template, jax.Array):
            return np.asarray(leaf)
        # Not committed to a device unless it was before: jit may then move it.
        spread = template.committed and not _is_shared(leaf)
        return jax.device_put(leaf, template.sharding) if spread else jnp.asarray(leaf)

    ordered = [leaves[name] for name in sorted(leaves)]
    return jax.tree.unflatten(structure, map(device, ordered, templates))
