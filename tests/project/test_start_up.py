"""What an import costs, and where compiled programs are kept."""

import subprocess
import sys
from pathlib import Path

import jax

from marginax.cli.about import keep_compiled, where_compiled

SLOW = (
    "scipy.stats",
    "scipy.special",
    "matplotlib",
    "arviz",
    "numpyro",
    "blackjax",
    "orbax",
    "rich",
)


def test_import_loads_no_extra():
    code = f"import sys, marginax; print([m for m in {SLOW!r} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_help_imports_no_more_than_the_package_and_its_shell():
    # It imported the paper's experiments, and took more than a second longer.
    code = (
        "import sys; from marginax.cli.app import app; app(['--help'], standalone_mode=False); "
        "print('marginax.reproduction' in sys.modules, 'matplotlib' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "False False"


def test_compiled_programs_go_to_the_users_cache(monkeypatch, tmp_path):
    before = jax.config.jax_compilation_cache_dir
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        assert where_compiled() == Path(before)  # JAX's own setting comes first
        jax.config.update("jax_compilation_cache_dir", None)
        keep_compiled()
        assert Path(jax.config.jax_compilation_cache_dir) == tmp_path / "marginax" / "compiled"
        assert where_compiled().is_dir()
        jax.config.update("jax_compilation_cache_dir", None)
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        keep_compiled()  # nowhere to write: nothing is kept, and nothing fails
        assert jax.config.jax_compilation_cache_dir is None
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
