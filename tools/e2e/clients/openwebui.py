"""Signs up at a running Open WebUI, lists its models, and chats with each of them, whole and streamed.

    coppice serve
    OFFLINE_MODE=true RAG_EMBEDDING_ENGINE=ollama AUDIO_STT_ENGINE=openai OLLAMA_BASE_URL=http://127.0.0.1:8080 \\
      OPENAI_API_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=none DATA_DIR=EMPTY open-webui serve --host 127.0.0.1 --port 8090
    python3 openwebui.py --url http://127.0.0.1:8090

DATA_DIR is an empty directory: Open WebUI takes one sign-up as its administrator. It must know the server by both APIs.
"""

import argparse
import json
import urllib.request

parser = argparse.ArgumentParser()
parser.add_argument("--url", required=True, help="of Open WebUI")
url, token = parser.parse_args().url, ""


def ask(path, body=None):
    """Returns the text of an answer."""
    request = urllib.request.Request(url + path, None if body is None else json.dumps(body).encode(), {"Content-Type": "application/json"})
    if token:
        request.add_header("Authorization", "Bearer " + token)
    with urllib.request.urlopen(request, timeout=300) as answer:
        return answer.read().decode()


def chat(model, stream):
    """Returns what a model says to a question."""
    text = ask("/api/chat/completions", {"model": model, "stream": stream, "messages": [{"role": "user", "content": "What is light?"}]})
    if not stream:
        return json.loads(text)["choices"][0]["message"]["content"]
    events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]", text[-300:]
    choices = [c for e in events[:-1] for c in json.loads(e).get("choices", [])]
    return "".join(c["delta"].get("content") or "" for c in choices)


token = json.loads(ask("/api/v1/auths/signup", {"name": "a", "email": "a@example.com", "password": "secret-1234"}))["token"]
models = [(m["id"], m["owned_by"]) for m in json.loads(ask("/api/models"))["data"]]
assert {owner for _, owner in models} == {"openai", "ollama"}, models
for model, owner in models:
    for stream in (False, True):
        said = chat(model, stream)
        assert said, (model, owner, stream)
        print(owner, model, "streamed" if stream else "whole", repr(said[:60]))
