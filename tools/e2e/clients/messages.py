"""Python clients of /v1/messages, Anthropic's API, and what they do by default.

    python3 clients/install.py DIR
    cd tools/e2e && go test . -run TestClients -clients DIR

cases.py says what is asked, and what is printed.
"""

import json
import uuid

import clients
from cases import ABOUT, AGAIN, CLIENTS, PARAMETERS, QUESTION, REPORT, RESULT, SYSTEM, WEATHER, Client, Weather, check, main

CLIENTS.clear()  # clients.py runs those of chat completions
TOOLS = [{"name": "forecast", "description": ABOUT, "input_schema": PARAMETERS}]
MOST = 600  # output tokens, which requests to this API must name


class Anthropic(Client):
    name = "anthropic"

    @property
    def host(self):
        return self.url.removesuffix("/v1")

    def api(self):
        from anthropic import Anthropic
        return Anthropic(base_url=self.host, api_key="none")

    def create(self, *turns, **more):
        return self.api().messages.create(model=self.model, max_tokens=MOST, system=SYSTEM, messages=self.turns(turns), **more)

    def turns(self, all):
        return [t if isinstance(t, dict) else {"role": "user", "content": t} for t in all]

    def results(self, r):
        return [{"type": "tool_result", "tool_use_id": b.id, "content": RESULT} for b in r.content if b.type == "tool_use"]

    def said(self, r):
        return "".join(b.text for b in r.content if b.type == "text") or json.dumps([b.input for b in r.content if b.type == "tool_use"])

    def whole(self):
        return self.create(QUESTION)

    def streamed(self):
        with self.api().messages.stream(model=self.model, max_tokens=MOST, system=SYSTEM, messages=self.turns([QUESTION])) as s:
            text = "".join(s.text_stream)
            final = s.get_final_message()
        check(self.said(final) == (text or "[]"), final, text)
        return text, final

    def called(self):
        r = self.create(WEATHER, tools=TOOLS, tool_choice={"type": "any"})
        check(r.stop_reason == "tool_use", r)
        return r

    def conversation(self):
        called = self.once(self.called)
        turns = [WEATHER, {"role": "assistant", "content": called.content}, {"role": "user", "content": self.results(called)}]
        return turns, self.create(*turns, tools=TOOLS)

    def text(self):
        api, r = self.api(), self.once(self.whole)
        counted = api.messages.count_tokens(model=self.model, system=SYSTEM, messages=self.turns([QUESTION])).input_tokens
        check(counted == r.usage.input_tokens + r.usage.cache_read_input_tokens, counted, r.usage)
        check(api.models.retrieve(list(api.models.list())[0].id).type == "model")
        return self.said(r)

    def stream(self):
        return self.once(self.streamed)[0]

    def tools(self):
        choice = {"type": "tool", "name": "forecast", "disable_parallel_tool_use": True}
        with self.api().messages.stream(model=self.model, max_tokens=MOST, messages=self.turns([WEATHER]), tools=TOOLS, tool_choice=choice) as s:
            check(s.get_final_message().content[-1].input["city"] in ("Paris", "London"))
        return [(b.name, b.input) for b in self.once(self.called).content if b.type == "tool_use"]

    def structured(self):
        return self.api().messages.parse(model=self.model, max_tokens=MOST, messages=self.turns([REPORT]), output_format=Weather).parsed_output

    def second_turn(self):
        return self.said(self.once(self.conversation)[1])

    def third_turn(self):
        turns, last = self.once(self.conversation)
        given = [{"role": "assistant", "content": last.content}] if last.content else []
        r = self.create(*turns, *given, {"role": "user", "content": [*self.results(last), {"type": "text", "text": AGAIN}]}, tools=TOOLS)
        check(r.usage.cache_read_input_tokens > 0, r.usage)
        return self.said(r)

    def usage(self):
        return [self.counts(self.once(self.whole).usage), self.counts(self.once(self.streamed)[1].usage), self.counts(self.cached())]

    def counts(self, u):
        prompt = u.input_tokens + u.cache_read_input_tokens + u.cache_creation_input_tokens
        return prompt, u.output_tokens, prompt + u.output_tokens

    def cached(self):
        """The second request with a system prompt finds it, whatever nonce one client puts before it."""
        usages, prompt = [], f"{uuid.uuid4()} Light is a wave, and it moves. " * 8
        for nonce in ("a1b2c", "d3e4f"):
            system = [{"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1.37.1; cc_entrypoint=cli; cch={nonce};"},
                      {"type": "text", "text": prompt, "cache_control": {"type": "ephemeral"}}]
            usages.append(self.api().messages.create(model=self.model, max_tokens=2, system=system, messages=self.turns([nonce])).usage)
        check(usages[0].cache_creation_input_tokens > 64 and usages[1].cache_read_input_tokens > 64, usages)
        return usages[1]


class LiteLLM(clients.LiteLLM):
    """Its bridge from OpenAI's form to this API."""
    name = "litellm-anthropic"
    package = "litellm"
    providers = "anthropic",

    def create(self, messages=clients.MESSAGES, provider="anthropic", **more):
        import litellm
        return litellm.completion(model=f"anthropic/{self.model}", api_base=self.url.removesuffix("/v1"), api_key="none", max_tokens=MOST, messages=messages, **more)


class LangChain(clients.LangChain):
    name = "langchain-anthropic"

    def model_(self):
        from langchain_anthropic import ChatAnthropic
        return ChatAnthropic(base_url=self.url.removesuffix("/v1"), api_key="none", model=self.model, max_tokens=MOST)

    def conversation(self):
        turns = super().conversation()
        turns[-1].content = self.plain(turns[-1].content)
        return turns

    def plain(self, content):
        """Its content is a text, or blocks if there are calls."""
        return content if isinstance(content, str) else "".join(b.get("text", "") for b in content)

    def third_turn(self):
        return self.plain(super().third_turn())


class PydanticAI(clients.PydanticAI):
    name = "pydantic-ai-anthropic"

    def agent(self, **more):
        from pydantic_ai import Agent
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider
        provider = AnthropicProvider(base_url=self.url.removesuffix("/v1"), api_key="none")
        return Agent(AnthropicModel(self.model, provider=provider), model_settings={"max_tokens": MOST}, **more)


if __name__ == "__main__":
    main()
