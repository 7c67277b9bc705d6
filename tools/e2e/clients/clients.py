"""What Python clients get from a running server, each with its defaults.

    python3 clients/install.py DIR
    DIR/py/bin/python clients/clients.py --url http://127.0.0.1:8080 [client...]

It prints a line of JSON for each client: its version, and for each column of the table
"yes", "–" where the client has nothing of the kind, or what went wrong.
"""

import argparse
import asyncio
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from typing import Literal

import pydantic

COLUMNS = ["text", "stream", "tools", "structured", "second turn", "usage"]
NONE = "–"
CLIENTS = {}
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is the weather like?"}]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "London"]}, "days": {"type": "integer"}},
              "required": ["city", "days"], "additionalProperties": False}
TOOLS = [{"type": "function", "function": {"name": "forecast", "description": "The weather of the next days.", "parameters": PARAMETERS}}]


class Weather(pydantic.BaseModel):
    """Values of few words each: a generated model would not come to the end of a text."""
    kind: Literal["sun", "rain", "snow"]
    cold: bool
    days: int


def client(name, package=None):
    def add(f):
        CLIENTS[name] = (package or name, f)
        return f
    return add


def check(ok, *what):
    if not ok:
        raise AssertionError(" ".join(repr(w) for w in what)[:400])


def usage_is(prompt, completion, total=None):
    check(prompt > 0 and completion > 0 and (total is None or total == prompt + completion), "usage", prompt, completion, total)


@client("openai")
def openai_(url, model):
    from openai import OpenAI

    c = OpenAI(base_url=url, api_key="none").chat.completions
    whole = c.create(model=model, messages=MESSAGES)
    yield "text", whole.choices[0].message.content
    chunks = list(c.create(model=model, messages=MESSAGES, stream=True, stream_options={"include_usage": True}))
    yield "stream", "".join(k.choices[0].delta.content or "" for k in chunks if k.choices)
    called = c.create(model=model, messages=MESSAGES, tools=TOOLS, tool_choice="required").choices[0]
    check(called.finish_reason == "tool_calls", called)
    with c.stream(model=model, messages=MESSAGES, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "forecast"}}) as s:
        check(json.loads(s.get_final_completion().choices[0].message.tool_calls[0].function.arguments)["city"] in ("Paris", "London"))
    yield "tools", [json.loads(t.function.arguments)["city"] for t in called.message.tool_calls]
    yield "structured", c.parse(model=model, messages=MESSAGES, response_format=Weather).choices[0].message.parsed
    results = [{"role": "tool", "tool_call_id": t.id, "content": "sunny"} for t in called.message.tool_calls]
    then = c.create(model=model, messages=[*MESSAGES, called.message, *results], tools=TOOLS)
    yield "second turn", then.choices[0].message.content or then.choices[0].message.tool_calls
    usage_is(whole.usage.prompt_tokens, whole.usage.completion_tokens, whole.usage.total_tokens)
    usage_is(chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens, chunks[-1].usage.total_tokens)
    yield "usage", whole.usage


@client("litellm")
def litellm_(url, model):
    import litellm

    for provider in "hosted_vllm", "openai":
        ask = dict(model=f"{provider}/{model}", api_base=url, api_key="none")
        whole = litellm.completion(messages=MESSAGES, **ask)
        yield "text", whole.choices[0].message.content
        chunks = list(litellm.completion(messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **ask))
        yield "stream", "".join(k.choices[0].delta.content or "" for k in chunks)
        built = litellm.stream_chunk_builder(chunks, messages=MESSAGES)
        called = litellm.completion(messages=MESSAGES, tools=TOOLS, tool_choice="required", **ask).choices[0].message
        yield "tools", [json.loads(t.function.arguments)["city"] for t in called.tool_calls]
        yield "structured", Weather.model_validate_json(litellm.completion(messages=MESSAGES, response_format=Weather, **ask).choices[0].message.content)
        results = [{"role": "tool", "tool_call_id": t.id, "content": "sunny"} for t in called.tool_calls]
        litellm.completion(messages=[*MESSAGES, called, *results], tools=TOOLS, **ask)
        yield "second turn", litellm.completion(messages=[*MESSAGES, whole.choices[0].message, {"role": "user", "content": "And tomorrow?"}], **ask).choices[0].message.content
        usage_is(whole.usage.prompt_tokens, whole.usage.completion_tokens, whole.usage.total_tokens)
        usage_is(built.usage.prompt_tokens, built.usage.completion_tokens, built.usage.total_tokens)
        yield "usage", whole.usage


@client("langchain-openai")
def langchain(url, model):
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    @tool
    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    lm = ChatOpenAI(base_url=url, api_key="none", model=model)
    whole = lm.invoke("What is light?")
    yield "text", whole.content
    full = None
    for piece in lm.stream("What is light?"):
        full = piece if full is None else full + piece
    yield "stream", full.content
    called = lm.bind_tools([add], tool_choice="any").invoke("What is two and two?")
    full = None
    for piece in lm.bind_tools([add], tool_choice="add").stream("What is two and two?"):
        full = piece if full is None else full + piece
    yield "tools", called.tool_calls and full.tool_calls
    lm.with_structured_output(Weather, method="function_calling").invoke("The weather?")
    yield "structured", lm.with_structured_output(Weather).invoke("The weather?")
    results = [ToolMessage("4", tool_call_id=t["id"]) for t in full.tool_calls]
    yield "second turn", lm.bind_tools([add]).invoke([HumanMessage("What is two and two?"), full, *results]).content
    usage_is(whole.usage_metadata["input_tokens"], whole.usage_metadata["output_tokens"], whole.usage_metadata["total_tokens"])
    yield "usage", whole.usage_metadata


@client("instructor")
def instructor_(url, model):
    import instructor
    from openai import OpenAI

    c = instructor.from_openai(OpenAI(base_url=url, api_key="none"))
    yield "text", c.chat.completions.create(model=model, messages=MESSAGES, response_model=None).choices[0].message.content
    yield "stream", list(c.chat.completions.create_partial(model=model, messages=MESSAGES, response_model=Weather))[-1]
    got, raw = c.chat.completions.create_with_completion(model=model, messages=MESSAGES, response_model=Weather)
    check(isinstance(got, Weather), got)
    yield "tools", raw.choices[0].message.tool_calls
    j = instructor.from_openai(OpenAI(base_url=url, api_key="none"), mode=instructor.Mode.JSON_SCHEMA)
    yield "structured", j.chat.completions.create(model=model, messages=MESSAGES, response_model=Weather)
    calls = raw.choices[0].message.tool_calls
    again = [*MESSAGES, raw.choices[0].message.model_dump(), *({"role": "tool", "tool_call_id": t.id, "content": "taken"} for t in calls), {"role": "user", "content": "And tomorrow?"}]
    yield "second turn", c.chat.completions.create(model=model, messages=again, response_model=Weather)
    usage_is(raw.usage.prompt_tokens, raw.usage.completion_tokens, raw.usage.total_tokens)
    yield "usage", raw.usage


@client("pydantic-ai", "pydantic-ai-slim")
def pydantic_ai_(url, model):
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    m = OpenAIChatModel(model, provider=OpenAIProvider(base_url=url, api_key="none"))
    agent = Agent(m, instructions="Be brief.")

    @agent.tool_plain
    def now() -> str:
        """The time of the day."""
        return "noon"

    first = agent.run_sync("What is light?")
    yield "text", first.output

    async def streamed():
        async with agent.run_stream("What is light?") as r:
            text = "".join([t async for t in r.stream_text(delta=True)])
        async with Agent(m, output_type=Weather).run_stream("The weather?") as r:
            check(isinstance(await r.get_output(), Weather), r)
        return text
    yield "stream", asyncio.run(streamed())

    def forecast(city: Literal["Paris", "London"], days: int) -> str:
        """The weather of the next days."""
        return f"{city}: {days} days of sun"
    yield "tools", Agent(m, output_type=forecast).run_sync("The weather?").output
    yield "structured", Agent(m, output_type=Weather).run_sync("The weather?").output
    yield "second turn", agent.run_sync("And in water?", message_history=first.all_messages()).output
    usage = first.usage() if callable(first.usage) else first.usage
    usage_is(usage.input_tokens, usage.output_tokens)
    yield "usage", usage


@client("openai-agents")
def openai_agents(url, model):
    import agents
    from openai import AsyncOpenAI

    agents.set_tracing_disabled(True)

    @agents.function_tool
    def forecast(city: Literal["Paris", "London"], days: int) -> str:
        """The weather of the next days."""
        return f"{city}: {days} days of sun"

    async def all_of_it():
        m = agents.OpenAIChatCompletionsModel(model=model, openai_client=AsyncOpenAI(base_url=url, api_key="none"))
        plain = agents.Agent(name="plain", instructions="Be brief.", model=m)
        first = await agents.Runner.run(plain, "What is light?")
        out = {"text": first.final_output}
        s = agents.Runner.run_streamed(plain, "What is light?")
        kinds = [e.type async for e in s.stream_events()]
        check("raw_response_event" in kinds, kinds)
        out["stream"] = s.final_output
        # The tool must be called; the turn that follows it is the agent's own.
        armed = agents.Agent(name="armed", instructions="Be brief.", model=m, tools=[forecast], model_settings=agents.ModelSettings(tool_choice="required"))
        ran = await agents.Runner.run(armed, "The weather?")
        out["tools"] = [i for i in ran.new_items if i.type == "tool_call_output_item"]
        s = agents.Runner.run_streamed(armed, "The weather?")
        check("run_item_stream_event" in [e.type async for e in s.stream_events()])
        out["structured"] = (await agents.Runner.run(agents.Agent(name="shaped", model=m, output_type=Weather), "The weather?")).final_output
        out["second turn"] = (await agents.Runner.run(plain, first.to_input_list() + [{"role": "user", "content": "And in water?"}])).final_output
        usage = first.context_wrapper.usage
        usage_is(usage.input_tokens, usage.output_tokens, usage.total_tokens)
        out["usage"] = usage
        return out
    yield from asyncio.run(all_of_it()).items()


@client("llm")
def llm_(url, model):
    """The command line, as it is used. It can't ask for a call of a tool: one that is offered must not disturb."""
    with tempfile.TemporaryDirectory() as home:
        with open(os.path.join(home, "extra-openai-models.yaml"), "w") as f:
            json.dump([{"model_id": "local", "model_name": model, "api_base": url, "supports_schema": True, "supports_tools": True}], f)  # JSON is YAML

        def ask(*args):
            done = subprocess.run([os.path.join(os.path.dirname(sys.executable), "llm"), "-m", "local", "--key", "none", *args], env={**os.environ, "LLM_USER_PATH": home},
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
            check(done.returncode == 0, done.stdout, done.stderr)
            return done.stdout, done.stderr
        yield "text", ask("--no-stream", "What is light?")[0]
        text, err = ask("-u", "What is light?")
        yield "stream", text
        ask("-T", "llm_version", "What is your version?")
        yield "tools", "offered"
        yield "structured", Weather.model_validate_json(ask("--schema", json.dumps(Weather.model_json_schema()), "The weather?")[0])
        yield "second turn", ask("-c", "And in water?")[0]
        check("input" in err and "output" in err, err)
        yield "usage", err


@client("lm-eval")
def lm_eval_(url, model):
    from lm_eval.api.instance import Instance
    from lm_eval.models.openai_completions import LocalChatCompletion, LocalCompletionsAPI

    def instance(kind, *args):
        return Instance(request_type=kind, doc={}, arguments=args, idx=0)
    chat = LocalChatCompletion(base_url=url + "/chat/completions", model=model)
    said = chat.generate_until([instance("generate_until", [{"role": "user", "content": "What is light?"}], {"until": ["\n\n"], "max_gen_toks": 24})], disable_tqdm=True)
    check(isinstance(said[0], str), said)
    plain = LocalCompletionsAPI(base_url=url + "/completions", model=model, tokenizer_backend="remote")
    said = plain.generate_until([instance("generate_until", "What is light?", {"until": ["\n\n"], "max_gen_toks": 24})], disable_tqdm=True)
    (score, greedy), = plain.loglikelihood([instance("loglikelihood", "What is", " light?")], disable_tqdm=True)
    check(isinstance(said[0], str) and score < 0 and greedy in (True, False), said, score, greedy)
    yield "text", "and log-likelihoods"


def run(name, url, model, tries=3):
    """A model of random weights ends one answer in 300 before its first token: that client begins again."""
    package, f = CLIENTS[name]
    cells, at = {c: NONE for c in COLUMNS}, None
    try:
        for at, got in f(url, model):
            if not got and tries > 1:
                return run(name, url, model, tries - 1)
            check(got, at, "is", got)
            cells[at] = "offered" if got == "offered" else "yes"
    except Exception as err:  # the other clients are of interest all the same
        cells["after " + str(at)] = f"{type(err).__name__}: {err}"[:600]
    return {"client": name, "language": "Python", "version": importlib.metadata.version(package), "cells": cells}


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--url", default="http://127.0.0.1:8080")
    args.add_argument("--model", default="demo")
    args.add_argument("clients", nargs="*")
    args = args.parse_args()
    for name in args.clients or CLIENTS:
        print(json.dumps(run(name, args.url.rstrip("/") + "/v1", args.model)), flush=True)


if __name__ == "__main__":
    main()
