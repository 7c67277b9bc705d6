"""Open WebUI against a running server: a row for each of the two APIs by which it knows one.

    python3 -m venv WEBUI && WEBUI/bin/pip install open-webui==0.12.4
    cd tools/e2e && go test . -run TestClients -clients DIR -client-webui WEBUI -client-results FILE

The script runs in Open WebUI's environment. It starts Open WebUI with an empty database, signs up as its administrator,
and gives it the server's URL of each case, as its page of settings does. Questions go to Open WebUI's own API for chats.
cases.py says what is asked, and what is printed.
"""

import atexit
import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from cases import AGAIN, ASKED, MESSAGES, RESULT, TOOLS, Client, check, main

# No downloads of models for documents and speech, and no look for a newer version.
SETTINGS = {"OFFLINE_MODE": "true", "RAG_EMBEDDING_ENGINE": "ollama", "AUDIO_STT_ENGINE": "openai", "ANONYMIZED_TELEMETRY": "false",
            "ENABLE_VERSION_UPDATE_CHECK": "false", "FROM_INIT_PY": "true", "WEBUI_SECRET_KEY": "of this run"}
START = 600  # seconds that it may take to start


class Page:
    """A running Open WebUI."""

    def __init__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        self.url, self.token, self.data = f"http://127.0.0.1:{port}", None, tempfile.TemporaryDirectory()
        command = [sys.executable, "-m", "uvicorn", "open_webui.main:app", "--host", "127.0.0.1", "--port", port]
        self.log = open(os.path.join(self.data.name, "log"), "w+")
        self.process = subprocess.Popen(command, cwd=self.data.name, env={**os.environ, **SETTINGS, "DATA_DIR": self.data.name},
                                        stdout=self.log, stderr=subprocess.STDOUT)
        atexit.register(self.end)
        self.wait()
        user = {"name": "a", "email": "a@example.com", "password": "secret-1234"}  # the first user is the administrator
        self.token = json.loads(self.ask("/api/v1/auths/signup", user))["token"]

    def wait(self):
        limit = time.monotonic() + START
        while True:
            try:
                return self.ask("/health")
            except (urllib.error.URLError, ConnectionError):
                if self.process.poll() is not None or time.monotonic() > limit:
                    self.log.seek(0)
                    sys.exit("Open WebUI does not start:\n" + self.log.read()[-2000:])
                time.sleep(0.2)

    def end(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()
        self.data.cleanup()

    def ask(self, path, body=None):
        """The text of an answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        if self.token:
            request.add_header("Authorization", "Bearer " + self.token)
        with urllib.request.urlopen(request) as answer:
            return answer.read().decode()

    def know(self, openai, ollama):
        """Gives Open WebUI the URL of a server, by one of the APIs. Returns its models."""
        self.ask("/openai/config/update", {"ENABLE_OPENAI_API": bool(openai), "OPENAI_API_BASE_URLS": openai, "OPENAI_API_KEYS": ["none"] * len(openai), "OPENAI_API_CONFIGS": {}})
        self.ask("/ollama/config/update", {"ENABLE_OLLAMA_API": bool(ollama), "OLLAMA_BASE_URLS": ollama, "OLLAMA_API_CONFIGS": {}})
        return json.loads(self.ask("/api/models?refresh=true"))["data"]


page = functools.cache(Page)


class OpenAI(Client):
    name = "open-webui"
    package = "open-webui"
    requires = False
    api = "openai"

    def known(self):
        """The name by which Open WebUI knows the model."""
        root = self.url.removesuffix("/v1")
        models = page().know([self.url] if self.api == "openai" else [], [root] if self.api == "ollama" else [])
        names = [m["id"] for m in models if m["owned_by"] == self.api and m["id"].removesuffix(":latest") == self.model]
        check(len(names) == 1, models)
        return names[0]

    def chat(self, messages=MESSAGES, **more):
        text = page().ask("/api/chat/completions", {"model": self.known(), "messages": messages, **more})
        if not more.get("stream"):
            return json.loads(text)
        events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
        check(events[-1] == "[DONE]", text[-300:])
        return [json.loads(e) for e in events[:-1]]

    def message(self, messages, **more):
        return self.chat(messages, **more)["choices"][0]["message"]

    def whole(self):
        return self.chat()

    def streamed(self):
        return self.chat(stream=True, stream_options={"include_usage": True})

    def called(self):
        return self.message(ASKED, tools=TOOLS)

    def conversation(self):
        """The first turn with its results, and the answer to it."""
        turns = [*ASKED, *with_results(self.once(self.called))]
        return [*turns, self.message(turns, tools=TOOLS)]

    def text(self):
        return self.once(self.whole)["choices"][0]["message"]["content"]

    def stream(self):
        return "".join(c["delta"].get("content") or "" for e in self.once(self.streamed) for c in e.get("choices", []))

    def tools(self):
        return [(t["function"]["name"], t["function"]["arguments"]) for t in self.once(self.called).get("tool_calls") or []]

    def second_turn(self):
        return said(self.once(self.conversation)[-1])

    def third_turn(self):
        *turns, last = self.once(self.conversation)
        return said(self.message([*turns, *with_results(last), {"role": "user", "content": AGAIN}], tools=TOOLS))

    def usage(self):
        of = [self.once(self.whole)["usage"], next(e["usage"] for e in reversed(self.once(self.streamed)) if e.get("usage"))]
        return [(u["prompt_tokens"], u["completion_tokens"], u["total_tokens"]) for u in of]


class Ollama(OpenAI):
    name = "open-webui-ollama"
    api = "ollama"


def with_results(message):
    """A message of the model, and a result for each of its calls."""
    return [message, *({"role": "tool", "tool_call_id": t["id"], "content": RESULT} for t in message.get("tool_calls") or [])]


def said(message):
    return message.get("content") or json.dumps([t["function"]["arguments"] for t in message.get("tool_calls") or []])


if __name__ == "__main__":
    main()
