"""What PyPI is told: README with links that work there, and where the project lives.

README links to files of the repository, as a reader of a clone needs it. On PyPI they would lead
nowhere, so the built package has them as addresses of the released version. The address is set in
one place, `[tool.hatch.metadata.hooks.custom]` of pyproject.toml.
"""

import re
from pathlib import Path
from typing import Any

try:
    from hatchling.metadata.plugin.interface import MetadataHookInterface
except ImportError:  # tests read this file where nothing is built
    MetadataHookInterface = object

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)")


def absolute(readme: str, address: str, version: str) -> str:
    """README with every link to a file as an address; of pictures, that of the picture itself."""

    def replace(link: re.Match[str]) -> str:
        is_picture, words, path = link.groups()
        kind = "raw" if is_picture else "blob"
        return f"{is_picture}[{words}]({address}/{kind}/v{version}/{path})"

    return LINK.sub(replace, readme)


class PyPI(MetadataHookInterface):  # type: ignore[misc]
    """Called by hatchling when a wheel or a source archive is made."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Sets the fields that pyproject.toml calls dynamic."""
        root, address = Path(self.root), self.config["address"]
        source = (root / "src" / "marginax" / "_version.py").read_text(encoding="utf-8")
        version = re.search(r'__version__ = "(.+)"', source)
        if version is None:
            raise ValueError("src/marginax/_version.py has no line `__version__ = ...`.")
        text = absolute((root / "README.md").read_text(encoding="utf-8"), address, version[1])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = {
            "Repository": address,
            "Documentation": f"{address}/blob/v{version[1]}/docs/index.md",
            "Changelog": f"{address}/blob/v{version[1]}/CHANGELOG.md",
            "Issues": f"{address}/issues",
        }
