"""js-libp2p, which shares no line with us, takes part in the swarm by what docs/wire.md says."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trio

# Defined beside this file; pytest hands out the fixtures, and these are its constants.
MODEL = "toy"
LAYERS = [0, 2]
SOURCE = Path(__file__).with_name("js")
INSTALL_SECONDS = 180.0
PEER_SECONDS = 60.0
# What npm says when there is no way to the registry.
OFFLINE = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "network")

pytestmark = [pytest.mark.mesh, pytest.mark.interop, pytest.mark.timeout(300)]
