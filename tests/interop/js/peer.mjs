// A peer of the swarm that shares no line with Tessella: js-libp2p, and what docs/wire.md says.
//
//     node peer.mjs find <multiaddr of a bootstrap peer> <model>
//     node peer.mjs publish <multiaddr of a bootstrap peer> <model>
//
// The first finds the nodes of a model, verifies the record of each, and asks each for its status.
// The second says that it is such a node itself. What was seen is printed as one line of JSON.

import { createHash, createPublicKey, verify } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'

// libp2p 3 wants what Node has from version 22 on.
Promise.withResolvers ??= function () {
  const made = {}
  made.promise = new Promise((resolve, reject) => Object.assign(made, { resolve, reject }))
  return made
}

// Imports of a file are hoisted above its code, and these need the line before.
const { createLibp2p } = await import('libp2p')
const { tcp } = await import('@libp2p/tcp')
const { noise } = await import('@chainsafe/libp2p-noise')
const { yamux } = await import('@chainsafe/libp2p-yamux')
const { identify } = await import('@libp2p/identify')
const { ping } = await import('@libp2p/ping')
const { kadDHT } = await import('@libp2p/kad-dht')
const { generateKeyPair } = await import('@libp2p/crypto/keys')
const { multiaddr } = await import('@multiformats/multiaddr')
const { decode, encode } = await import('@msgpack/msgpack')
const { base58btc } = await import('multiformats/bases/base58')
const { CID } = await import('multiformats/cid')
const Digest = await import('multiformats/hashes/digest')

const KAD = '/tessella/kad/1.0.0'
const STATUS = '/tessella/status/1'
const NAMESPACE = '/tessella/'
const ASK_STATUS = 14
const STATUS_ANSWER = 15
const RAW = 0x55
const SHA256 = 0x12
const MAX_RECORD = 2048
const MAX_STATUS = 4 * 1024 * 1024
const MAX_AHEAD = 30
const MAX_LIFE = 600
// The identity multihash of the protobuf of an Ed25519 key, and the DER of the same, up to the key.
const PEER_PREFIX = Buffer.from('002408011220', 'hex')
const DER_PREFIX = Buffer.from('302a300506032b6570032100', 'hex')
const PURPOSE = Buffer.from('tessella node record v1\0')
const RECORD_FIELDS = [
  'peer_id', 'model', 'contract', 'layers', 'total_layers', 'status', 'addrs', 'device', 'dtype',
  'queue_depth', 'step_ms', 'api_url', 'canary', 'sequence', 'made_at', 'life'
]

// What each step may take, and how long to look for a node that has only come up, in ms.
const STEP_TIMEOUT = 10_000
const FIND_TIMEOUT = 30_000
const RETRY_AFTER = 250

const text = (bytes) => new TextDecoder('utf-8', { fatal: true }).decode(bytes)
const limit = () => ({ signal: AbortSignal.timeout(STEP_TIMEOUT) })

function modelKey (model) {
  const hash = createHash('sha256').update(`tessella/model/1\0${model}`).digest()
  return CID.createV1(RAW, Digest.create(SHA256, hash))
}

function keyOfPeer (peerId) {
  const raw = Buffer.from(base58btc.baseDecode(peerId))
  if (raw.length !== PEER_PREFIX.length + 32 || !raw.subarray(0, 6).equals(PEER_PREFIX)) {
    throw new Error(`not the peer id of an Ed25519 key: ${peerId}`)
  }
  const der = Buffer.concat([DER_PREFIX, raw.subarray(PEER_PREFIX.length)])
  return createPublicKey({ key: der, format: 'der', type: 'spki' })
}

function openRecord (key, value) {
  const peerId = text(key).slice(NAMESPACE.length)
  if (value.length > MAX_RECORD) throw new Error(`a record of ${value.length} bytes`)
  const [payload, signature] = decode(value)
  const signed = Buffer.concat([PURPOSE, payload])
  if (!verify(null, signed, keyOfPeer(peerId), signature)) throw new Error('a forged record')
  const fields = decode(payload)
  if (fields.length !== RECORD_FIELDS.length) throw new Error(`${fields.length} fields`)
  const record = Object.fromEntries(RECORD_FIELDS.map((name, place) => [name, fields[place]]))
  const now = Date.now() / 1000
  const { made_at: madeAt, life } = record
  if (record.peer_id !== peerId) throw new Error('a record of another peer')
  if (!(life > 0 && life <= MAX_LIFE)) throw new Error('a record that lives too long')
  if (madeAt > now + MAX_AHEAD || madeAt + life <= now) throw new Error('a record out of its time')
  return record
}

function bestOf (key, values) {
  const records = values.map((value) => openRecord(key, value))
  const better = (a, b) => a.sequence - b.sequence || a.made_at - b.made_at
  return records.indexOf(records.toSorted(better).at(-1))
}

async function findProviders (dht, model) {
  const found = new Map()
  for await (const event of dht.findProviders(modelKey(model), limit())) {
    for (const peer of event.providers ?? []) {
      const id = peer.id.toString()
      // Each holder of the key names the same providers again.
      const told = found.get(id) ?? new Set()
      found.set(id, new Set([...told, ...peer.multiaddrs.map(String)]))
    }
  }
  return found
}

async function firstProviders (dht, model) {
  const deadline = Date.now() + FIND_TIMEOUT
  let found = new Map()
  while (found.size === 0) {
    if (Date.now() > deadline) throw new Error(`no provider of ${model}`)
    await sleep(RETRY_AFTER)
    found = await findProviders(dht, model)
  }
  return found
}

async function getRecord (dht, peerId) {
  const key = new TextEncoder().encode(NAMESPACE + peerId)
  for await (const event of dht.get(key, limit())) {
    if (event.name === 'VALUE') return openRecord(key, event.value)
  }
  throw new Error(`no record of ${peerId}`)
}

function frame (...fields) {
  const body = Buffer.from(encode(fields))
  const length = Buffer.alloc(4)
  length.writeUInt32BE(body.length)
  return Buffer.concat([length, body])
}

async function readFrame (stream) {
  let buffer = Buffer.alloc(0)
  for await (const chunk of stream) {
    buffer = Buffer.concat([buffer, chunk.subarray()])
    if (buffer.length < 4) continue
    const end = 4 + buffer.readUInt32BE()
    if (end > 4 + MAX_STATUS) throw new Error(`a frame of ${end} bytes`)
    if (buffer.length >= end) return decode(buffer.subarray(4, end))
  }
  throw new Error('the stream ended before its frame did')
}

async function askStatus (node, peerId, addrs) {
  const targets = addrs.map((addr) => multiaddr(`${addr}/p2p/${peerId}`))
  const stream = await node.dialProtocol(targets, STATUS, limit())
  stream.send(frame(ASK_STATUS))
  const [kind, document] = await readFrame(stream)
  if (kind !== STATUS_ANSWER) throw new Error(`kind ${kind} where a status belongs`)
  await stream.close(limit())
  return JSON.parse(text(document))
}

async function makeRecord (node, privateKey, model) {
  const now = Date.now()
  const says = {
    peer_id: node.peerId.toString(),
    model,
    contract: 'of the tensors',
    layers: [2, 4],
    total_layers: 4,
    status: 'Healthy',
    addrs: ['/dns4/node.example/tcp/9080'],
    device: 'cpu',
    dtype: 'f16',
    queue_depth: 1,
    step_ms: 2.5,
    api_url: '',
    canary: false,
    sequence: now,
    made_at: now / 1000,
    life: 60
  }
  const payload = encode(RECORD_FIELDS.map((name) => says[name]))
  return encode([payload, await privateKey.sign(Buffer.concat([PURPOSE, payload]))])
}

async function inTable (dht) {
  const deadline = Date.now() + FIND_TIMEOUT
  while (dht.routingTable.size === 0) {
    if (Date.now() > deadline) throw new Error('nobody answers for the swarm')
    await sleep(RETRY_AFTER)
  }
}

async function publish (node, bootstrap, model, privateKey) {
  const { dht } = node.services
  await node.dial(multiaddr(bootstrap), limit())
  await inTable(dht)
  const key = new TextEncoder().encode(NAMESPACE + node.peerId.toString())
  const answered = new Set()
  for await (const event of dht.put(key, await makeRecord(node, privateKey, model), limit())) {
    if (event.name === 'PEER_RESPONSE' && event.messageName === 'PUT_VALUE') {
      answered.add(event.from.toString())
    }
  }
  for await (const event of dht.provide(modelKey(model), limit())) {
    if (event.name === 'QUERY_ERROR') throw event.error
  }
  return { peer_id: node.peerId.toString(), answered: [...answered] }
}

async function find (node, bootstrap, model) {
  const connection = await node.dial(multiaddr(bootstrap), limit())
  // The routing table pings whom it takes in, and js-libp2p allows a connection one ping at a time:
  // two at once, and the table stays empty.
  await inTable(node.services.dht)
  const pingMs = await node.services.ping.ping(connection.remotePeer, limit())
  const nodes = []
  for (const [peerId, told] of await firstProviders(node.services.dht, model)) {
    const record = await getRecord(node.services.dht, peerId)
    const status = await askStatus(node, peerId, record.addrs)
    nodes.push({ provider: peerId, told: [...told], record, status })
  }
  return {
    peer_id: node.peerId.toString(),
    bootstrap: connection.remotePeer.toString(),
    security: connection.encryption,
    muxer: connection.multiplexer,
    ping_ms: pingMs,
    nodes
  }
}

const [verb, bootstrap, model] = process.argv.slice(2)
const privateKey = await generateKeyPair('Ed25519')
const node = await createLibp2p({
  privateKey,
  transports: [tcp()],
  connectionEncrypters: [noise()],
  streamMuxers: [yamux()],
  services: {
    identify: identify(),
    ping: ping(),
    dht: kadDHT({
      protocol: KAD,
      clientMode: true,
      // By default addresses of private networks and of loopback are dropped.
      peerInfoMapper: (peer) => peer,
      validators: { tessella: (key, value) => { openRecord(key, value) } },
      selectors: { tessella: bestOf }
    })
  }
})
try {
  console.log(JSON.stringify(await { find, publish }[verb](node, bootstrap, model, privateKey)))
} finally {
  await node.stop()
}
