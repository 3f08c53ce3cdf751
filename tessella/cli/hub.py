"""Fetch a model from the HuggingFace hub: only what a checkpoint directory needs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

import trio

from tessella.catalogue import LocalModel, place_of
from tessella.cli.extras import worker_extra
from tessella.cli.failure import DownloadFailed
from tessella.core.errors import BadConfig, BadWeights, UnknownModel
from tessella.core.ids import ModelId
from tessella.worker.settings.reading import TOKEN_VARIABLE

WANTED = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "*.safetensors",
    "*.safetensors.index.json",
)
ENDPOINT_VARIABLE = "HF_ENDPOINT"


async def pull_from_hub(name: str, say: Callable[[str], None]) -> LocalModel:
    """Fetch `org/name` into the models directory; one that is there is taken as it is.

    A fetch that broke off goes on where it was. Raises UnknownModel, DownloadFailed, BadWeights
    for a model without safetensors.
    """
    place = place_of(name)
    if not place.exists():
        say(f"fetching {name} from the HuggingFace hub")
        await trio.to_thread.run_sync(_fetch, name, place)
    return LocalModel(ModelId(name), place)


def _fetch(name: str, place: Path) -> None:
    with worker_extra():
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import (
            GatedRepoError,
            HfHubHTTPError,
            LocalEntryNotFoundError,
        )
        from huggingface_hub.errors import RepositoryNotFoundError as NotFound

    draft = place.with_name(f".{place.name}.part")
    try:
        snapshot_download(
            name,
            local_dir=draft,
            allow_patterns=list(WANTED),
            endpoint=os.environ.get(ENDPOINT_VARIABLE) or None,
        )
    except GatedRepoError as exc:
        raise UnknownModel(
            f"{name} is gated: ask for access on its page at the hub, and set {TOKEN_VARIABLE}"
        ) from exc
    except NotFound as exc:
        raise UnknownModel(
            f"the hub has no model {name!r} that we may read; a private one needs {TOKEN_VARIABLE}"
        ) from exc
    except (HfHubHTTPError, LocalEntryNotFoundError) as exc:
        answered = getattr(exc, "response", None)
        if answered is not None and answered.status_code == HTTPStatus.UNAUTHORIZED:
            raise BadConfig(f"{TOKEN_VARIABLE}: the hub does not know this token") from exc
        raise DownloadFailed(f"the hub did not give {name}: {exc}") from exc
    except OSError as exc:
        raise BadConfig(f"cannot write {place}: {exc.strerror or exc}") from exc
    if not (draft / "config.json").exists() or not list(draft.glob("*.safetensors")):
        raise BadWeights(f"{name} on the hub has no config.json with safetensors")
    shutil.rmtree(draft / ".cache", ignore_errors=True)
    draft.rename(place)
