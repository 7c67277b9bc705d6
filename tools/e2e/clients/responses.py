"""Python clients of /v1/responses: those that use it by default, and what they do then.

    python3 clients/install.py DIR
    cd tools/e2e && go test . -run TestClients -clients DIR

cases.py says what is asked, and what is printed.
"""

import asyncio
import json

import clients
from cases import ABOUT, AGAIN, CLIENTS, PARAMETERS, QUESTION, REPORT, RESULT, SYSTEM, WEATHER, Client, Weather, check, forecast, main

CLIENTS.clear()  # clients.py runs those of chat completions
TOOLS = [{"type": "function", "name": "forecast", "description": ABOUT, "parameters": PARAMETERS, "strict": True}]


def counts(usage):
    check(0 <= usage.input_tokens_details.cached_tokens <= usage.input_tokens, usage)
    return usage.input_tokens, usage.output_tokens, usage.total_tokens


class OpenAI(Client):
    """Its second turn gives the items back, its third continues the stored response."""
    name = "openai-responses"
    package = "openai"

    def api(self):
        from openai import OpenAI
        return OpenAI(base_url=self.url, api_key="none").responses

    def create(self, ask, **more):
        return self.api().create(model=self.model, instructions=SYSTEM, input=ask, **more)

    def results(self, r):
        return [{"type": "function_call_output", "call_id": o.call_id, "output": RESULT} for o in r.output if o.type == "function_call"]

    def said(self, r):
        return r.output_text or json.dumps([o.arguments for o in r.output if o.type == "function_call"])

    def whole(self):
        return self.create(QUESTION)

    def streamed(self):
        with self.api().stream(model=self.model, instructions=SYSTEM, input=QUESTION) as s:
            events = list(s)
        numbers = [e.sequence_number for e in events if hasattr(e, "sequence_number")]
        check(numbers == list(range(len(numbers))), numbers)
        check(events[-1].type in ("response.completed", "response.incomplete"), events[-1].type)
        return events

    def called(self):
        r = self.create(WEATHER, tools=TOOLS, tool_choice="required")
        check(all(o.type == "function_call" for o in r.output), r.output)
        return r

    def conversation(self):
        called = self.once(self.called)
        items = [{"role": "user", "content": WEATHER}, *(o.model_dump(exclude_none=True) for o in called.output), *self.results(called)]
        return self.create(items, tools=TOOLS)

    def text(self):
        r = self.once(self.whole)
        check(self.api().retrieve(r.id).output_text == r.output_text, r)
        return r.output_text

    def stream(self):
        return "".join(e.delta for e in self.once(self.streamed) if e.type == "response.output_text.delta")

    def tools(self):
        with self.api().stream(model=self.model, input=WEATHER, tools=TOOLS, tool_choice={"type": "function", "name": "forecast"}) as s:
            call = list(s)[-1].response.output[0]
        check(json.loads(call.arguments)["city"] in ("Paris", "London"), call)
        return [(o.name, o.arguments) for o in self.once(self.called).output]

    def structured(self):
        return self.api().parse(model=self.model, input=REPORT, text_format=Weather).output_parsed

    def second_turn(self):
        return self.said(self.once(self.conversation))

    def third_turn(self):
        last = self.once(self.conversation)
        r = self.create([*self.results(last), {"role": "user", "content": AGAIN}], previous_response_id=last.id, tools=TOOLS)
        check(r.usage.input_tokens_details.cached_tokens >= last.usage.input_tokens // 2, r.usage, last.usage)
        return self.said(r)

    def usage(self):
        return [counts(self.once(self.whole).usage), counts(self.once(self.streamed)[-1].response.usage)]


class LiteLLM(OpenAI):
    name = "litellm-responses"
    package = "litellm"

    def create(self, ask, **more):
        import litellm
        return litellm.responses(model=f"openai/{self.model}", api_base=self.url, api_key="none", instructions=SYSTEM, input=ask, **more)

    def streamed(self):
        events = list(self.create(QUESTION, stream=True))
        check(str(events[-1].type) in ("response.completed", "response.incomplete") or "COMPLE" in str(events[-1].type), events[-1].type)
        return events

    def text(self):
        return self.once(self.whole).output_text

    def conversation(self):
        called = self.once(self.called)
        return self.create(self.results(called), previous_response_id=called.id, tools=TOOLS)

    def structured(self):
        return Weather.model_validate_json(self.create(REPORT, text_format=Weather).output_text)


class PydanticAI(clients.PydanticAI):
    """As Agent("openai:…") does by default."""
    name = "pydantic-ai-responses"

    def agent(self, **more):
        from pydantic_ai import Agent
        from pydantic_ai.models.openai import OpenAIResponsesModel
        from pydantic_ai.providers.openai import OpenAIProvider
        return Agent(OpenAIResponsesModel(self.model, provider=OpenAIProvider(base_url=self.url, api_key="none")), **more)


class OpenAIAgents(clients.OpenAIAgents):
    """The default of its agents. The tools case hands over to an agent with two tools."""
    name = "openai-agents-responses"
    package = "openai-agents"

    def ran(self, ask, streamed=False, **more):
        import agents
        from openai import AsyncOpenAI
        agents.set_tracing_disabled(True)

        async def go():
            agents.set_default_openai_client(AsyncOpenAI(base_url=self.url, api_key="none"), use_for_tracing=False)
            agent = agents.Agent(name="one", instructions=SYSTEM, model=self.model, **more)
            if not streamed:
                return await agents.Runner.run(agent, ask)
            s = agents.Runner.run_streamed(agent, ask)
            kinds = {e.type async for e in s.stream_events()}
            check({"raw_response_event", "run_item_stream_event"} <= kinds, kinds)
            return s
        try:
            return asyncio.run(go())
        except agents.ModelBehaviorError as err:  # so it calls a stream that ends at the limit of tokens
            if "response.incomplete" in str(err):
                raise agents.MaxTurnsExceeded(str(err)) from err
            raise

    def tools(self):
        import agents

        def now() -> str:
            """The time."""
            return "noon"
        expert = agents.Agent(name="expert", model=self.model, tools=[agents.function_tool(forecast), agents.function_tool(now)],
                              model_settings=agents.ModelSettings(tool_choice="forecast"))
        ran = self.ran(WEATHER, handoffs=[expert], model_settings=agents.ModelSettings(tool_choice="required"))
        check(ran.last_agent.name == "expert", ran.last_agent.name)
        check([i for i in self.armed(WEATHER, streamed=True).new_items if i.type == "tool_call_output_item"], "no call in the stream")
        return [(i.raw_item.name, i.raw_item.arguments) for i in ran.new_items if i.type == "tool_call_item"]


if __name__ == "__main__":
    main()
