"""What the node shall do: a model, a device, a claim, and in the swarm the layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessella.catalogue import DEFAULT_MODEL
from tessella.cli.wizard.bodies import MAX_NAME_CHARS, is_name
from tessella.cli.wizard.claims import preview_text, proposal_text, propose_claim, read_claim
from tessella.cli.wizard.machine import Machine, read_device
from tessella.cli.wizard.meshes import Mesh
from tessella.cli.wizard.offers import Offer, offers_table
from tessella.cli.wizard.talk import Talk, ask_for, ask_yes, sentence
from tessella.core.errors import BadConfig, ClaimTooSmall, TessellaError
from tessella.core.layers import LayerRange

BACK = "back"


@dataclass(frozen=True, slots=True)
class Work:
    """What was chosen."""

    model: str
    device: str
    claim_mb: int
    layers: str
    """START:STOP; empty where the orchestrator assigns them."""


def ask_work(talk: Talk, mesh: Mesh, machine: Machine) -> Work:
    """Ask for model, device and claim, until a claim is taken."""
    while True:
        model = _ask_model(talk, mesh)
        device = _ask_device(talk, machine)
        offer = _offer(talk, mesh, model, device)
        layers = _ask_layers(talk, offer) if mesh.orchestrator.is_swarm else ""
        claim = _ask_claim(talk, mesh, offer, device, machine.memory_mb(device))
        if claim is not None:
            return Work(model, device, claim, layers)


def default_model(offers: Sequence[Offer]) -> str:
    """The first model that lacks a node, else the first; the catalogue's where there is none."""
    lacking = [offer.model for offer in offers if offer.need]
    return next(iter([*lacking, *(offer.model for offer in offers)]), DEFAULT_MODEL)


def read_model(text: str, offers: Sequence[Offer]) -> str:
    """The model of a row by its number, or any name. Raises BadConfig."""
    if text.isdecimal() and text.isascii():
        if not 1 <= int(text[:6]) <= len(offers):
            raise BadConfig(f"there is no row {text} above")
        return offers[int(text) - 1].model
    if not is_name(text):
        raise BadConfig(
            f"a model is a row above, or a name of 1 to {MAX_NAME_CHARS} characters without blanks"
        )
    return text


def _ask_model(talk: Talk, mesh: Mesh) -> str:
    talk.title("Model")
    if mesh.offers:
        talk.show(offers_table(mesh.offers))
        talk.say("A number, or the name of another model: one that nobody serves yet.")
    else:
        where = "is known to be served there" if mesh.door is None else "is served there yet"
        talk.say(f"No model {where}: name the one that this node begins with.")

    def read(text: str) -> str:
        return read_model(text, mesh.offers)

    return ask_for(talk, "Model", read, default_model(mesh.offers))


def _ask_device(talk: Talk, machine: Machine) -> str:
    talk.title("Memory")

    def read(text: str) -> str:
        return read_device(text, machine.devices)

    return ask_for(talk, "Device: cuda, metal or cpu", read, machine.devices[0])


def _offer(talk: Talk, mesh: Mesh, model: str, device: str) -> Offer:
    """The model as it is now, priced for the device; as far as anybody says."""
    listed = next((one for one in mesh.offers if one.model == model), Offer(model=model))
    if mesh.door is None:
        return listed
    try:
        return mesh.door.offer(model, device)
    except TessellaError as exc:
        talk.say(f"What it needs is not known: {exc}.")
        return listed


def _ask_layers(talk: Talk, offer: Offer) -> str:
    talk.say(
        "In the swarm nobody assigns layers: say which this node holds, from START up to STOP."
    )

    def read(text: str) -> str:
        try:
            return str(LayerRange.parse(text))
        except ValueError as exc:
            raise BadConfig(str(exc)) from None

    return ask_for(talk, "Layers", read, str(offer.need.layers) if offer.need else "")


def _ask_claim(
    talk: Talk, mesh: Mesh, offer: Offer, device: str, memory_mb: int | None
) -> int | None:
    """A claim that was shown what it gets, and taken; None for another model."""
    talk.say(proposal_text(offer, device, memory_mb))
    default = str(propose_claim(offer, memory_mb))
    while True:
        text = talk.ask(f"Claim in MB (`{BACK}`: another model)", default)
        if text.lower() == BACK:
            return None
        try:
            claim = _checked(read_claim(text), offer)
            told = _what_it_gets(mesh, offer.model, claim, device)
        except (BadConfig, ClaimTooSmall) as exc:
            talk.say(sentence(exc))
            continue
        if memory_mb is not None and claim > memory_mb:
            told = f"That is more than the {memory_mb} MB that are free. {told}"
        talk.say(told)
        if ask_yes(talk, "Take it", default=memory_mb is None or claim <= memory_mb):
            return claim


def _checked(claim_mb: int, offer: Offer) -> int:
    if claim_mb < offer.floor_mb:
        raise ClaimTooSmall(f"no claim of this mesh is below {offer.floor_mb} MB")
    return claim_mb


def _what_it_gets(mesh: Mesh, model: str, claim_mb: int, device: str) -> str:
    """In a sentence. Raises ClaimTooSmall."""
    if mesh.orchestrator.is_swarm:
        return f"`tessella-worker plan --model {model}` tells what layers take."
    if mesh.door is None:
        return "What it gets is said when the node registers."
    try:
        preview = mesh.door.preview(model, claim_mb, device)
    except ClaimTooSmall:
        raise
    except TessellaError as exc:
        return f"What it would get is not known: {exc}."
    if preview is None:
        return (
            f"Nobody serves {model} yet: a claim gets layers from 0 on, as far as it goes. "
            "`tessella-worker plan` counts them once the weights are here."
        )
    return preview_text(claim_mb, preview)
