"""Python clients of Ollama's API, each with its defaults. They can offer tools, and not require a call.

    python3 clients/install.py DIR
    cd tools/e2e && go test . -run TestClients -clients DIR

cases.py says what is asked, and what is printed.
"""

import json

from cases import AGAIN, ASKED, MESSAGES, QUESTION, REPORTED, RESULT, TOOLS, WEATHER, Client, Weather, check, forecast, main


class Ollama(Client):
    name = "ollama"
    requires = False

    def api(self):
        from ollama import Client as Api
        return Api(host=self.url.removesuffix("/v1"))

    def chat(self, messages=MESSAGES, **more):
        return self.api().chat(model=self.model, messages=messages, **more)

    def whole(self):
        return self.chat()

    def streamed(self):
        return list(self.chat(stream=True))

    def called(self):
        return self.chat(ASKED, tools=[forecast]).message

    def conversation(self):
        called = self.once(self.called)
        turns = [*ASKED, called, *({"role": "tool", "tool_name": t.function.name, "content": RESULT} for t in called.tool_calls or [])]
        return [*turns, self.chat(turns, tools=[forecast]).message]

    def said(self, message):
        return message.content or json.dumps([dict(t.function.arguments) for t in message.tool_calls or []])

    def text(self):
        api = self.api()
        check(any(m.model.removesuffix(":latest") == self.model for m in api.list().models), api.list())
        check("completion" in api.show(self.model).capabilities and api.ps().models[0].context_length > 0, api.show(self.model))
        check(api.pull(self.model).status == "success")
        first = api.generate(model=self.model, prompt=QUESTION)
        check(len(first.context) >= first.prompt_eval_count and first.done_reason in ("stop", "length"), first)
        check(api.generate(model=self.model, prompt=AGAIN, context=first.context).context[:len(first.context)] == first.context)
        check(len(api.embed(model=self.model, input=["a", "b"]).embeddings) == 2)
        return self.once(self.whole).message.content

    def stream(self):
        return "".join(p.message.content for p in self.once(self.streamed))

    def tools(self):
        return [(t.function.name, dict(t.function.arguments)) for t in self.once(self.called).tool_calls or []]

    def structured(self):
        return Weather.model_validate_json(self.chat(REPORTED, format=Weather.model_json_schema()).message.content)

    def second_turn(self):
        return self.said(self.once(self.conversation)[-1])

    def third_turn(self):
        turns = [*self.once(self.conversation)]
        turns += [{"role": "tool", "tool_name": t.function.name, "content": RESULT} for t in turns[-1].tool_calls or []]
        return self.said(self.chat([*turns, {"role": "user", "content": AGAIN}], tools=[forecast]).message)

    def usage(self):
        return [(r.prompt_eval_count, r.eval_count, None) for r in (self.once(self.whole), self.once(self.streamed)[-1])]


class LangChain(Client):
    name = "langchain-ollama"
    requires = False

    def model_(self, **more):
        from langchain_ollama import ChatOllama
        return ChatOllama(base_url=self.url.removesuffix("/v1"), model=self.model, **more)

    def armed(self):
        return self.model_().bind_tools([forecast])

    def whole(self):
        return self.model_(validate_model_on_init=True).invoke(QUESTION)

    def streamed(self):
        full = None
        for piece in self.model_().stream(QUESTION):
            full = piece if full is None else full + piece
        return full

    def called(self):
        return self.armed().invoke(WEATHER)

    def conversation(self):
        from langchain_core.messages import HumanMessage, ToolMessage
        called = self.once(self.called)
        turns = [HumanMessage(WEATHER), called, *(ToolMessage(RESULT, tool_call_id=t["id"]) for t in called.tool_calls)]
        return [*turns, self.armed().invoke(turns)]

    def said(self, message):
        return message.content or json.dumps([t["args"] for t in message.tool_calls])

    def text(self):
        return self.once(self.whole).content

    def stream(self):
        return self.once(self.streamed).content

    def tools(self):
        return [(t["name"], t["args"]) for t in self.once(self.called).tool_calls]

    def structured(self):
        return self.model_().with_structured_output(Weather).invoke(REPORTED[-1]["content"])

    def second_turn(self):
        return self.said(self.once(self.conversation)[-1])

    def third_turn(self):
        from langchain_core.messages import HumanMessage, ToolMessage
        turns = [*self.once(self.conversation)]
        turns += [ToolMessage(RESULT, tool_call_id=t["id"]) for t in turns[-1].tool_calls]
        return self.said(self.armed().invoke([*turns, HumanMessage(AGAIN)]))

    def usage(self):
        return [(u["input_tokens"], u["output_tokens"], u["total_tokens"]) for u in (self.once(self.whole).usage_metadata, self.once(self.streamed).usage_metadata)]


class LiteLLM(Client):
    """Its provider ollama_chat, with the models' names before which it is."""
    name = "litellm-ollama"
    package = "litellm"
    requires = False

    def create(self, messages=MESSAGES, **more):
        import litellm
        return litellm.completion(model=f"ollama_chat/{self.model}", api_base=self.url.removesuffix("/v1"), messages=messages, **more)

    def whole(self):
        return self.create()

    def streamed(self):
        return list(self.create(stream=True))

    def called(self):
        return self.create(ASKED, tools=TOOLS).choices[0].message

    def conversation(self):
        called = self.once(self.called)
        turns = [*ASKED, called.model_dump(), *({"role": "tool", "tool_call_id": t.id, "content": RESULT} for t in called.tool_calls or [])]
        return [*turns, self.create(turns, tools=TOOLS).choices[0].message.model_dump()]

    def said(self, message):
        return message["content"] or json.dumps([t["function"]["arguments"] for t in message["tool_calls"] or []])

    def text(self):
        return self.once(self.whole).choices[0].message.content

    def stream(self):
        return "".join(k.choices[0].delta.content or "" for k in self.once(self.streamed))

    def tools(self):
        return [(t.function.name, t.function.arguments) for t in self.once(self.called).tool_calls or []]

    def structured(self):
        return Weather.model_validate_json(self.create(REPORTED, response_format=Weather).choices[0].message.content)

    def second_turn(self):
        return self.said(self.once(self.conversation)[-1])

    def third_turn(self):
        turns = [*self.once(self.conversation)]
        turns += [{"role": "tool", "tool_call_id": t["id"], "content": RESULT} for t in turns[-1]["tool_calls"] or []]
        return self.said(self.create([*turns, {"role": "user", "content": AGAIN}], tools=TOOLS).choices[0].message)

    def usage(self):
        import litellm
        built = litellm.stream_chunk_builder(self.once(self.streamed), messages=MESSAGES)
        return [(u.prompt_tokens, u.completion_tokens, u.total_tokens) for u in (self.once(self.whole).usage, built.usage)]


if __name__ == "__main__":
    main()
