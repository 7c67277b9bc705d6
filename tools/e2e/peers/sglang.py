"""Publishes cache events with SGLang's own publisher, for TestPeerSGLang.

    DIR/sglang/bin/python sglang.py EVENTS_PORT REPLAY_PORT

Each line of the standard input is a batch of events in JSON: {"batch": [{"type": "BlockStored", ...}, ...]}. The fields are those of SGLang's
own types; one that its version lacks ends the program. The answer to each line is a line: the number of events. The publisher ends with the input.
"""

import importlib
import json
import pathlib
import sys
import sysconfig
import time
import types


def publishers():
    """SGLang's module of events without what its packages import: all of SGLang would need its packages for GPUs."""
    site = pathlib.Path(sysconfig.get_paths()["purelib"])
    for name in ("sglang", "sglang.srt", "sglang.srt.disaggregation", "sglang.srt.utils"):
        sys.modules[name] = package = types.ModuleType(name)
        package.__path__ = [str(site.joinpath(*name.split(".")))]
    sys.modules["sglang.srt.runtime_context"] = context = types.ModuleType("sglang.srt.runtime_context")
    context.get_parallel = None  # of a server's start alone
    return importlib.import_module("sglang.srt.disaggregation.kv_events")


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
