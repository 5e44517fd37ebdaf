"""Compiled programs on disk: where, whose, and that nothing wrong with them fails a run."""

import errno
import os
import subprocess
import sys
import zlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

import marginax as mx
from marginax._core import disk_cache, executables
from marginax._core.disk_cache import cache_folder, cache_size, clear_cache, kept_on_disk
from marginax.cli.about import clear_compiled

pytestmark = pytest.mark.filterwarnings("error")
OPTIONS = (disk_cache.FOLDER, disk_cache.THRESHOLD)


@pytest.fixture(autouse=True)
def as_in_a_new_process(monkeypatch):
    """JAX as users have it: tests have a cache of their own, which would win."""
    before = {name: getattr(jax.config, name) for name in OPTIONS}
    jax.config.update(disk_cache.FOLDER, None)
    jax.config.update(disk_cache.THRESHOLD, disk_cache.USUAL_THRESHOLD)
    monkeypatch.delenv(disk_cache.VARIABLE, raising=False)
    monkeypatch.setattr(disk_cache, "_chosen", [])
    monkeypatch.setattr(disk_cache, "_tidied", set())
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def log_joint(theta, x, y):
    return -0.5 * jnp.sum((x - theta) ** 2 + (y - x) ** 2)


def run():
    """A small run, compiled anew."""
    jax.clear_caches()
    ran = mx.run(
        mx.pgd(log_joint, 0.1, 0.1),
        0.0,
        jnp.zeros((3, 2)),
        jnp.ones(2),
        max_steps=3,
        key=jax.random.key(0),
        diagnose=False,
    )
    return np.asarray(ran.theta)


def loop_of(folder):
    """The entry of the run's own loop, the largest."""
    return max(folder.glob("*-cache"), key=lambda one: one.stat().st_size)


def modified(folder):
    return {one.name: one.stat().st_mtime_ns for one in folder.glob("*-cache")}


def test_a_run_keeps_its_programs_and_finds_them_again(tmp_path):
    folder = tmp_path / "here"
    mx.configure(cache=folder)
    first = run()
    assert folder.stat().st_mode & 0o777 == 0o700
    kept = modified(folder)
    assert any("advance" in name for name in kept)
    np.testing.assert_array_equal(run(), first)
    assert modified(folder) == kept


def test_options_of_jax_are_given_back(tmp_path):
    mx.configure(cache=tmp_path)
    with kept_on_disk():
        with kept_on_disk():
            assert jax.config.jax_compilation_cache_dir == str(tmp_path)
        assert jax.config.jax_persistent_cache_min_compile_time_secs == 0.0
    assert jax.config.jax_compilation_cache_dir is None
    assert jax.config.jax_persistent_cache_min_compile_time_secs == 1.0
    # A program of the user's own, outside, is not kept.
    size = cache_size(tmp_path)
    jax.jit(lambda x: x * 17)(jnp.ones(3)).block_until_ready()
    assert cache_size(tmp_path) == size


def test_options_of_jax_that_are_set_win(tmp_path):
    mx.configure(cache=tmp_path / "ours")
    jax.config.update(disk_cache.FOLDER, str(tmp_path / "theirs"))
    assert cache_folder() == tmp_path / "theirs"
    with kept_on_disk():
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / "theirs")
        assert jax.config.jax_persistent_cache_min_compile_time_secs == 1.0
    assert not (tmp_path / "ours").exists()


def test_a_threshold_that_is_set_wins(tmp_path):
    mx.configure(cache=tmp_path)
    jax.config.update(disk_cache.THRESHOLD, 0.3)
    with kept_on_disk():
        assert jax.config.jax_persistent_cache_min_compile_time_secs == 0.3


@pytest.mark.parametrize("word", ["off", "0", ""])
def test_switched_off_by_the_environment(monkeypatch, word):
    monkeypatch.setenv(disk_cache.VARIABLE, word)
    assert cache_folder() is None
    with kept_on_disk():
        assert jax.config.jax_compilation_cache_dir is None


def test_switched_off_and_on_in_python(monkeypatch, tmp_path):
    monkeypatch.setenv(disk_cache.VARIABLE, str(tmp_path))
    assert cache_folder() == tmp_path
    mx.configure(cache=None)
    assert cache_folder() is None
    mx.configure(cache=str(tmp_path / "other"))
    assert cache_folder() == tmp_path / "other"


def test_the_users_cache_folder_is_the_usual_one(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if sys.platform == "linux":
        assert cache_folder().parent == tmp_path / "marginax" / "compiled"
    monkeypatch.setattr(disk_cache.sys, "platform", "darwin")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert tmp_path / "Library" / "Caches" / "marginax" in cache_folder().parents


def test_no_home_at_all(monkeypatch):
    def nobody():
        raise RuntimeError("no home")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nobody)
    assert cache_folder() is None
    run()


def test_what_others_keep_is_not_cleared(tmp_path):
    entry = tmp_path / "jit_theirs-0-cache"
    entry.write_bytes(b"theirs")
    jax.config.update(disk_cache.FOLDER, str(tmp_path))
    assert clear_compiled().startswith("Nothing was removed")
    assert entry.exists()
    jax.config.update(disk_cache.FOLDER, None)
    mx.configure(cache=tmp_path)
    assert clear_compiled().startswith("Removed 1 programs")
    assert not entry.exists()


# Whose a folder is.


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no users here")
def test_another_users_folder_is_not_written_to(monkeypatch, tmp_path):
    mx.configure(cache=tmp_path)
    owner = os.geteuid()
    monkeypatch.setattr(disk_cache.os, "geteuid", lambda: owner + 1)
    run()
    assert list(tmp_path.iterdir()) == []


def test_nor_one_that_others_may_write_to(tmp_path):
    tmp_path.chmod(0o777)
    mx.configure(cache=tmp_path)
    run()
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_its_place(tmp_path):
    (tmp_path / "file").write_text("")
    for place in ("file", "file/below"):
        mx.configure(cache=tmp_path / place)
        run()


# What may be wrong with its entries.


def test_a_folder_that_cannot_be_written_to(monkeypatch, tmp_path):
    def refuse(*_):
        raise OSError(errno.EROFS, "Read-only file system")

    from jax._src import lru_cache  # to root every folder is writable

    mx.configure(cache=tmp_path)
    monkeypatch.setattr(lru_cache.LRUCache, "put", refuse)
    monkeypatch.setattr(executables, "write_atomically", refuse)
    monkeypatch.setattr(Path, "touch", refuse)
    run()
    assert list(tmp_path.iterdir()) == []


def test_a_truncated_entry_is_compiled_and_written_again(tmp_path):
    """A process was killed while it wrote; JAX warns of the entry for ever after."""
    mx.configure(cache=tmp_path)
    first = run()
    entry = loop_of(tmp_path)
    whole = entry.read_bytes()
    entry.write_bytes(whole[: len(whole) // 2])
    disk_cache._tidied.clear()  # as in another process
    np.testing.assert_array_equal(run(), first)
    assert len(entry.read_bytes()) > len(whole) // 2


def test_a_foreign_entry_is_skipped(tmp_path):
    mx.configure(cache=tmp_path)
    first = run()
    loop_of(tmp_path).write_bytes(zlib.compress(b"another program, in another format"))
    np.testing.assert_array_equal(run(), first)


def test_entries_of_another_version_are_not_found(monkeypatch, tmp_path):
    from jax._src import cache_key  # no public way to pretend

    mx.configure(cache=tmp_path)
    first = run()
    kept = modified(tmp_path)
    monkeypatch.setattr(cache_key, "jaxlib_version_str", "0.0.1")
    np.testing.assert_array_equal(run(), first)
    assert len(modified(tmp_path)) == 2 * len(kept)


def test_the_oldest_go_when_there_are_too_many(monkeypatch, tmp_path):
    monkeypatch.setattr(disk_cache, "MOST_BYTES", 5_000)
    monkeypatch.setattr(disk_cache, "LEFT_BYTES", 3_000)
    for i in range(7):
        entry = tmp_path / f"jit_f-{i}-cache"
        entry.write_bytes(zlib.compress(np.random.default_rng(i).bytes(980)))
        os.utime(entry, (1_000.0 + i, 1_000.0 + i))
    (tmp_path / "mine.txt").write_text("not a program")
    mx.configure(cache=tmp_path)
    with kept_on_disk():
        left = {one.name for one in tmp_path.glob("*-cache")}
    assert left == {"jit_f-4-cache", "jit_f-5-cache", "jit_f-6-cache"}
    assert clear_cache(tmp_path)[0] == 3
    assert (tmp_path / "mine.txt").exists()


IN_A_PROCESS = """
import sys, warnings
warnings.simplefilter("error")
if len(sys.argv) > 1:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
import jax, jax.numpy as jnp, marginax as mx
from jax.scipy.stats import norm

def log_joint(theta, x, y):
    return norm.logpdf(x, theta["m"], 1.0) + jnp.sum(norm.logpdf(y, x, 1.0))

problem = mx.Problem.grouped(log_joint, jnp.arange(6.0).reshape(3, 2), theta={"m": 0.0}, latent=0.0)
fit = mx.fit(problem, num_starts=1, draw_posterior=False)
print(round(float(fit.theta["m"]), 3), fit.ok)
"""


def start(script, folder, *arguments):
    hidden = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment[disk_cache.VARIABLE] = str(folder)
    return subprocess.Popen(
        [sys.executable, str(script), *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits as Linux has them")
def test_fits_on_a_full_disk_and_two_at_once(tmp_path):
    script, folder = tmp_path / "script.py", tmp_path / "compiled"
    script.write_text(IN_A_PROCESS)
    full = start(script, folder, "2000")  # no file may have more bytes
    assert full.communicate(timeout=120) == ("2.5 True\n", ""), "on a full disk"
    both = [start(script, folder) for _ in range(2)]
    for one in both:
        assert one.communicate(timeout=240) == ("2.5 True\n", ""), "two at once"
    kept = modified(folder)
    again = start(script, folder)
    assert again.communicate(timeout=120) == ("2.5 True\n", ""), "from what they kept"
    assert modified(folder) == kept
