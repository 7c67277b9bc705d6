"""Reads a publisher's stream and replays as a stranger would, with pyzmq and msgpack.

Not run in CI. Start a publisher, such as

    go test ./events/zmq -run TestForPython -python-seconds 20

and, with what it prints,

    pip install pyzmq msgpack
    python3 events/testdata/read.py tcp://127.0.0.1:5557 tcp://127.0.0.1:5558 100
"""

import struct
import sys

import msgpack
import zmq


def follow(held, payload):
    """Applies a batch; returns its number of events and of orphans."""
    _, events, rank = msgpack.unpackb(payload, strict_map_key=False)
    assert rank == 0, rank
    orphans = 0
    for e in events:
        e = e if isinstance(e, dict) else dict(zip(("type", "block_hashes", "parent_block_hash", "token_ids", "block_size"), e))
        if e["type"] == "BlockStored":
            assert len(e["token_ids"]) == len(e["block_hashes"]) * e["block_size"]
            if e["parent_block_hash"] is not None and e["parent_block_hash"] not in held:
                orphans += 1
                continue
            held.update(e["block_hashes"])
        elif e["type"] == "BlockRemoved":
            held.difference_update(e["block_hashes"])
        else:
            assert e["type"] == "AllBlocksCleared", e
            held.clear()
    return len(events), orphans


def main(pub, router, batches):
    ctx = zmq.Context()
    sub = ctx.socket(zmq.SUB)
    sub.connect(pub)
    sub.subscribe(b"kv@")
    ask = ctx.socket(zmq.DEALER)
    ask.connect(router)

    topic, number, _ = sub.recv_multipart()
    joined = struct.unpack(">Q", number)[0]
    ask.send_multipart([b"", struct.pack(">Q", 0)])
    held, next_, orphans = set(), 0, 0
    while True:
        empty, t, number, payload = ask.recv_multipart()
        assert empty == b""
        seq = struct.unpack(">q", number)[0]
        if seq == -1:
            assert t == b"" and payload == b""
            break
        assert t == topic and seq == next_, (t, seq, next_)
        orphans += follow(held, payload)[1]
        next_ += 1
    print(f"joined at batch {joined} of {topic.decode()}, replayed {next_}, {len(held)} blocks held")
    assert next_ > joined
    gaps = events = 0
    for _ in range(batches):
        _, number, payload = sub.recv_multipart()
        seq = struct.unpack(">Q", number)[0]
        if seq < next_:
            continue
        gaps += seq != next_
        n, o = follow(held, payload)
        events, orphans, next_ = events + n, orphans + o, seq + 1
    print(f"{events} events live, {gaps} gaps, {orphans} orphans, {len(held)} blocks held before batch {next_}")

    ask.send_multipart([b"", b"snapshot"])
    _, _, number, head = ask.recv_multipart()
    _, epoch, count = head[:8], *struct.unpack(">QQ", head[8:])
    at, dump = struct.unpack(">Q", number)[0], set()
    for _ in range(count):
        _, _, number, payload = ask.recv_multipart()
        assert struct.unpack(">Q", number)[0] == at
        assert follow(dump, payload)[1] == 0
    assert ask.recv_multipart()[2] == b"\xff" * 8
    while next_ < at:
        _, number, payload = sub.recv_multipart()
        seq = struct.unpack(">Q", number)[0]
        if seq >= next_:
            assert seq == next_
            follow(held, payload)
            next_ += 1
    print(f"snapshot of epoch {epoch} before batch {at}: {len(dump)} blocks, equal: {dump == held if next_ == at else 'later'}")
    assert next_ > at or dump == held
    assert gaps == 0 and orphans == 0


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
