"""Checkpoints of a run, with orbax: atomic, asynchronous, the last few kept, checked when read.

A folder belongs to one run, known by a fingerprint of everything that decides its numbers: the step
as it is traced, the key, the start, the data. Whatever cannot be read back, or does not have the
checksum it was written with, is passed over with a warning for the checkpoint before it.
"""

import hashlib
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from marginax.processes import whole

__all__ = ["Checkpoint", "CheckpointError", "Store", "fingerprint", "open_store"]


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


def open_store(checkpoint: Checkpoint, prints: dict[str, str]) -> Store:
    """Opens the folder, and refuses it if it belongs to another run.

    Args:
        checkpoint: where.
        prints: what identifies this run, part by part, from `fingerprint`.
    """
    try:
        import orbax.checkpoint as ocp  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError(
            "checkpoint needs orbax: install it with `pip install 'marginax[checkpoint]'`."
        ) from error

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

    def save(num_steps: int, tree: PyTree) -> None:
        if num_steps in manager.all_steps():
            return  # nothing has happened since
        leaves = _leaves(tree)
        shapes = {name: [list(leaf.shape), str(leaf.dtype)] for name, leaf in leaves.items()}
        note = {
            "prints": prints,
            "checksum": _digest(leaves),
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
                _pass_over(manager, step, error)
                continue
            _check_same_run(directory, note, prints)
            try:
                room = _room(note["shapes"], like)
                read = ocp.args.Composite(run=ocp.args.StandardRestore(room))
                tree = manager.restore(step, args=read)["run"]
                if _digest(tree) != note["checksum"]:
                    raise ValueError("its contents do not have the checksum they were written with")
            except Exception as error:
                _pass_over(manager, step, error)
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


def fingerprint(
    call: Callable[..., Any], arguments: tuple[Any, ...], key: Any, block_size: int
) -> dict[str, str]:
    """What decides the numbers of a run, hashed part by part, so that a difference can be named.

    Args:
        call: the block, as the run calls it.
        arguments: what it is called with first: the state, the data and counts.
        key: the run's key.
        block_size: because the stopping rules look at blocks.
    """
    state, data, *_ = arguments
    # Of shapes alone: where arrays live would stand in the text, and may differ when resumed.
    shapes_alone = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), x.dtype), arguments)
    traced = jax.make_jaxpr(call)(*shapes_alone)
    # Addresses of Python functions stand in the text and differ from process to process.
    text = re.sub(r"0x[0-9a-f]+", "", f"{traced.jaxpr} in blocks of {block_size}")
    shapes = str(jax.tree.map(lambda leaf: (np.shape(leaf), str(leaf.dtype)), state))
    return {
        "algorithm": _digest([np.frombuffer(text.encode(), np.uint8), _leaves(traced.consts)]),
        "shapes": hashlib.sha256(shapes.encode()).hexdigest(),
        "start": _digest(_leaves((key, state))),
        "data": _digest(_leaves(data)),
    }


_MEANING = {
    "algorithm": "another algorithm, model or setting",
    "shapes": "other shapes of theta or particles",
    "start": "another key or another start",
    "data": "other data",
}


def _check_same_run(directory: Path, note: dict[str, Any], prints: dict[str, str]) -> None:
    # In this order: where shapes differ everything does, and the key is part of what is traced.
    for part in ("shapes", "data", "start", "algorithm"):
        if note["prints"][part] != prints[part]:
            version = "" if note["jax"] == jax.__version__ else f" (written with jax {note['jax']})"
            raise CheckpointError(
                f"The checkpoint folder {directory} holds a run with {_MEANING[part]}{version}. "
                "Resume with exactly what that run was started with, or choose another folder."
            )


def _pass_over(manager: Any, step: int, error: Exception) -> None:
    first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
    warnings.warn(
        f"The checkpoint at step {step} is damaged and was passed over ({first_line}).",
        stacklevel=4,
    )
    manager.delete(step)  # the run will come to this step again and save it anew


def _write_error(directory: Path, error: Exception) -> CheckpointError:
    text = str(error)
    if "No space left" in text:
        text = "no space is left on the device."
    elif len(text) > 200:
        text = f"{text[:200]} ..."
    return CheckpointError(f"The checkpoint could not be written to {directory}: {text}")


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _is_shared(leaf: Any) -> bool:
    """Whether parts of it are on the devices of other processes."""
    return isinstance(leaf, jax.Array) and not leaf.is_fully_addressable


def _leaves(tree: PyTree) -> dict[str, Any]:
    """NumPy arrays in a plain dict, typed keys as their data: any orbax can write that.

    Arrays that several processes share stay as they are: each process writes its own part.
    """

    def plain(leaf: Any) -> Any:
        leaf = jax.random.key_data(leaf) if _is_key(leaf) else leaf
        return leaf if _is_shared(leaf) else np.asarray(leaf)

    return {f"{i:04d}": plain(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}


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
        if _is_key(template):
            return jax.random.wrap_key_data(jnp.asarray(leaf), impl=jax.random.key_impl(template))
        if not isinstance(template, jax.Array):
            return np.asarray(leaf)
        # Not committed to a device unless it was before: jit may then move it.
        spread = template.committed and not _is_shared(leaf)
        return jax.device_put(leaf, template.sharding) if spread else jnp.asarray(leaf)

    ordered = [leaves[name] for name in sorted(leaves)]
    return jax.tree.unflatten(structure, map(device, ordered, templates))


def _digest(tree: PyTree) -> str:
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        array = np.ascontiguousarray(whole(leaf))  # one at a time: all of it may be large
        digest.update(f"{array.shape}{array.dtype}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
