"""NumPyro models as problems, and fits back as what NumPyro takes."""

from marginax.interop.numpyro.bridge import NumPyroFit, from_numpyro, to_numpyro

__all__ = ["NumPyroFit", "from_numpyro", "to_numpyro"]
