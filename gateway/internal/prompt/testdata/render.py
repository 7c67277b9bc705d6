"""Writes render.json: 60 chat requests with tools and null contents, and a hash of the prompt tokens that vLLM makes of each with
four chat templates.

    coppice make-model MINI --preset mini --seed 1
    python render.py MINI                 # writes render.json; it needs jinja2 and tokenizers
    python render.py MINI --transformers  # compares with apply_chat_template of transformers
    python render.py MINI --vllm URL      # compares with a vLLM's own endpoint for rendering

The last one needs a vLLM that serves MINI, without weights (vllm launch render MINI) or with them (vllm serve MINI), and with
--trust-request-chat-template --enable-auto-tool-choice --tool-call-parser hermes. render.json has what vLLM does with contents
by the rules of tokenizer/chat/testdata/published.py, which describes them.
"""

import copy
import hashlib
import json
import pathlib
import random
import sys
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).parent
CHAT = HERE.parents[3] / "tokenizer" / "chat" / "testdata"
sys.path.insert(0, str(CHAT))

import published
from golden import NOW, TOOLS, render

TEMPLATES = ["llama.jinja", "mistral.jinja", "plain.jinja", "qwen.jinja"]
WORDS = "the weather in K\u00f6ln is <sunny> & \u96e8 \U0001f600 \"quoted\" {braces} \\n 12 1.5 it's  two spaces".split(" ")


def requests():
    """60 bodies, by seed."""
    r = random.Random(33)

    def text(most=12):
        return " ".join(r.choice(WORDS) for _ in range(r.randint(1, most)))

    def content():
        if r.random() < 0.25:
            return [{"type": "text", "text": text()} for _ in range(r.randint(1, 3))]
        return text()

    bodies = []
    for i in range(60):
        tools = i % 2 == 0
        messages = [{"role": "system", "content": text()}] if r.random() < 0.6 else []
        for turn in range(r.randint(1, 3)):
            messages.append({"role": "user", "content": content()})
            if tools and r.random() < 0.8:
                calls = [
                    {"id": f"call{i:03}{turn}{n}", "type": "function", "function": {"name": "weather", "arguments": json.dumps({"city": text(3), "days": n}, ensure_ascii=r.random() < 0.5)}}
                    for n in range(r.randint(1, 2))
                ]
                said = {"role": "assistant", "tool_calls": calls}
                said |= r.choice([{"content": None}, {}, {"content": ""}, {"content": text()}])
                messages.append(said)
                messages += [{"role": "tool", "tool_call_id": c["id"], "content": content()} for c in calls]
            if turn == 0 or r.random() < 0.5:
                messages.append({"role": "assistant", "content": text()})
        if messages[-1]["role"] == "assistant":
            messages.append({"role": "user", "content": text()})
        body = {"model": "mini", "messages": messages, "max_tokens": 1 + i}
        if tools:
            body["tools"] = TOOLS
        if i % 7 == 3:
            body["add_generation_prompt"] = False
        bodies.append(body)
    return bodies


def variables(body, messages, special):
    return {**special, "documents": None, "messages": messages, "tools": body.get("tools"), "add_generation_prompt": body.get("add_generation_prompt", True)}


def digest(ids):
    """A hash of token ids, or "" if the template refuses the conversation."""
    return "" if ids is None else hashlib.sha256(b"".join(i.to_bytes(4, "little") for i in ids)).hexdigest()[:16]


def ours(encode, template, body, special):
    messages = published.as_vllm(body["messages"], published.loops_over_parts(template))
    outcome = render(template, variables(body, messages, special))
    return encode(outcome["text"]) if "text" in outcome else None


def theirs(encode, template, body, special):
    """As ours, by transformers' own function."""
    from transformers import PreTrainedTokenizerBase
    from transformers.utils import chat_template_utils

    class Clock:
        now = staticmethod(lambda: NOW)

    chat_template_utils.datetime = Clock
    messages = published.as_vllm(body["messages"], published.loops_over_parts(template))
    try:
        text = PreTrainedTokenizerBase(**special).apply_chat_template(
            messages, tokenize=False, tools=body.get("tools"), chat_template=template, add_generation_prompt=body.get("add_generation_prompt", True))
    except Exception:
        return None
    return encode(text)


def vllm(url, template, body):
    data = json.dumps({**copy.deepcopy(body), "chat_template": template}).encode()
    ask = urllib.request.Request(url.rstrip("/") + "/v1/chat/completions/render", data, {"Content-Type": "application/json"})
    try:
        answer = json.load(urllib.request.urlopen(ask))
    except urllib.error.HTTPError as e:
        if e.code != 400:
            raise
        return None
    return found(answer)


def found(answer):
    """The first list of token ids in an answer, whose form differs between versions."""
    if isinstance(answer, dict):
        for key in ("token_ids", "prompt_token_ids"):
            if isinstance(answer.get(key), list):
                return answer[key]
        answer = list(answer.values())
    for v in answer if isinstance(answer, list) else []:
        ids = found(v)
        if ids is not None:
            return ids
    return None


def main():
    from tokenizers import Tokenizer

    mini = pathlib.Path(sys.argv[1])
    tokenizer = Tokenizer.from_file(str(mini / "tokenizer.json"))
    config = json.loads((mini / "tokenizer_config.json").read_text())
    special = {k: config[k] for k in ("bos_token", "eos_token")}

    def encode(text):
        return tokenizer.encode(text, add_special_tokens=False).ids

    bodies, cases, differences = requests(), {}, 0
    for name in TEMPLATES:
        template = (CHAT / name).read_text(encoding="utf-8")
        cases[name] = []
        for i, body in enumerate(bodies):
            want = ours(encode, template, body, special)
            cases[name].append(digest(want))
            got = want
            if sys.argv[2:] == ["--transformers"]:
                got = theirs(encode, template, body, special)
            elif sys.argv[2:3] == ["--vllm"]:
                got = vllm(sys.argv[3], template, body)
            if got != want:
                differences += 1
                print(name, i, "\n want", want and tokenizer.decode(want, skip_special_tokens=False), "\n got", got and tokenizer.decode(got, skip_special_tokens=False))
    refused = sum(d == "" for all in cases.values() for d in all)
    print(f"{len(bodies) * len(TEMPLATES)} requests, {refused} refused by their template, {differences} differences")
    if sys.argv[2:]:
        sys.exit(differences > 0)
    head = {"model": hashlib.sha256((mini / "tokenizer.json").read_bytes()).hexdigest(), **special, "requests": bodies, "tokens": cases}
    (HERE / "render.json").write_text(json.dumps(head, ensure_ascii=True, separators=(",", ":")).replace('{"model":"mini"', '\n{"model":"mini"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
