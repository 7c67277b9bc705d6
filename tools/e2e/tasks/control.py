"""Shows that run.py counts right: it runs the tasks against a server that answers by a script.

    venv/bin/python tools/e2e/tasks/control.py

The model's name says how the server answers: as the solutions in tasks.json (right), with a wrong last answer
(wrong), with the right answer and no call (guess), with calls that no schema accepts (invalid), that are no JSON
(nojson) or of a tool that does not exist (unknown), with status 500 (fails) or with calls for ever (endless).
The script prints a line for each, and its status is 1 if a count is not the expected one.
"""

import http.server
import json
import pathlib
import subprocess
import sys
import tempfile
import threading

import run

TASKS = {t["ask"]: t for t in run.load()["tasks"]}
ANSWERS = sum(len(t["solution"]["calls"]) for t in TASKS.values())  # answers that call a tool, if all is right
CALLS = sum(len(turn) for t in TASKS.values() for turn in t["solution"]["calls"])
N = len(TASKS)
# model: succeeded, calls, valid calls, HTTP errors, turns
WANT = {
    "right": (N, CALLS, CALLS, 0, ANSWERS + N),
    "wrong": (0, CALLS, CALLS, 0, ANSWERS + N),
    "guess": (0, 0, 0, 0, N),
    "invalid": (0, CALLS, 0, 0, ANSWERS + N),
    "nojson": (0, CALLS, 0, 0, ANSWERS + N),
    "unknown": (0, CALLS, 0, 0, ANSWERS + N),
    "fails": (0, 0, 0, N, 0),
    "endless": (0, 8 * N, 8 * N, 0, 8 * N),
}


def message(model, body):
    """The next message of the model: its place in the solution is the number of its turns so far."""
    task = TASKS[next(m["content"] for m in body["messages"] if m["role"] == "user")]
    turns = sum(m["role"] == "assistant" for m in body["messages"])
    steps = task["solution"]["calls"]
    if model == "endless":
        return {"role": "assistant", "content": None, "tool_calls": calls([steps[0][0]], turns)}
    if model == "guess" or turns == len(steps):
        return {"role": "assistant", "content": task["wrong"] if model == "wrong" else task["solution"]["answer"]}
    spoiled = [spoilt(model, c) for c in calls(steps[turns], turns)]
    return {"role": "assistant", "content": None, "tool_calls": spoiled}


def calls(step, turn):
    functions = [{"name": c["name"], "arguments": json.dumps(c["arguments"])} for c in step]
    return [{"id": f"call_{turn}_{i}", "type": "function", "function": f} for i, f in enumerate(functions)]


def spoilt(model, call):
    f = call["function"]
    if model == "wrong" and f["name"] == "write_file":  # the file is what the check reads
        f["arguments"] = json.dumps({**json.loads(f["arguments"]), "text": "nothing"})
    elif model == "invalid":
        f["arguments"] = '{"other": 1}'
    elif model == "nojson":
        f["arguments"] = f["arguments"][:-1]
    elif model == "unknown":
        f["name"] = "another"
    return call


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        model, said = body["model"], None
        if model == "fails":
            status, out = 500, {"error": {"message": "scripted"}}
        else:
            said = message(model, body)
            reason = "tool_calls" if said.get("tool_calls") else "stop"
            choice = {"index": 0, "message": said, "finish_reason": reason}
            status, out = 200, {"id": "1", "object": "chat.completion", "created": 1, "model": model, "choices": [choice]}
        data = json.dumps(out).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


def counts(path):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return tuple(sum(r[k] for r in rows) for k in ("ok", "calls", "valid", "errors", "turns"))


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    failed = False
    with tempfile.TemporaryDirectory() as work:
        for model, want in WANT.items():
            out = pathlib.Path(work) / model
            url = f"http://127.0.0.1:{server.server_port}"
            command = [sys.executable, run.HERE / "run.py", "--url", url, "--model", model, "--out", out]
            bounds = ["--at-least", "0.9", "--all-valid", "--no-errors"]
            # A run of a part first: the second run continues it.
            subprocess.run([*command, "--tasks", "calculator"], check=True, capture_output=True)
            done = subprocess.run([*command, *bounds], capture_output=True, text=True)
            got = counts(out)
            ok = got == want and (done.returncode == 0) == (model == "right")
            failed |= not ok
            print(f"{'ok' if ok else 'WRONG'} {model}: succeeded, calls, valid, errors, turns {got}", flush=True)
            if not ok:
                print(f"want {want}, status {done.returncode}\n{done.stderr[-2000:]}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
