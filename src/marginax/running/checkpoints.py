"""Checkpoints of a run, with orbax: atomic, asynchronous, the last few kept, checked when read.

A folder belongs to one run, known by a fingerprint of everything that decides its numbers: the step
as it is traced, the key, the start, the data. Whatever cannot be read back, or does not have the
checksum it was written with, is passed over with a warning for the checkpoint before it, and stays
until the run comes to that step again or has written as many newer ones as are kept.
"""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from marginax._core.files import cannot_be_folder
from marginax._core.fingerprints import constants, digest, plain, text_of
from marginax.errors import CheckpointError

__all__ = [
    "Checkpoint",
    "Store",
    "check_folder",
    "open_store",
    "orbax",
    "run_fingerprints",
    "what_differs",
]


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often to save; `run(..., checkpoint="folder")` uses the defaults.

    Attributes:
        directory: the folder of this one run.
        every_seconds: at most so often, at the end of a block; also at the end of the run.
        max_to_keep: how many of the latest checkpoints stay.
    """

    directory: str | Path
    every_seconds: float = 30.0
    max_to_keep: int = 3


@dataclass(frozen=True)
class Store:
    """An open checkpoint folder.

    Attributes:
        save: `save(num_steps, tree)` starts writing in the background.
        load: `load(like) -> tree | None`, the newest checkpoint that is intact.
        is_busy: whether the last write is still going on.
        close: waits for the last write and reports its error.
        every_seconds: how often to save at most.
        directory: the folder.
    """

    save: Callable[[int, PyTree], None]
    load: Callable[[PyTree], PyTree | None]
    is_busy: Callable[[], bool]
    close: Callable[[], None]
    every_seconds: float
    directory: Path


def orbax() -> Any:
    """The library, or what to install."""
    try:
        import orbax.checkpoint  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError(
            "checkpoint needs orbax: install it with `pip install 'marginax[checkpoint]'`."
        ) from error
    return orbax.checkpoint


def check_folder(checkpoint: Any) -> Checkpoint | None:
    """What `checkpoint=` means; refuses a place where there cannot be a folder to write to.

    Before orbax sees it: that one would leave threads which keep the process from ending.

    Args:
        checkpoint: a path, a `Checkpoint`, or None for none.
    """
    if checkpoint is None:
        return None
    if isinstance(checkpoint, str | os.PathLike):
        checkpoint = Checkpoint(Path(checkpoint))
    if not isinstance(checkpoint, Checkpoint):
        raise TypeError(
            f"checkpoint is {checkpoint!r}, but it must be the path of a folder, or a "
            "`marginax.Checkpoint`."
        )
    folder = Path(checkpoint.directory).absolute()
    why_not = cannot_be_folder(folder)
    if why_not:
        raise CheckpointError(
            f"The checkpoint folder {folder} cannot be used: {why_not}. Choose one that can be "
            "written to."
        )
    return checkpoint


def open_store(checkpoint: Checkpoint, prints: dict[str, str]) -> Store:
    """Opens the folder, and refuses it if it belongs to another run.

    Args:
        checkpoint: where.
        prints: what identifies this run, part by part, from `run_fingerprints`.
    """
    ocp = orbax()
    directory = Path(checkpoint.directory).absolute()
    try:
        options = ocp.CheckpointManagerOptions(
            max_to_keep=checkpoint.max_to_keep, enable_async_checkpointing=True, create=True
        )
        manager = ocp.CheckpointManager(directory, options=options)
    except OSError as error:
        raise CheckpointError(
            f"The checkpoint folder {directory} cannot be used: {error}. Choose one that can be "
            "written to."
        ) from error

    folder = _Folder(ocp, manager, directory, prints, set())
    return Store(
        partial(_save, folder),
        partial(_load, folder),
        lambda: bool(manager.is_saving_in_progress()),
        partial(_close, folder),
        checkpoint.every_seconds,
        directory,
    )


class _Folder(NamedTuple):
    """An open folder: orbax, its manager, where, whose run, and steps that could not be read."""

    ocp: Any
    manager: Any
    directory: Path
    prints: dict[str, str]
    passed_over: set[int]


def _save(folder: _Folder, num_steps: int, tree: PyTree) -> None:
    ocp, manager = folder.ocp, folder.manager
    if num_steps in folder.passed_over:
        manager.delete(num_steps)  # only now: it may have been a passing fault of the disk
        folder.passed_over.remove(num_steps)
    if num_steps in manager.all_steps():
        return  # nothing has happened since
    leaves = _leaves(tree)
    shapes = {name: [list(leaf.shape), str(leaf.dtype)] for name, leaf in leaves.items()}
    note = {
        "prints": folder.prints,
        "checksum": digest(leaves),
        "shapes": shapes,
        "jax": jax.__version__,
    }
    arguments = ocp.args.Composite(run=ocp.args.StandardSave(leaves), note=ocp.args.JsonSave(note))
    try:
        manager.save(num_steps, args=arguments, force=True)
    except Exception as error:
        raise _write_error(folder.directory, error) from error


def _load(folder: _Folder, like: PyTree) -> PyTree | None:
    """The newest checkpoint that can be read and has the checksum it was written with."""
    for step in sorted(folder.manager.all_steps(), reverse=True):
        try:
            return _read(folder, step, like)
        except CheckpointError:
            raise
        except Exception as error:
            folder.passed_over.add(_warned(step, error))
    return None


def _read(folder: _Folder, step: int, like: PyTree) -> PyTree:
    ocp, manager = folder.ocp, folder.manager
    note = manager.restore(step, args=ocp.args.Composite(note=ocp.args.JsonRestore()))["note"]
    other = what_differs(note["prints"], folder.prints)
    if other is not None:
        raise _another_run(folder.directory, other, note["jax"])
    room = _room(note["shapes"], like)
    read = ocp.args.Composite(run=ocp.args.StandardRestore(room))
    tree = manager.restore(step, args=read)["run"]
    if digest(tree) != note["checksum"]:
        raise ValueError("its contents do not have the checksum they were written with")
    return _like(tree, like)


def _close(folder: _Folder) -> None:
    try:
        folder.manager.wait_until_finished()
    except Exception as error:
        raise _write_error(folder.directory, error) from error
    finally:
        folder.manager.close()


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


_MEANING = {
    "algorithm": "another algorithm, model or setting",
    "shapes": "other shapes of theta or particles",
    "start": "another key or another start",
    "data": "other data",
}


def run_fingerprints(
    call: Callable[..., Any], arguments: tuple[Any, ...], key: Any, block_size: int | None
) -> dict[str, str]:
    """What decides the numbers of a run, hashed part by part, so that a difference can be named.

    Args:
        call: the block, as the run calls it.
        arguments: what it is called with first: the state, the data and counts.
        key: the run's key.
        block_size: because the stopping rules look at blocks; None if these grow.
    """
    state, data, *_ = arguments
    # Of shapes alone: where arrays live would stand in the text, and may differ when resumed.
    shapes_alone = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), x.dtype), arguments)
    traced = jax.make_jaxpr(call)(*shapes_alone)
    shapes = str(jax.tree.map(lambda leaf: (np.shape(leaf), str(leaf.dtype)), state))
    return {
        "algorithm": digest(f"{text_of(traced)} in blocks of {block_size}", constants(traced)),
        "shapes": digest(shapes),
        "start": digest(key, state),
        "data": digest(data),
    }


def what_differs(one: dict[str, str], other: dict[str, str]) -> str | None:
    """In words, what another run has otherwise; None if it is the same."""
    # In this order: where shapes differ everything does, and the key is part of what is traced.
    for part in ("shapes", "data", "start", "algorithm"):
        if one[part] != other[part]:
            return _MEANING[part]
    return None
