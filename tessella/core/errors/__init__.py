"""Every error this project raises on purpose, sorted by whose fault it is.

    TessellaError
      LocalError            we broke a rule of our own: a bug here            500  do not retry
        NotFinite           our own layers produced NaN or Inf
      InputError            an operator or a user gave something unusable      400  do not retry
        BadAddress          a multiaddr or host:port that cannot be used
        BadConfig           a key, flag or environment value out of its rule
        BadKey              an identity file that cannot be read or written
        BadRequest          a request that breaks its own rules
          ContextTooLong    the prompt and the answer do not fit the context   400
          InputTooLong      a prompt over the ceiling that this node publishes 413
          UnsupportedField  a field that cannot be honoured here
        BadWeights          a weights file that is missing, torn or inconsistent
        UnsupportedModel    an architecture, rope or quantisation we do not have
        UnknownModel        a name that nobody here has                        404
        PortInUse           an address that another program listens on              try again later
      RemoteError           the peer broke a rule: close it                    400  do not retry
        BadFrame            bytes that are not a frame of this protocol
          FrameTooLarge     a length above the cap, refused before it is read  413
        BodyTooLarge        an HTTP body above the cap of its route            413
        BadTensor           a tensor whose dtype, shape, size or values lie
        BadSignature        a signature that does not cover these bytes        401
        StaleRecord         a record signed for another time than this         410
        OutOfTurn           a message that may not come now
        PositionGap         a position beyond the KV held                      409
        BadLedger           a ledger with a broken chain, or another head      409
      Refused               understood, and the answer is no                   409  do not retry
        ClaimTooSmall       the claim holds no layer of that model
        BadManifest         weights that are not the ones this mesh serves     400
        AddressUnproven     nobody with that key answers at a claimed address  400
        ClockSkew           a call signed too long ago, or in the future       401
        CallReplayed        a call whose nonce was used before                 401
        AdminOnly           an operator's call without the admin token         401
        NotAuthorized       the peer is not one this call is for               403
          WorkerNotAuthorized  the mesh's policy does not let it in
        UnknownWorker       the tracker has no such node: it should register   404
        UnknownManifest     no manifest of that model is known here            404
        UnknownRoute        nothing is answered under that name                404
        UnknownEntry        the ledger has no entry there                      404
        BadTicket           a ticket that does not cover what is asked of it   403
          ForeignTicket     of a musivum that this mesh does not know
          TicketExpired     out of its time
          TicketUsed        by another session
        BadProof            a proof that its ticket does not bear out          400
          ProofConflict     a second one where a worker may make one           409
          Unattested        of other rows than its worker vouched for          409
      Busy                  nobody's fault, we are full                        503  wait, retry here
        TooManySessions     the session, stream or KV quota is in use
        OutOfMemory         the device has no memory left for this session
        TooManyHopBodies    as many hop bodies are read as can be
        TooManyRequests     asked faster than is answered                      429
        StoreUnavailable    what has to outlive a restart cannot be kept now
        ModelUnavailable    the mesh has a hole, or is still loading
      StoreLost             the database failed us, and the program ends       500  do not retry
      PeerGone              the other end went away                            502  retry elsewhere
        PeerClosed          it finished, or the connection ended
        PeerReset           it gave the stream up
        PeerSilent          it stopped making progress
        PeerUnreachable     no address of it answered
      RemoteFailure         a peer reported an error by its code               502

A peer is told `code` and `told()`, never the text of a bug of ours.
"""

from __future__ import annotations

from tessella.core.errors.full import (
    Busy,
    ModelUnavailable,
    OutOfMemory,
    StoreUnavailable,
    TooManyHopBodies,
    TooManyRequests,
    TooManySessions,
)
from tessella.core.errors.gone import (
    PeerClosed,
    PeerGone,
    PeerReset,
    PeerSilent,
    PeerUnreachable,
    RemoteFailure,
)
from tessella.core.errors.inputs import (
    BadAddress,
    BadConfig,
    BadKey,
    BadRequest,
    BadWeights,
    ContextTooLong,
    InputError,
    InputTooLong,
    PortInUse,
    UnknownModel,
    UnsupportedField,
    UnsupportedModel,
)
from tessella.core.errors.refusals import (
    AddressUnproven,
    AdminOnly,
    BadManifest,
    BadProof,
    BadTicket,
    CallReplayed,
    ClaimTooSmall,
    ClockSkew,
    ForeignTicket,
    NotAuthorized,
    ProofConflict,
    Refused,
    TicketExpired,
    TicketUsed,
    Unattested,
    UnknownEntry,
    UnknownManifest,
    UnknownRoute,
    UnknownWorker,
    WorkerNotAuthorized,
)
from tessella.core.errors.remote import (
    BadFrame,
    BadLedger,
    BadSignature,
    BadTensor,
    BodyTooLarge,
    FrameTooLarge,
    OutOfTurn,
    PositionGap,
    RemoteError,
    StaleRecord,
)
from tessella.core.errors.roots import (
    LocalError,
    NotFinite,
    StoreLost,
    TessellaError,
)

__all__ = [
    "AddressUnproven",
    "AdminOnly",
    "BadAddress",
    "BadConfig",
    "BadFrame",
    "BadKey",
    "BadLedger",
    "BadManifest",
    "BadProof",
    "BadRequest",
    "BadSignature",
    "BadTensor",
    "BadTicket",
    "BadWeights",
    "BodyTooLarge",
    "Busy",
    "CallReplayed",
    "ClaimTooSmall",
    "ClockSkew",
    "ContextTooLong",
    "ForeignTicket",
    "FrameTooLarge",
    "InputError",
    "InputTooLong",
    "LocalError",
    "ModelUnavailable",
    "NotAuthorized",
    "NotFinite",
    "OutOfMemory",
    "OutOfTurn",
    "PeerClosed",
    "PeerGone",
    "PeerReset",
    "PeerSilent",
    "PeerUnreachable",
    "PortInUse",
    "PositionGap",
    "ProofConflict",
    "Refused",
    "RemoteError",
    "RemoteFailure",
    "StaleRecord",
    "StoreLost",
    "StoreUnavailable",
    "TessellaError",
    "TicketExpired",
    "TicketUsed",
    "TooManyHopBodies",
    "TooManyRequests",
    "TooManySessions",
    "Unattested",
    "UnknownEntry",
    "UnknownManifest",
    "UnknownModel",
    "UnknownRoute",
    "UnknownWorker",
    "UnsupportedField",
    "UnsupportedModel",
    "WorkerNotAuthorized",
]
