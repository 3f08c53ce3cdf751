"""The model that a node is to serve, on this machine before the node begins."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from tessella.catalogue import CATALOGUE, LocalModel, is_hub_name
from tessella.cli.hub import ENDPOINT_VARIABLE
from tessella.cli.pull import obtain
from tessella.core.errors import UnknownModel
from tessella.worker.settings import NodeSettings, find_weights, missing

Say = Callable[[str], None]
Obtain = Callable[[str, Say], Awaitable[LocalModel]]


async def fetch_model(settings: NodeSettings, say: Say, obtain: Obtain = obtain) -> None:
    """Fetch what the settings name, if it is not here and there is somewhere to fetch it from.

    What is a path, or is known nowhere, is left for whoever opens it to name. Raises
    DownloadFailed, UnknownModel for what the hub does not have or does not show, BadConfig,
    BadWeights.
    """
    wanted = settings.worker.weights or settings.mesh.default_model
    if missing(settings) or wanted is None or not (wanted in CATALOGUE or is_hub_name(wanted)):
        return
    try:
        find_weights(settings)
    except UnknownModel:
        if settings.worker.hub is not None:
            os.environ[ENDPOINT_VARIABLE] = settings.worker.hub
        await obtain(wanted, say)
