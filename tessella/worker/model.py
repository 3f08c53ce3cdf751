"""The model that a node serves, as its operator chose it: one set of files, however it is cut."""

from __future__ import annotations

from dataclasses import dataclass

from p2p.peers import Host
from tessella.core.contracts import contract_of
from tessella.core.errors import BadConfig, BadWeights
from tessella.core.messages import Register
from tessella.core.shape_json import encode_shape
from tessella.core.shapes import DType
from tessella.engine.chat_template import MAX_TEMPLATE_CHARS
from tessella.engine.checkpoint import Checkpoint
from tessella.engine.device import Device, pick_device, serving_dtype
from tessella.engine.recompute import weights_of
from tessella.engine.shard import Shard
from tessella.engine.tokenizer import Tokenizer
from tessella.worker.audits.canary import CanaryMode
from tessella.worker.config import WorkerConfig
from tessella.worker.terms import Served


@dataclass(frozen=True, slots=True)
class Model:
    """What all shards of a node have in common. The checkpoint is the caller's, to close."""

    config: WorkerConfig
    checkpoint: Checkpoint
    device: Device
    dtype: DType

    @classmethod
    def of(cls, config: WorkerConfig, checkpoint: Checkpoint) -> Model:
        """The model on the device and in the element type that the operator asks for."""
        device = pick_device(config.device)
        stored = (info.stored for info in checkpoint.tensors.values())
        return cls(config, checkpoint, device, config.dtype or serving_dtype(device, stored))

    @property
    def context(self) -> int:
        """Positions that one session may hold."""
        return min(self.config.context, self.checkpoint.shape.context)

    def registration(self, host: Host, api_url: str) -> Register:
        """What a node of this model joins with; `api_url` is empty where it has none."""
        return Register(
            model=self.config.model,
            contract=contract_of(self.checkpoint.shape),
            shape=encode_shape(self.checkpoint.shape),
            addrs=host.address.addrs,
            claim_mb=self.config.claim_mb,
            device=self.device.value,
            dtype=self.dtype.value,
            context=self.context,
            slots=self.config.slots,
            kv=self.dtype.value,
            api_url=api_url,
            wanted=self.config.layers,
            weights=weights_of(self.checkpoint, self.checkpoint.shape.whole),
            canary=CanaryMode(self.config.canary_mode).is_listed,
        )

    def served(self, shard: Shard) -> Served:
        """What a node with this shard serves."""
        return Served(
            model=self.config.model,
            contract=contract_of(self.checkpoint.shape),
            context=self.context,
            slots=self.config.slots,
            shard=shard,
        )

    def tokenizer(self) -> Tokenizer:
        """The checkpoint's, with the operator's chat template in place of its own where he has one.

        Raises BadConfig that names the template, and what reading the tokenizer raises.
        """
        tokenizer, path = self.checkpoint.tokenizer(), self.config.chat_template
        if path is None:
            return tokenizer
        try:
            with path.expanduser().open(encoding="utf-8") as file:
                source = file.read(MAX_TEMPLATE_CHARS + 1)
            return tokenizer.with_template(source)
        except (OSError, UnicodeDecodeError, BadWeights) as exc:
            raise BadConfig(f"chat_template: {path}: {exc}") from exc
