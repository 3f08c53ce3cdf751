"""Golden bytes of what is said about work and its pay."""

from __future__ import annotations

from tessella.core import messages as m
from tessella.core.ids import ModelId, PeerId
from tessella.core.layers import LayerRange
from tessella.core.tensors import WireTensor

RID = bytes(range(16))
COMMIT = m.Commit(2, b"d" * 32, b"", b"l" * 16)
ORDER = m.SignedOrder(b"o", b"s")

LEDGER_CASES: list[tuple[m.Message, str]] = [
    (
        m.Ticket(
            issuer=PeerId("I"),
            request_id=RID,
            model=ModelId("m"),
            contract="c",
            requester="anonymous",
            tier="leech",
            chain=(m.TicketStage(PeerId("P"), LayerRange(0, 2), "f32/q4_1/f32"),),
            spares=(),
            max_tokens=9,
            issued_at=1.0,
            start_by=2.0,
            expires_at=3.0,
        ),
        "0000005b9d1fa149c410000102030405060708090a0b0c0d0e0fa16da163a9616e6f6e796d6f7573a56c"
        "656563689193a150920002ac6633322f71345f312f6633329009cb3ff0000000000000cb400000000000"
        "0000cb4008000000000000",
    ),
    (
        m.Proof(
            ticket=b"t",
            ticket_signature=b"s",
            worker=PeerId("P"),
            sequence=7,
            previous=b"",
            layers=LayerRange(0, 2),
            start=0,
            epoch=0,
            inputs=COMMIT,
            sender=PeerId("S"),
            voucher=b"v",
            outputs=COMMIT,
            sketch=b"k",
            finished_at=1.0,
        ),
        "000000939f20c40174c40173a15007c40092000200009402c42064646464646464646464646464646464"
        "64646464646464646464646464646464c400c4106c6c6c6c6c6c6c6c6c6c6c6c6c6c6c6ca153c4017694"
        "02c4206464646464646464646464646464646464646464646464646464646464646464c400c4106c6c6c"
        "6c6c6c6c6c6c6c6c6c6c6c6c6cc4016bcb3ff0000000000000",
    ),
    (m.AskGrant(ModelId("m"), 9, False, b""), "000000089521a16d09c2c400"),
    (m.Granted(b"t", b"s", ("/a",), ""), "0000000d9522c40174c4017391a22f61a0"),
    (m.Settle(b"p"), "000000059223c40170"),
    (m.Settled(b"[]"), "000000069224c4025b5d"),
    (m.AskCredits(), "000000029125"),
    (m.AskAudit(), "000000029126"),
    (
        m.AuditOrder(
            audit_id=RID,
            request_id=RID,
            keeper=PeerId("K"),
            auditor=PeerId("A"),
            side="outputs",
            stop=2,
            expires_at=1.0,
        ),
        "0000003c9827c410000102030405060708090a0b0c0d0e0fc410000102030405060708090a0b0c0d0e0f"
        "a14ba141a76f75747075747302cb3ff0000000000000",
    ),
    (ORDER, "000000089328c4016fc40173"),
    (
        m.AuditTask(
            audit_id=RID,
            proof=b"p",
            proof_signature=b"s",
            inputs=ORDER,
            inputs_addrs=("/a",),
            outputs=ORDER,
            outputs_addrs=(),
        ),
        "0000002d9829c410000102030405060708090a0b0c0d0e0fc40170c4017392c4016fc4017391a22f6192"
        "c4016fc4017390",
    ),
    (
        m.KeptRows(3, WireTensor("bf16", (1, 2), b"abcd")),
        "00000012932a0393a462663136920102c40461626364",
    ),
    (m.KeptIds(b"\1\0\0\0"), "00000008922bc40401000000"),
    (
        m.AuditReport(
            audit_id=RID,
            found="measured",
            tokens=2,
            median=0.5,
            worst=1.5,
            gain=1.0,
            reference=b"r",
        ),
        "0000003c982cc410000102030405060708090a0b0c0d0e0fa86d6561737572656402cb3fe00000000000"
        "00cb3ff8000000000000cb3ff0000000000000c40172",
    ),
    (
        m.Marks((m.Mark(RID, 1.5, PeerId("C"), 2.0),)),
        "0000002a922d9194c410000102030405060708090a0b0c0d0e0fcb3ff8000000000000a143cb40000000"
        "00000000",
    ),
]
