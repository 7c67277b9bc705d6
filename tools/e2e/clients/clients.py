"""Python clients against a running server, each with its defaults.

    python3 clients/install.py DIR
    cd tools/e2e && go test . -run TestClients -clients DIR

cases.py says what is asked, and what is printed.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile

from cases import AGAIN, ASKED, MESSAGES, QUESTION, REPORT, REPORTED, RESULT, SYSTEM, TOOLS, WEATHER, Client, Weather, check, forecast, main, spoken


def results(calls):
    return [{"role": "tool", "tool_call_id": c.id, "content": RESULT} for c in calls]


def counts(usage):
    return usage.prompt_tokens, usage.completion_tokens, usage.total_tokens


class OpenAI(Client):
    name = "openai"

    def create(self, messages=MESSAGES, **more):
        return self.chat().create(model=self.model, messages=messages, **more)

    def chat(self):
        from openai import OpenAI
        return OpenAI(base_url=self.url, api_key="none").chat.completions

    def whole(self):
        return self.create()

    def streamed(self):
        return list(self.create(stream=True, stream_options={"include_usage": True}))

    def called(self):
        choice = self.create(ASKED, tools=TOOLS, tool_choice="required").choices[0]
        check(choice.finish_reason == "tool_calls", choice)
        return choice.message

    def conversation(self):
        """The first turn with its result, and the answer to it."""
        called = self.once(self.called)
        turns = [*ASKED, called, *results(called.tool_calls)]
        return [*turns, self.create(turns, tools=TOOLS).choices[0].message]

    def text(self):
        return self.once(self.whole).choices[0].message.content

    def stream(self):
        return "".join(k.choices[0].delta.content or "" for k in self.once(self.streamed) if k.choices)

    def tools(self):
        calls = [(t.function.name, t.function.arguments) for t in self.once(self.called).tool_calls]
        with self.chat().stream(model=self.model, messages=ASKED, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "forecast"}}) as s:
            check(json.loads(s.get_final_completion().choices[0].message.tool_calls[0].function.arguments)["city"] in ("Paris", "London"))
        return calls

    def structured(self):
        return self.chat().parse(model=self.model, messages=REPORTED, response_format=Weather).choices[0].message.parsed

    def second_turn(self):
        last = self.once(self.conversation)[-1]
        return last.content or json.dumps([t.function.arguments for t in last.tool_calls or []])

    def third_turn(self):
        turns = [*self.once(self.conversation)]
        turns += results(turns[-1].tool_calls or [])
        return self.create([*turns, {"role": "user", "content": AGAIN}], tools=TOOLS).choices[0].message.content or ""

    def usage(self):
        return [counts(self.once(self.whole).usage), counts(self.once(self.streamed)[-1].usage)]


class LiteLLM(OpenAI):
    name = "litellm"
    providers = "hosted_vllm", "openai"

    def create(self, messages=MESSAGES, provider="hosted_vllm", **more):
        import litellm
        return litellm.completion(model=f"{provider}/{self.model}", api_base=self.url, api_key="none", messages=messages, **more)

    def text(self):
        other = self.create(provider="openai").choices[0].message.content
        return other and self.once(self.whole).choices[0].message.content

    def tools(self):
        for provider in self.providers:
            made = self.create(ASKED, provider, tools=TOOLS, tool_choice="required").choices[0].message.tool_calls
            calls = [(t.function.name, t.function.arguments) for t in made]
        return calls

    def structured(self):
        for provider in self.providers:
            got = Weather.model_validate_json(self.create(REPORTED, provider, response_format=Weather).choices[0].message.content)
        return got

    def usage(self):
        import litellm
        built = litellm.stream_chunk_builder(self.once(self.streamed), messages=MESSAGES)
        return [counts(self.once(self.whole).usage), counts(built.usage)]


class LangChain(Client):
    name = "langchain-openai"

    def model_(self):
        from langchain_openai import ChatOpenAI
        return ChatOpenAI(base_url=self.url, api_key="none", model=self.model)

    def armed(self, **more):
        from langchain_core.tools import tool
        return self.model_().bind_tools([tool(forecast)], **more)

    def joined(self, model, ask):
        full = None
        for piece in model.stream(ask):
            full = piece if full is None else full + piece
        return full

    def whole(self):
        return self.model_().invoke(QUESTION)

    def called(self):
        return self.joined(self.armed(tool_choice="forecast"), WEATHER)

    def conversation(self):
        from langchain_core.messages import HumanMessage, ToolMessage
        full = self.once(self.called)
        turns = [HumanMessage(WEATHER), full, *(ToolMessage(RESULT, tool_call_id=t["id"]) for t in full.tool_calls)]
        return [*turns, self.armed().invoke(turns)]

    def text(self):
        return self.once(self.whole).content

    def stream(self):
        return self.joined(self.model_(), QUESTION).content

    def tools(self):
        check(self.armed(tool_choice="any").invoke(WEATHER).tool_calls, "no calls")
        return [(t["name"], t["args"]) for t in self.once(self.called).tool_calls]

    def structured(self):
        self.model_().with_structured_output(Weather, method="function_calling").invoke(REPORT)
        return self.model_().with_structured_output(Weather).invoke(REPORT)

    def second_turn(self):
        last = self.once(self.conversation)[-1]
        return last.content or json.dumps([t["args"] for t in last.tool_calls])

    def third_turn(self):
        from langchain_core.messages import HumanMessage, ToolMessage
        turns = [*self.once(self.conversation)]
        turns += [ToolMessage(RESULT, tool_call_id=t["id"]) for t in turns[-1].tool_calls]
        return self.armed().invoke([*turns, HumanMessage(AGAIN)]).content

    def usage(self):
        u = self.once(self.whole).usage_metadata
        return [(u["input_tokens"], u["output_tokens"], u["total_tokens"])]


class Instructor(Client):
    """Each of its answers is an object: a call of a tool, or JSON by a schema."""
    name = "instructor"
    expected = {**Client.expected, "stream": Client.expected["structured"], "tools": Client.expected["structured"],
                "second turn": {"kind": "snow", "cold": True, "days": 2}, "third turn": {"kind": "sun", "cold": False, "days": 5}}

    def chat(self, **more):
        import instructor
        from openai import OpenAI
        return instructor.from_openai(OpenAI(base_url=self.url, api_key="none"), **more).chat.completions

    def created(self):
        return self.chat().create_with_completion(model=self.model, messages=REPORTED, response_model=Weather)

    def after(self, turns, raw, ask):
        said = raw.choices[0].message
        return [*turns, said.model_dump(), *results(said.tool_calls), {"role": "user", "content": ask}]

    def conversation(self):
        turns = self.after(REPORTED, self.once(self.created)[1], "Now it snows for 2 days, and it is cold. Give me this weather.")
        return turns, self.chat().create_with_completion(model=self.model, messages=turns, response_model=Weather)

    def text(self):
        return self.chat().create(model=self.model, messages=MESSAGES, response_model=None).choices[0].message.content

    def stream(self):
        return list(self.chat().create_partial(model=self.model, messages=REPORTED, response_model=Weather))[-1]

    def tools(self):
        return [(t.function.name, t.function.arguments) for t in self.once(self.created)[1].choices[0].message.tool_calls]

    def structured(self):
        import instructor
        return self.chat(mode=instructor.Mode.JSON_SCHEMA).create(model=self.model, messages=REPORTED, response_model=Weather)

    def second_turn(self):
        return self.once(self.conversation)[1][0]

    def third_turn(self):
        turns, (_, raw) = self.once(self.conversation)
        turns = self.after(turns, raw, "Now the sun shines for 5 days, and it is not cold. Give me this weather.")
        return self.chat().create(model=self.model, messages=turns, response_model=Weather)

    def usage(self):
        return [counts(self.once(self.created)[1].usage)]


class PydanticAI(Client):
    name = "pydantic-ai"
    package = "pydantic-ai-slim"

    def agent(self, **more):
        from pydantic_ai import Agent
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider
        return Agent(OpenAIChatModel(self.model, provider=OpenAIProvider(base_url=self.url, api_key="none")), **more)

    def armed(self):
        return self.agent(instructions=SYSTEM, tools=[forecast])

    def whole(self):
        return self.agent(instructions=SYSTEM).run_sync(QUESTION)

    def conversation(self):
        return self.armed().run_sync(WEATHER)

    def text(self):
        return self.once(self.whole).output

    def stream(self):
        async def streamed():
            async with self.agent(instructions=SYSTEM).run_stream(QUESTION) as r:
                text = "".join([t async for t in r.stream_text(delta=True)])
            async with self.agent(output_type=Weather).run_stream(REPORT) as r:
                check(isinstance(await r.get_output(), Weather), r)
            return text
        return asyncio.run(streamed())

    def tools(self):
        """A function as the type of the output: its call is required."""
        ran = self.agent(output_type=forecast).run_sync(WEATHER)
        check(ran.output == RESULT, ran.output)
        return [(p.tool_name, p.args) for m in ran.all_messages() for p in m.parts if p.part_kind == "tool-call"]

    def structured(self):
        return self.agent(output_type=Weather).run_sync(REPORT).output

    def second_turn(self):
        return self.once(self.conversation).output

    def third_turn(self):
        return self.armed().run_sync(AGAIN, message_history=self.once(self.conversation).all_messages()).output

    def usage(self):
        usage = self.once(self.whole).usage
        usage = usage() if callable(usage) else usage
        return [(usage.input_tokens, usage.output_tokens, None)]


class OpenAIAgents(Client):
    name = "openai-agents"

    def ran(self, ask, streamed=False, **more):
        import agents
        from openai import AsyncOpenAI
        agents.set_tracing_disabled(True)

        async def go():
            m = agents.OpenAIChatCompletionsModel(model=self.model, openai_client=AsyncOpenAI(base_url=self.url, api_key="none"))
            agent = agents.Agent(name="one", instructions=SYSTEM, model=m, **more)
            if not streamed:
                return await agents.Runner.run(agent, ask)
            s = agents.Runner.run_streamed(agent, ask)
            kinds = {e.type async for e in s.stream_events()}
            check({"raw_response_event", "run_item_stream_event"} <= kinds, kinds)
            return s
        return asyncio.run(go())

    def armed(self, ask, **more):
        """The tool must be called; the turn that follows it is the agent's own."""
        import agents
        settings = agents.ModelSettings(tool_choice="required")
        return self.ran(ask, tools=[agents.function_tool(forecast)], model_settings=settings, **more)

    def whole(self):
        return self.ran(QUESTION)

    def conversation(self):
        return self.armed(WEATHER)

    def text(self):
        return self.once(self.whole).final_output

    def stream(self):
        return self.ran(QUESTION, streamed=True).final_output

    def tools(self):
        check([i for i in self.armed(WEATHER, streamed=True).new_items if i.type == "tool_call_output_item"], "no call in the stream")
        return [(i.raw_item.name, i.raw_item.arguments) for i in self.once(self.conversation).new_items if i.type == "tool_call_item"]

    def structured(self):
        return self.ran(REPORT, output_type=Weather).final_output

    def second_turn(self):
        return self.once(self.conversation).final_output

    def third_turn(self):
        import agents
        turns = self.once(self.conversation).to_input_list() + [{"role": "user", "content": AGAIN}]
        return self.ran(turns, tools=[agents.function_tool(forecast)]).final_output

    def usage(self):
        usage = self.once(self.whole).context_wrapper.usage
        return [(usage.input_tokens, usage.output_tokens, usage.total_tokens)]


class LLM(Client):
    """The command line, as it is used. It can't require a call of a tool: one that is offered must not disturb."""
    name = "llm"
    requires = False
    expected = {**Client.expected, "tools": {}, "second turn": ("rome",), "third turn": ("madrid",)}

    def ask(self, *args):
        home = self.once(self.home).name
        with open(os.path.join(home, "extra-openai-models.yaml"), "w") as f:  # JSON is YAML
            json.dump([{"model_id": "local", "model_name": self.model, "api_base": self.url, "supports_schema": True, "supports_tools": True}], f)
        command = [os.path.join(os.path.dirname(sys.executable), "llm"), "-m", "local", "--key", "none", *args]
        done = subprocess.run(command, env={**os.environ, "LLM_USER_PATH": home}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
        check(done.returncode == 0, done.stdout, done.stderr)
        return done.stdout.strip(), done.stderr

    def home(self):
        return tempfile.TemporaryDirectory()

    def first(self):
        return self.ask("--no-stream", "-u", QUESTION)

    def conversation(self):
        self.first()
        return self.ask("-c", "And of Italy?")[0]

    def text(self):
        return self.once(self.first)[0]

    def stream(self):
        return self.ask(QUESTION)[0]

    def tools(self):
        said, calls = self.ask("-T", "llm_version", "--td", "Which version of llm is this?")
        spoken(said)
        return [("llm_version", {}) for line in calls.splitlines() if "llm_version" in line]

    def structured(self):
        return json.loads(self.ask("--schema", json.dumps(Weather.model_json_schema()), REPORT)[0])

    def second_turn(self):
        return self.once(self.conversation)

    def third_turn(self):
        self.once(self.conversation)
        return self.ask("-c", "And of Spain?")[0]

    def usage(self):
        numbers = re.findall(r"([\d,]+) input, ([\d,]+) output", self.once(self.first)[1])
        return [(int(a.replace(",", "")), int(b.replace(",", "")), None) for a, b in numbers]


class LMEval(Client):
    name = "lm-eval"

    def text(self):
        from lm_eval.api.instance import Instance
        from lm_eval.models.openai_completions import LocalChatCompletion, LocalCompletionsAPI

        def instance(kind, *args):
            return Instance(request_type=kind, doc={}, arguments=args, idx=0)
        options = {"until": ["\n\n"], "max_gen_toks": 24}
        chat = LocalChatCompletion(base_url=self.url + "/chat/completions", model=self.model)
        said = chat.generate_until([instance("generate_until", [{"role": "user", "content": QUESTION}], options)], disable_tqdm=True)
        check(isinstance(said[0], str), said)
        plain = LocalCompletionsAPI(base_url=self.url + "/completions", model=self.model, tokenizer_backend="remote")
        written = plain.generate_until([instance("generate_until", "The capital of France is", options)], disable_tqdm=True)
        (score, greedy), = plain.loglikelihood([instance("loglikelihood", "The capital of France is", " Paris")], disable_tqdm=True)
        check(isinstance(written[0], str) and score < 0 and greedy in (True, False), written, score, greedy)
        return said[0] or "none, and log-likelihoods"


if __name__ == "__main__":
    main()
