"""Main paths of a running `coppice serve`, by OpenAI's Python package.

    python3 -m venv venv && venv/bin/pip install openai
    go run ./cmd/coppice serve --addr 127.0.0.1:8080 &
    venv/bin/python tools/e2e/openai_client.py --url http://127.0.0.1:8080

It prints a line for each path and ends with status 1 if one of them failed. With
--key it sends an API key, of an admin.
"""

import argparse
import asyncio
import json
import platform
import sys
import time

import openai

TESTS = []


def path(f):
    TESTS.append(f)
    return f


class Bed:
    def __init__(self, url, key):
        self.url = url.rstrip("/")
        options = {"base_url": self.url + "/v1", "api_key": key, "max_retries": 0, "timeout": 30}
        self.client = openai.OpenAI(**options)
        self.root = openai.OpenAI(**{**options, "base_url": self.url})
        self.later = openai.AsyncOpenAI(**options)
        self.model = self.client.models.list().data[0].id

    def post(self, path, body):
        return self.root.post(path, body=body, cast_to=object)

    def get(self, path):
        return self.root.get(path, cast_to=object)

    def stats(self):
        return self.get("/v1/cache/stats")

    def quiet(self):
        """Waits, not for ever, until nothing runs."""
        end = time.monotonic() + 30
        while True:
            s = self.stats()
            if s["running"] == s["waiting"] == s["held_pages"] == 0:
                assert s["leaked_pages"] == 0, s
                return s
            assert time.monotonic() < end, s
            time.sleep(0.01)


def words(what, n):
    return " ".join(f"{what} {i}." for i in range(n))


def refused(status, param, code, f):
    try:
        f()
    except openai.APIStatusError as err:
        assert (err.status_code, err.param, err.code) == (status, param, code), (err.status_code, err.param, err.code, err.message)
        return type(err).__name__
    raise AssertionError(f"nothing was refused, want {status} {code}")


@path
def models(b):
    m = b.client.models.list().data
    assert len(m) == 1 and b.client.models.retrieve(m[0].id) == m[0]
    return f"{m[0].id}, {m[0].max_model_len} positions"


@path
def completion(b):
    prompt = words("What is light", 20) + str(time.time_ns())
    ask = dict(model=b.model, prompt=prompt, max_tokens=24, seed=7, extra_body={"ignore_eos": True})
    whole = b.client.completions.create(**ask)
    assert whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 24
    again = b.client.completions.create(**ask)
    cached = again.usage.prompt_tokens_details.cached_tokens
    assert again.choices[0].text == whole.choices[0].text and whole.usage.prompt_tokens - 16 <= cached < whole.usage.prompt_tokens
    text, usage = "", None
    for chunk in b.client.completions.create(**ask, stream=True, stream_options={"include_usage": True}):
        text += "".join(c.text for c in chunk.choices)
        usage = chunk.usage or usage
    assert text == whole.choices[0].text and usage.completion_tokens == 24
    return f"{cached} of {whole.usage.prompt_tokens} tokens cached the second time"


@path
def token_ids(b):
    t = b.post("/tokenize", {"model": b.model, "prompt": "What is light?"})
    assert b.post("/detokenize", {"tokens": t["tokens"][1:]})["prompt"] == "What is light?"
    ask = dict(model=b.model, max_tokens=8, seed=7, extra_body={"return_token_ids": True, "ignore_eos": True})
    a = b.client.completions.create(prompt="What is light?", **ask).choices[0]
    c = b.client.completions.create(prompt=[t["tokens"], t["tokens"]], **ask)
    assert [x.text for x in c.choices] == [a.text, a.text] and a.prompt_token_ids == t["tokens"] and len(a.token_ids) == 8
    return f"{t['count']} tokens"


@path
def embeddings(b):
    text = "What is light? " + str(time.time_ns())
    a = b.client.embeddings.create(model=b.model, input=[text, "It is a wave."])  # asks for base64
    plain = b.client.embeddings.create(model=b.model, input=text, encoding_format="float")
    v, w = a.data[0].embedding, plain.data[0].embedding
    assert len(a.data) == 2 and len(v) == len(w) and max(abs(x - y) for x, y in zip(v, w)) < 1e-6 and abs(sum(x * x for x in v) - 1) < 1e-5
    assert a.usage.prompt_tokens > plain.usage.prompt_tokens and len(b.client.embeddings.create(model=b.model, input=[5, 6], dimensions=8).data[0].embedding) == 8
    cached = plain.usage.prompt_tokens_details["cached_tokens"]
    assert cached == plain.usage.prompt_tokens - 1, cached
    refused(400, "input", "invalid_value", lambda: b.client.embeddings.create(model=b.model, input=""))
    return f"{len(v)} values, {cached} tokens cached the second time"


@path
def sampling(b):
    def ids(**more):
        extra = {"return_token_ids": True, "ignore_eos": True, **more.pop("extra", {})}
        return b.client.completions.create(model=b.model, prompt="Light", max_tokens=12, extra_body=extra, **more).choices[0].token_ids

    assert ids(seed=1) == ids(seed=1) != ids(seed=2)
    greedy = ids(temperature=0)
    assert greedy == ids(temperature=0) == ids(seed=5, extra={"top_k": 1})
    assert greedy[0] not in ids(temperature=0, logit_bias={str(greedy[0]): -100})
    assert ids(temperature=0, logit_bias={"70": 100}) == [70] * 12
    assert 71 in ids(temperature=0, logit_bias={"70": 100, "71": 90}, frequency_penalty=2)
    return f"greedy {greedy[:4]}"


@path
def logprobs(b):
    c = b.client.completions.create(model=b.model, prompt="Light", max_tokens=5, temperature=0, logprobs=2, extra_body={"ignore_eos": True}).choices[0]
    assert len(c.logprobs.tokens) == len(c.logprobs.token_logprobs) == len(c.logprobs.top_logprobs) == len(c.logprobs.text_offset) == 5
    d = b.client.chat.completions.create(model=b.model, messages=[{"role": "user", "content": "Light?"}], max_tokens=5, logprobs=True, top_logprobs=2,
                                         extra_body={"ignore_eos": True}).choices[0]
    assert len(d.logprobs.content) == 5 and all(len(t.top_logprobs) == 2 for t in d.logprobs.content)
    return f"{c.logprobs.token_logprobs[0]:.3f}"


@path
def stop(b):
    ask = dict(model=b.model, prompt="Light", max_tokens=80, seed=7, extra_body={"ignore_eos": True})
    text = b.client.completions.create(**ask).choices[0].text
    run = max(text[len(text) // 3:].split("\ufffd"), key=len)[1:-1]
    assert len(run) >= 3, text
    c = b.client.completions.create(**ask, stop=["never said", run]).choices[0]
    assert c.text == text[:text.index(run)] and c.finish_reason == "stop" and c.stop_reason == run
    return repr(run)


@path
def chat(b):
    ask = dict(model=b.model, messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is light?"}],
               max_completion_tokens=16, n=2, seed=7, extra_body={"ignore_eos": True})
    whole = b.client.chat.completions.create(**ask)
    assert [c.message.role for c in whole.choices] == ["assistant"] * 2 and whole.usage.completion_tokens == 32
    text, finish = ["", ""], ["", ""]
    for chunk in b.client.chat.completions.create(**ask, stream=True):
        for c in chunk.choices:
            text[c.index] += c.delta.content or ""
            finish[c.index] += c.finish_reason or ""
    assert text == [c.message.content for c in whole.choices] and finish == ["length"] * 2, (text, finish)
    # The package's own helper, which takes no answer that was cut off.
    ask = dict(model=b.model, messages=ask["messages"], seed=7, extra_body={"regex": "(sun|rain|snow){3}"})
    with b.client.chat.completions.stream(**ask) as events:
        kinds = {e.type for e in events}
        final = events.get_final_completion()
    assert final.choices[0].message.content == b.client.chat.completions.create(**ask).choices[0].message.content
    assert kinds >= {"chunk", "content.delta", "content.done"}, kinds
    return f"{whole.usage.prompt_tokens} prompt tokens"


@path
def turns(b):
    messages, cached = [{"role": "system", "content": words("Rule", 12) + str(time.time_ns())}], []
    for i in range(4):
        messages.append({"role": "user", "content": words(f"And what is {i}", 8)})
        got = b.client.chat.completions.create(model=b.model, messages=messages, max_tokens=8)
        cached.append(got.usage.prompt_tokens_details.cached_tokens)
        messages.append({"role": "assistant", "content": "It is that."})
    assert all(x < y for x, y in zip(cached, cached[1:])), cached
    return f"cached tokens {cached}"


@path
def structured(b):
    schema = {"type": "object", "properties": {"kind": {"enum": ["sun", "rain"]}, "cold": {"type": "boolean"},
                                               "city": {"type": "string", "maxLength": 8}},
              "required": ["kind", "cold", "city"], "additionalProperties": False}
    ask = dict(model=b.model, messages=[{"role": "user", "content": "The weather?"}], max_tokens=200, seed=3)
    got = b.client.chat.completions.create(**ask, response_format={"type": "json_schema", "json_schema": {"name": "weather", "strict": True, "schema": schema}})
    v = json.loads(got.choices[0].message.content)
    assert set(v) == {"kind", "cold", "city"} and v["kind"] in ("sun", "rain") and got.choices[0].finish_reason == "stop"
    whole = 0
    for seed in range(20):
        c = b.client.chat.completions.create(**{**ask, "seed": seed}, response_format={"type": "json_object"}).choices[0]
        if c.finish_reason == "stop":
            assert isinstance(json.loads(c.message.content), dict)
            whole += 1
    assert whole > 0
    date = b.client.completions.create(model=b.model, prompt="On ", max_tokens=20, extra_body={"regex": "20[0-9]{2}-[01][0-9]"}).choices[0].text
    assert len(date) == 7 and date[:2] == "20" and date[4] == "-"
    return f"{v}, {whole} of 20 objects complete, {date}"


@path
def parsed(b):
    """By the package's own parser, from a class."""
    from pydantic import BaseModel, ConfigDict, Field
    from typing import Literal

    class Wind(BaseModel):
        model_config = ConfigDict(extra="forbid")
        origin: Literal["north", "south"]
        strong: bool

    class Weather(BaseModel):
        model_config = ConfigDict(extra="forbid")
        kind: Literal["sun", "rain", "snow"]
        wind: Wind
        marks: list[Literal["a", "b"]] = Field(min_length=1, max_length=3)

    got = b.client.chat.completions.parse(model=b.model, messages=[{"role": "user", "content": "The weather?"}], max_tokens=200, response_format=Weather)
    w = got.choices[0].message.parsed
    assert isinstance(w, Weather), got
    return repr(w)


@path
def errors(b):
    c = b.client
    ask = dict(model=b.model, prompt="Light", max_tokens=4)
    kinds = [
        refused(400, "temperature", "invalid_value", lambda: c.completions.create(**ask, temperature=3)),
        refused(400, "suffix", "unsupported_parameter", lambda: c.completions.create(**ask, suffix="the end")),
        refused(404, "model", "model_not_found", lambda: c.completions.create(**{**ask, "model": "gpt-4"})),
        refused(404, "model", "model_not_found", lambda: c.models.retrieve("gpt-4")),
        refused(404, None, "unknown_url", lambda: c.moderations.create(input="light")),
        refused(408, None, "deadline_exceeded", lambda: c.completions.create(model=b.model, prompt="Light", max_tokens=4000,
                                                                             extra_body={"ignore_eos": True, "coppice": {"timeout": 0.001}})),
        refused(413, None, "body_too_large", lambda: c.completions.create(**{**ask, "prompt": "light " * 2_000_000})),
    ]
    return ", ".join(dict.fromkeys(kinds))


@path
def cancel(b):
    before = b.quiet()["requests"]
    s = b.client.completions.create(model=b.model, prompt="Light", max_tokens=4000, stream=True, extra_body={"ignore_eos": True})
    for _, chunk in zip(range(3), s):
        pass
    s.close()
    after = b.quiet()
    assert after["requests"] == before + 1

    async def leave():
        task = asyncio.create_task(b.later.completions.create(model=b.model, prompt="Light", max_tokens=4000, extra_body={"ignore_eos": True}))
        while b.stats()["requests"] == before + 1:
            await asyncio.sleep(0.001)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return True
        return False  # it was faster
    left = asyncio.run(leave())
    b.quiet()
    return "a stream" + (" and a whole answer" if left else "; the whole answer was faster")


@path
def together(b):
    async def many():
        async def one(i):
            text = ""
            s = await b.later.completions.create(model=b.model, prompt=words("Shared beginning", 20), max_tokens=16, seed=i, stream=True,
                                                 extra_body={"ignore_eos": True})
            async for chunk in s:
                text += chunk.choices[0].text
            return text
        async with b.later:
            return await asyncio.gather(*(one(i % 4) for i in range(32)))
    texts = asyncio.run(many())
    assert len(set(texts)) == 4 and all(texts[i] == texts[i % 4] for i in range(32))
    return "32 streams"


@path
def cache(b):
    kept = words("This is kept", 16) + str(time.time_ns())
    ask = dict(model=b.model, prompt=kept, max_tokens=2)
    refused(400, None, "not_cached", lambda: b.post("/v1/cache/pin", {"prompt": kept, "seconds": 60}))
    b.client.completions.create(**ask)
    cached = lambda **more: b.client.completions.create(**ask, **more).usage.prompt_tokens_details.cached_tokens
    assert cached(extra_body={"cache_salt": str(time.time_ns())}) == 0 < cached()
    pinned = b.post("/v1/cache/pin", {"prompt": kept, "seconds": 60})["pinned_tokens"]
    assert pinned > 0 and pinned % 16 == 0
    tree = b.get("/v1/cache/tree?tokens=4&nodes=100")
    assert any(n["pins"] for n in tree["nodes"]), tree
    assert b.post("/v1/cache/flush", None) == {"status": "ok"}
    assert cached() == 0
    return f"{pinned} tokens pinned, {len(tree['nodes'])} nodes"


@path
def served(b):
    assert b.get("/health") == b.get("/ready") == {"status": "ok"}
    doc = b.get("/openapi.json")
    metrics = b.root.get("/metrics", cast_to=str)
    assert "coppice_time_to_first_token_seconds_bucket" in metrics
    return f"OpenAPI {doc['openapi']} with {len(doc['paths'])} paths, {sum(not l.startswith('#') for l in metrics.splitlines())} series"


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--url", default="http://127.0.0.1:8080")
    args.add_argument("--key", default="none")
    args = args.parse_args()
    b = Bed(args.url, args.key)
    print(f"openai {openai.__version__}, Python {platform.python_version()}, model {b.model}")
    failed = 0
    for test in TESTS:
        try:
            print(f"ok    {test.__name__:<11} {test(b)}", flush=True)
        except Exception as err:  # the others are of interest all the same
            failed += 1
            print(f"FAIL  {test.__name__:<11} {type(err).__name__}: {err}", flush=True)
    print(f"{len(TESTS) - failed} of {len(TESTS)} paths")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
