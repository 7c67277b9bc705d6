# One end of a connection with heartbeats, by libzmq: "pub" binds and publishes numbered batches,
# "sub ENDPOINT" reads them. Both end after a few heartbeat timeouts, and say how often the
# connection broke.
import struct, sys, time
import zmq
from zmq.utils.monitor import recv_monitor_message

TIMEOUT = 0.6
s = zmq.Context().socket(zmq.PUB if sys.argv[1] == "pub" else zmq.SUB)
s.setsockopt(zmq.LINGER, 0)
s.setsockopt(zmq.HEARTBEAT_IVL, 50)
s.setsockopt(zmq.HEARTBEAT_TIMEOUT, int(1000 * TIMEOUT))
s.setsockopt(zmq.HEARTBEAT_TTL, int(10000 * TIMEOUT))
m = s.get_monitor_socket(zmq.EVENT_DISCONNECTED)
if sys.argv[1] == "pub":
    port = s.bind_to_random_port("tcp://127.0.0.1")
    print(port, flush=True)
    payload = sys.stdin.buffer.read()
else:
    s.setsockopt(zmq.SUBSCRIBE, b"")
    s.connect(sys.argv[2])
n, end = 0, time.monotonic() + 4 * TIMEOUT
while time.monotonic() < end:
    if sys.argv[1] == "pub":
        s.send_multipart([b"kv@10.0.0.1:8000@model", struct.pack(">Q", n), payload])
        n += 1
        time.sleep(0.3)  # so that heartbeats come, which messages would stand for
    elif s.poll(50):
        s.recv_multipart()
        n += 1
broken = 0
while m.poll(0):
    recv_monitor_message(m)
    broken += 1
print("messages", n, "broken", broken, flush=True)
