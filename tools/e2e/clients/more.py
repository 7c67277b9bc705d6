"""More Python clients, mostly agents, against a running server, each with its defaults.

    python3 clients/install.py DIR more
    cd tools/e2e && go test . -run TestClients -clients DIR -client-results FILE

Their packages stand beside those of clients.py, in DIR/more, as the versions that they need are not the same.
"""

import asyncio
import json
from typing import Literal

from cases import AGAIN, ASKED, MESSAGES, QUESTION, REPORT, REPORTED, RESULT, SYSTEM, TOOLS, WEATHER, Client, Weather, check, forecast, main, spoken


def counts(usage):
    return usage.prompt_tokens, usage.completion_tokens, usage.total_tokens


class LangGraph(Client):
    """An agent of langchain, which is a graph. It decides itself whether it calls a tool."""
    name = "langgraph"
    requires = False

    def agent(self, tools=(), **more):
        from langchain.agents import create_agent
        from langchain_openai import ChatOpenAI
        return create_agent(ChatOpenAI(base_url=self.url, api_key="none", model=self.model), tools=list(tools), system_prompt=SYSTEM, **more)

    def whole(self):
        return self.agent().invoke({"messages": [("user", QUESTION)]})["messages"]

    def conversation(self):
        return self.agent([forecast]).invoke({"messages": [("user", WEATHER)]}, {"recursion_limit": 10})["messages"]

    def text(self):
        return self.once(self.whole)[-1].content

    def stream(self):
        return "".join(chunk.content for chunk, _ in self.agent().stream({"messages": [("user", QUESTION)]}, stream_mode="messages"))

    def tools(self):
        spoken(self.once(self.conversation)[-1].content)
        return [(t["name"], t["args"]) for m in self.once(self.conversation) for t in getattr(m, "tool_calls", [])]

    def structured(self):
        from langchain.agents.structured_output import ProviderStrategy
        return self.agent(response_format=ProviderStrategy(Weather)).invoke({"messages": [("user", REPORT)]})["structured_response"]

    def second_turn(self):
        return self.once(self.conversation)[-1].content

    def third_turn(self):
        turns = [*self.once(self.conversation), ("user", AGAIN)]
        return self.agent([forecast]).invoke({"messages": turns}, {"recursion_limit": 10})["messages"][-1].content

    def usage(self):
        u = self.once(self.whole)[-1].usage_metadata
        return [(u["input_tokens"], u["output_tokens"], u["total_tokens"])]


class LlamaIndex(Client):
    name = "llama-index"
    package = "llama-index-llms-openai-like"

    def llm(self):
        from llama_index.llms.openai_like import OpenAILike
        return OpenAILike(model=self.model, api_base=self.url, api_key="none", is_chat_model=True, is_function_calling_model=True)

    def message(self, role, content):
        from llama_index.core.llms import ChatMessage
        return ChatMessage(role=role, content=content)

    def tool(self):
        from llama_index.core.tools import FunctionTool
        return FunctionTool.from_defaults(forecast)

    def messages(self, asked):
        return [self.message(m["role"], m["content"]) for m in asked]

    def whole(self):
        return self.llm().chat(self.messages(MESSAGES))

    def called(self):
        return self.llm().chat_with_tools([self.tool()], chat_history=self.messages(ASKED), tool_required=True)

    def results(self, message):
        """The results of the calls of a message."""
        from llama_index.core.llms import ChatMessage
        calls = self.llm().get_tool_calls_from_response(message, error_on_no_tool_call=False)
        return [message.message, *(ChatMessage(role="tool", content=RESULT, additional_kwargs={"tool_call_id": c.tool_id}) for c in calls)]

    def conversation(self):
        turns = [*self.messages(ASKED), *self.results(self.once(self.called))]
        last = self.llm().chat_with_tools([self.tool()], chat_history=turns)
        return [*turns, *self.results(last)], last

    def text(self):
        return self.once(self.whole).message.content

    def stream(self):
        return "".join(r.delta or "" for r in self.llm().stream_chat(self.messages(MESSAGES)))

    def tools(self):
        return [(c.tool_name, c.tool_kwargs) for c in self.llm().get_tool_calls_from_response(self.once(self.called), error_on_no_tool_call=False)]

    def structured(self):
        return self.llm().as_structured_llm(Weather).chat(self.messages(REPORTED)).raw

    def second_turn(self):
        last = self.once(self.conversation)[1]
        return last.message.content or json.dumps([c.tool_kwargs for c in self.llm().get_tool_calls_from_response(last, error_on_no_tool_call=False)])

    def third_turn(self):
        turns = [*self.once(self.conversation)[0], self.message("user", AGAIN)]
        return self.llm().chat_with_tools([self.tool()], chat_history=turns).message.content or ""

    def usage(self):
        return [counts(self.once(self.whole).raw.usage)]


class SmolAgents(Client):
    """Its model requires a call in each turn of an agent; final_answer is a tool too."""
    name = "smolagents"

    def llm(self):
        from smolagents import OpenAIModel
        return OpenAIModel(model_id=self.model, api_base=self.url, api_key="none")

    def tool(self):
        from smolagents import tool
        return tool(forecast)

    def messages(self, asked):
        return [{"role": m["role"], "content": [{"type": "text", "text": m["content"]}]} for m in asked]

    def whole(self):
        return self.llm().generate(self.messages(MESSAGES))

    def conversation(self):
        from smolagents import ToolCallingAgent
        agent = ToolCallingAgent(tools=[self.tool()], model=self.llm(), max_steps=3, verbosity_level=0)
        return agent, agent.run(WEATHER)

    def text(self):
        return self.once(self.whole).content

    def stream(self):
        return "".join(d.content or "" for d in self.llm().generate_stream(self.messages(MESSAGES)))

    def tools(self):
        got = self.llm().generate(self.messages(ASKED), tools_to_call_from=[self.tool()])
        return [(t.function.name, t.function.arguments) for t in got.tool_calls or []]

    def structured(self):
        schema = {"name": "weather", "strict": True, "schema": {**Weather.model_json_schema(), "additionalProperties": False}}
        return json.loads(self.llm().generate(self.messages(REPORTED), response_format={"type": "json_schema", "json_schema": schema}).content)

    def second_turn(self):
        return str(self.once(self.conversation)[1])

    def third_turn(self):
        agent, _ = self.once(self.conversation)
        agent.model = self.llm()
        return str(agent.run(AGAIN, reset=False))

    def usage(self):
        u = self.once(self.whole).token_usage
        return [(u.input_tokens, u.output_tokens, u.total_tokens)]


class DSPy(Client):
    """Its programs fill in fields of an answer, by markers in the text or by JSON. Calls of tools are passed through."""
    name = "dspy"

    def lm(self):
        import dspy
        return dspy.LM("hosted_vllm/" + self.model, api_base=self.url, api_key="none", cache=False)

    def talk(self, messages=MESSAGES, **more):
        said = self.lm()(messages=messages, **more)[0]
        if isinstance(said, str):
            return said
        return said.get("text") or json.dumps([c.function.arguments for c in said.get("tool_calls") or []])

    def whole(self):
        lm = self.lm()
        return lm(messages=MESSAGES)[0], lm.history[-1]["usage"]

    def called(self):
        return self.lm()(messages=ASKED, tools=TOOLS, tool_choice="required")[0]["tool_calls"]

    def conversation(self):
        calls = self.once(self.called)
        said = [{"id": c.id, "type": "function", "function": {"name": c.function.name, "arguments": c.function.arguments}} for c in calls]
        turns = [*ASKED, {"role": "assistant", "content": None, "tool_calls": said}]
        turns += [{"role": "tool", "tool_call_id": c.id, "content": RESULT} for c in calls]
        return turns, self.talk(turns, tools=TOOLS)

    def text(self):
        """The answer of a program; without markers in the model's answer, the model's words."""
        import dspy
        try:
            with dspy.context(lm=self.lm(), adapter=dspy.ChatAdapter(use_json_adapter_fallback=False)):
                return dspy.Predict("question -> answer")(question=QUESTION).answer
        except dspy.utils.exceptions.AdapterParseError as err:
            return err.lm_response

    def stream(self):
        import dspy

        class Ask(dspy.Module):
            def forward(_, lm):
                return dspy.Prediction(answer=lm(messages=MESSAGES)[0])

        async def streamed():
            text = ""
            async for piece in dspy.streamify(Ask())(lm=self.lm()):
                text += piece.choices[0].delta.content or "" if hasattr(piece, "choices") else ""
            return text
        return asyncio.run(streamed())

    def tools(self):
        return [(c.function.name, c.function.arguments) for c in self.once(self.called)]

    def structured(self):
        return Weather.model_validate_json(self.talk(REPORTED, response_format=Weather))

    def second_turn(self):
        return self.once(self.conversation)[1]

    def third_turn(self):
        turns, last = self.once(self.conversation)
        return self.talk([*turns, {"role": "assistant", "content": last}, {"role": "user", "content": AGAIN}], tools=TOOLS)

    def usage(self):
        u = self.once(self.whole)[1]
        return [(u["prompt_tokens"], u["completion_tokens"], u["total_tokens"])]


class Guidance(Client):
    """A program of roles and generations. It always streams, and runs itself the tools that the model calls."""
    name = "guidance"

    def begun(self):
        from guidance import models, system
        lm = models.OpenAI(self.model, base_url=self.url, api_key="none", echo=False)
        with system():
            lm += SYSTEM
        return lm

    def asked(self, lm, ask, answer):
        from guidance import assistant, user
        with user():
            lm += ask
        with assistant():
            lm += answer
        return lm

    def whole(self):
        from guidance import gen
        return self.asked(self.begun(), QUESTION, gen("answer"))

    def called(self):
        """The model after its call, with the result, and the arguments of the calls."""
        from guidance import gen
        calls = []

        def forecast(city: Literal["Paris", "London"], days: int):
            """The weather of the next days."""
            calls.append(("forecast", {"city": city, "days": days}))
            return RESULT
        return self.asked(self.begun(), WEATHER, gen(tools=[forecast], tool_choice="required")), calls

    def conversation(self):
        from guidance import assistant, gen
        lm, _ = self.once(self.called)
        with assistant():
            lm += gen("answer")
        return lm

    def text(self):
        return self.once(self.whole)["answer"]

    def stream(self):
        import guidance

        @guidance.guidance(dedent=False)
        def answered(lm):
            return self.asked(lm, QUESTION, guidance.gen("answer"))
        states = list(self.begun().stream() + answered())
        check(len(states) > 1, states)
        return states[-1]["answer"]

    def tools(self):
        return self.once(self.called)[1]

    def structured(self):
        from guidance import json as shaped
        return json.loads(self.asked(self.begun(), REPORT, shaped("weather", schema=Weather))["weather"])

    def second_turn(self):
        return self.once(self.conversation)["answer"]

    def third_turn(self):
        from guidance import gen
        return self.asked(self.once(self.conversation), AGAIN, gen("again"))["again"]

    def usage(self):
        u = self.once(self.whole)._get_usage()
        return [(u.input_tokens, u.output_tokens, None)]


class Mirascope(Client):
    """It has no choice of tools but the model's."""
    name = "mirascope"
    requires = False

    def call(self, ask=QUESTION, **more):
        return self.lm().call(self.messages(ask), **more)

    def lm(self):
        from mirascope import llm
        llm.register_provider("openai:completions", scope="openai/", base_url=self.url, api_key="none")
        return llm.model("openai/" + self.model)

    def messages(self, ask):
        from mirascope import llm
        return [llm.messages.system(SYSTEM), llm.messages.user(ask)]

    def whole(self):
        return self.call()

    def called(self):
        from mirascope import llm
        return self.call(WEATHER, tools=[llm.tool(forecast)])

    def conversation(self):
        called = self.once(self.called)
        return called.resume(called.execute_tools()) if called.tool_calls else called

    def text(self):
        return self.once(self.whole).text()

    def stream(self):
        return "".join(self.lm().stream(self.messages(QUESTION)).text_stream())

    def tools(self):
        spoken(self.once(self.called).text())
        return [(t.name, t.args) for t in self.once(self.called).tool_calls]

    def structured(self):
        return self.call(REPORT, format=Weather).parse()

    def second_turn(self):
        return self.once(self.conversation).text()

    def third_turn(self):
        self.lm()  # the URL of this case
        return self.once(self.conversation).resume(AGAIN).text()

    def usage(self):
        u = self.once(self.whole).usage
        return [(u.input_tokens, u.output_tokens, u.total_tokens)]


if __name__ == "__main__":
    main()
