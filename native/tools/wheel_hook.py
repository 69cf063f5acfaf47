"""Put a prebuilt library into the wheel; ``make wheel`` turns this hook of hatchling on."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PrebuiltLibrary(BuildHookInterface):
    """Add the files of the folder ``CASSANDRA_PREBUILT``; the wheel is then for one platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the files and the platform."""
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"
        for path in Path(os.environ["CASSANDRA_PREBUILT"]).iterdir():
            place = f"cassandra_spec/native/prebuilt/{path.name}"
            build_data["force_include"][str(path)] = place
