"""Understood, and the answer is no."""

from __future__ import annotations

from tessella.core.errors.roots import TessellaError


class Refused(TessellaError):
    """The call was understood, and the answer is no."""

    code = "refused"
    status = 409


class ClaimTooSmall(Refused):
    """The claim cannot hold a single layer of that model."""

    code = "claim_too_small"


class BadManifest(Refused):
    """Weights that are not the ones this mesh serves under that name."""

    code = "bad_manifest"
    status = 400


class AddressUnproven(Refused):
    """Nobody with that key answers at a claimed address."""

    code = "address_unproven"
    status = 400


class ClockSkew(Refused):
    """A call signed too long ago, or in the future, by the clock of whoever reads it."""

    code = "clock_skew"
    status = 401


class CallReplayed(Refused):
    """A call whose nonce was used before."""

    code = "call_replayed"
    status = 401


class AdminOnly(Refused):
    """An operator's call without the admin token."""

    code = "admin_only"
    status = 401


class NotAuthorized(Refused):
    """The peer is not one this call is for."""

    code = "not_authorized"
    status = 403


class WorkerNotAuthorized(NotAuthorized):
    """The mesh's policy, its allow-list or its blacklist, does not let the peer in."""

    code = "worker_not_authorized"


class UnknownWorker(Refused):
    """The tracker has no such node, perhaps because it was started again: register first."""

    code = "unknown_worker"
    status = 404


class UnknownManifest(Refused):
    """No manifest of that model is known here."""

    code = "unknown_manifest"
    status = 404


class UnknownRoute(Refused):
    """Nothing is answered under that name."""

    code = "unknown_route"
    status = 404


class BadTicket(Refused):
    """A ticket that does not cover what is asked of it."""

    code = "bad_ticket"
    status = 403


class ForeignTicket(BadTicket):
    """A ticket of a musivum that this mesh does not know."""

    code = "foreign_ticket"


class TicketExpired(BadTicket):
    """A ticket out of its time."""

    code = "ticket_expired"


class TicketUsed(BadTicket):
    """A ticket that another session used."""

    code = "ticket_used"


class BadProof(Refused):
    """A proof that says what its ticket, or its own signature, does not bear out."""

    code = "bad_proof"
    status = 400


class ProofConflict(BadProof):
    """A second, different proof where one worker may make one."""

    code = "proof_conflict"
    status = 409


class Unattested(BadProof):
    """A proof of other rows than its worker vouched for."""

    code = "unattested"
    status = 409


class UnknownEntry(Refused):
    """The ledger has no entry there."""

    code = "unknown_entry"
    status = 404
