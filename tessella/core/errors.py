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
      Busy                  nobody's fault, we are full                        503  wait, retry here
        TooManySessions     the session, stream or KV quota is in use
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


class TessellaError(Exception):
    """The root. Raise a leaf."""

    code = "error"
    status = 500
    retry = False

    def told(self) -> str:
        """The sentence that may leave this machine: our own words about the other's input."""
        return str(self)


class LocalError(TessellaError):
    """We broke a rule of our own. Anything that reaches a user through this is a bug here."""

    code = "internal_error"

    def told(self) -> str:
        """Nothing: the details of our bugs stay in our log."""
        return "an internal error; the log of this node has it"


class NotFinite(LocalError):
    """Our own layers produced NaN or Inf: said before it is sent, so no peer is blamed for it."""

    code = "not_finite"

    def told(self) -> str:
        """That it happened: no secret, and no reason to retry the same prompt here."""
        return str(self)


class InputError(TessellaError):
    """An operator or a user gave something unusable; the message names it in one line."""

    code = "bad_input"
    status = 400


class BadAddress(InputError):
    """A multiaddr or host:port that cannot be used."""

    code = "bad_address"


class BadConfig(InputError):
    """A key, flag or environment value outside its rule."""

    code = "bad_config"


class BadKey(InputError):
    """An identity file that cannot be read, written or trusted."""

    code = "bad_key"


class BadRequest(InputError):
    """A request that breaks its own rules."""

    code = "bad_request"


class ContextTooLong(BadRequest):
    """The prompt, or the prompt and the answer, do not fit the context."""

    code = "context_length_exceeded"


class BadWeights(InputError):
    """A weights file that is missing, torn, or at odds with its own header."""

    code = "bad_weights"


class UnsupportedModel(InputError):
    """An architecture, rope type, activation or quantisation the engine does not have."""

    code = "unsupported_model"


class UnknownModel(InputError):
    """A model name that nobody here has."""

    code = "unknown_model"
    status = 404


class PortInUse(InputError):
    """An address that another program listens on; it may be free later."""

    code = "port_in_use"
    retry = True


class RemoteError(TessellaError):
    """The peer broke a rule. Its stream is reset; nobody else is disturbed."""

    code = "protocol_error"
    status = 400


class BadFrame(RemoteError):
    """Bytes that are not a frame of this protocol."""

    code = "bad_frame"


class FrameTooLarge(BadFrame):
    """A length above the cap, refused before a byte of the body is kept."""

    code = "frame_too_large"
    status = 413

    def __init__(self, length: int, limit: int) -> None:
        super().__init__(f"a frame of {length} bytes, over the limit of {limit}")
        self.length = length
        self.limit = limit


class BodyTooLarge(RemoteError):
    """An HTTP body above the cap of its route, refused before the rest of it is read."""

    code = "body_too_large"
    status = 413

    def __init__(self, limit: int) -> None:
        super().__init__(f"a body over the limit of {limit} bytes")
        self.limit = limit


class BadTensor(RemoteError):
    """A tensor whose dtype, shape, size or values are not what this session carries."""

    code = "bad_tensor"


class BadSignature(RemoteError):
    """A signature that does not cover these bytes, for this purpose, by this key."""

    code = "bad_signature"
    status = 401


class StaleRecord(RemoteError):
    """A signed record outside its life: expired, or made in the future."""

    code = "stale_record"
    status = 410


class OutOfTurn(RemoteError):
    """A message that may not come in this state of the conversation."""

    code = "out_of_turn"


class PositionGap(RemoteError):
    """A data frame that builds on more KV than is held here."""

    code = "position_gap"
    status = 409

    def __init__(self, position: int, held: int) -> None:
        super().__init__(f"position {position} is beyond the {held} positions held")
        self.position = position
        self.held = held


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


class Busy(TessellaError):
    """Nobody's fault: we are full. Wait, then retry here."""

    code = "busy"
    status = 503
    retry = True


class TooManySessions(Busy):
    """The quota of sessions, streams or KV bytes is in use."""

    code = "too_many_sessions"


class TooManyRequests(Busy):
    """Asked faster than is answered."""

    code = "too_many_requests"
    status = 429


class StoreUnavailable(Busy):
    """What has to outlive a restart cannot be kept now, so nothing was done."""

    code = "store_unavailable"


class ModelUnavailable(Busy):
    """The mesh cannot render the whole model now; the message names the missing layers.

    `retry_after` is in seconds, where somebody knows; `details` are plain values for a program:
    `state`, `missing` as [start, stop] pairs, `claim_mb`, `progress`, `eta_seconds`.
    """

    code = "model_unavailable"

    def __init__(self, text: str, retry_after: float | None = None, **details: object) -> None:
        super().__init__(text)
        self.retry_after = retry_after
        self.details = details


class StoreLost(TessellaError):
    """The database failed us: what is in it is no longer what we know, so the program ends."""

    code = "store_lost"


class PeerGone(TessellaError):
    """The other end went away. Retry through another peer."""

    code = "peer_gone"
    status = 502
    retry = True


class PeerClosed(PeerGone):
    """The peer finished its side, or its connection ended."""

    code = "peer_closed"


class PeerReset(PeerGone):
    """The peer, or we, gave the stream up."""

    code = "peer_reset"


class PeerSilent(PeerGone):
    """The peer is connected and has stopped making progress."""

    code = "peer_silent"


class PeerUnreachable(PeerGone):
    """No address of the peer answered."""

    code = "peer_unreachable"


class RemoteFailure(TessellaError):
    """An error that a peer reported. `code` is the peer's; its text is data, not ours."""

    status = 502

    def __init__(self, code: str, text: str, *, retry: bool) -> None:
        super().__init__(text or code)
        self.code = code
        self.retry = retry
