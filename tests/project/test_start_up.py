"""What an import costs."""

import subprocess
import sys

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
