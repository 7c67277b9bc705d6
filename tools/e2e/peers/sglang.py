"""Publishes cache events with SGLang's own publisher, for TestPeerSGLang.

    DIR/sglang/bin/python sglang.py EVENTS_PORT REPLAY_PORT

Each line of the standard input is a batch of events in JSON: {"batch": [{"type": "BlockStored", ...}, ...]}. The fields are those of SGLang's
own types; one that its version lacks ends the program. The answer to each line is a line: the number of events. The publisher ends with the input.
"""

import importlib.util
import json
import pathlib
import sys
import sysconfig
import time


def publishers():
    """SGLang's module of events alone: all of SGLang would need its packages for GPUs."""
    site = pathlib.Path(sysconfig.get_paths()["purelib"])
    path = site / "sglang/srt/disaggregation/kv_events.py"
    spec = importlib.util.spec_from_file_location("kv_events", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["kv_events"] = module
    spec.loader.exec_module(module)
    return module


def main():
    sglang = publishers()
    events, replay = sys.argv[1:]
    publisher = sglang.ZmqEventPublisher(0, endpoint=f"tcp://*:{events}", replay_endpoint=f"tcp://*:{replay}", topic="kv@sglang@nano")
    for line in sys.stdin:
        batch = [getattr(sglang, e.pop("type"))(**e) for e in json.loads(line)["batch"]]
        publisher.publish(sglang.KVEventBatch(ts=time.time(), events=batch))
        print(len(batch), flush=True)
    publisher.shutdown()


if __name__ == "__main__":
    main()
