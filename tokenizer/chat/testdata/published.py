"""Writes published.json: what transformers and vLLM make of conversations with tools, for published chat templates.

    pip install jinja2==3.1.6 && python published.py DIR             # DIR/*.jinja: the templates
    python published.py DIR --transformers                           # compares with transformers' own rendering
    python published.py DIR --show TEMPLATE CASE                     # prints one rendering

The templates are those in vendor/llama.cpp/models/templates of the source package llama_cpp_python 0.3.36. They keep
their licences and are not part of this repository, so published.json has a hash of each rendering instead of its
text, and what a template says where it refuses a conversation.

The conversations are as OpenAI's SDKs send them, with the arguments of calls as text. Both libraries want objects
there: vLLM decodes the text, users of transformers do (its documentation says so). transformers 5.23.0 removes keys
whose value is null (apply_chat_template), and gives the rest to the template as it is. vLLM (_parse_chat_message_content
in renderers/chat_utils.py, and renderers/hf.py; 0.32.0) gives texts alone to a template that does not loop over the parts of a
content: "" for null and for an absent content, parts joined by newlines. A template with such a loop gets lists of
parts: [] for null, and one part for a text; a tool's parts become one text there too. vLLM does not use the template for models with a renderer of their own
(DeepSeek V3.2 and V4, gpt-oss, Kimi K3, Mistral's tokenizers): there the result is what it would do. The conversations
"null" and "absent" are therefore the same for both.
"""

import copy
import hashlib
import json
import pathlib
import platform
import sys

import jinja2
import jinja2.nodes as nodes

from golden import NOW, TOOLS, environment, render

HERE = pathlib.Path(__file__).parent
OURS = {"bos_token": "<s>", "eos_token": "</s>", "documents": None, "add_generation_prompt": True}


def call(name, arguments, id):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}}


def text(*texts):
    return [{"type": "text", "text": t} for t in texts]


ABSENT = object()
ONE = [call("weather", {"city": "K\u00f6ln", "days": 2}, "abcdefghi")]
TWO = [*ONE, call("now", {}, "jklmnopqr")]


def assistant(content, calls=ONE):
    said = {"role": "assistant", "tool_calls": calls}
    return said if content is ABSENT else {**said, "content": content}


def result(content, id="abcdefghi"):
    return {"role": "tool", "tool_call_id": id, "content": content}


S = {"role": "system", "content": "Be brief."}
U = {"role": "user", "content": "What is the weather in K\u00f6ln?"}
X = result("sunny")
THEN = [{"role": "assistant", "content": "Sun."}, {"role": "user", "content": "And the time?"}]
# case: the messages, and whether tools are given
CASES = {
    "no tools": ([S, U], False),
    "tools": ([S, U], True),
    "text": ([S, U, assistant("Wait."), X], True),
    "empty": ([S, U, assistant(""), X], True),
    "null": ([S, U, assistant(None), X], True),
    "absent": ([S, U, assistant(ABSENT), X], True),
    "parts": ([S, U, assistant(text("Wait.")), X], True),
    "two parts": ([S, U, assistant(text("Wait", " here.")), X], True),
    "two calls": ([S, U, assistant(None, TWO), X, result("12:00", "jklmnopqr")], True),
    "result in parts": ([S, U, assistant(""), result(text("sunny"))], True),
    "result in two parts": ([S, U, assistant(""), result(text("sunny", "warm"))], True),
    "no system": ([U, assistant(None), X], True),
    "second turn": ([S, U, assistant(None), X, *THEN, assistant(None, TWO[1:]), result("12:00", "jklmnopqr")], True),
}


def decoded(messages):
    """The messages with arguments as objects."""
    messages = copy.deepcopy(messages)
    for m in messages:
        for c in m.get("tool_calls", []):
            c["function"]["arguments"] = json.loads(c["function"]["arguments"])
    return messages


def as_transformers(messages):
    return [{k: v for k, v in m.items() if v is not None} for m in decoded(messages)]


def as_vllm(messages, parts):
    messages = decoded(messages)
    for m in messages:
        content = m.get("content")
        if content is None:
            content = []
        elif isinstance(content, str):
            content = text(content)
        texts = [p["text"] for p in content if p["text"] or parts]  # without parts, it leaves empty texts out
        m["content"] = content if parts and m["role"] != "tool" else "\n".join(texts)
    return messages


def loops_over_parts(template):
    """Whether a template has a loop over the content of a message, by vLLM's rules: names assigned from messages
    count, filters, tests and slices are looked through, scopes are not considered. A variable named content counts
    outside macros, and in a macro the parameters that a call gives the content of a message."""
    try:
        tree = environment().parse(template)
        names = ["messages"]
        for name in names:  # grows
            for a in tree.find_all(nodes.Assign):
                if under(a.node) == (name, None) and a.target.name not in names:
                    names.append(a.target.name)
        each = [f.target.name for f in tree.find_all(nodes.For) if under(f.iter) in [(n, None) for n in names]]

        def content(node):
            return under(node) in [(n, "content") for n in each]

        inside = {}  # names of contents, by the loops in macros
        for macro in tree.find_all(nodes.Macro):
            calls = [c for c in tree.find_all(nodes.Call) if isinstance(c.node, nodes.Name) and c.node.name == macro.name]
            given = [(p.name, arg) for c in calls for p, arg in zip(macro.args, c.args)] + [(k.key, k.value) for c in calls for k in c.kwargs]
            for loop in macro.find_all(nodes.For):
                inside[loop] = [name for name, arg in given if content(arg) and name in [p.name for p in macro.args]]
        return any(content(f.iter) or isinstance(f.iter, nodes.Name) and f.iter.name in inside.get(f, ["content"]) for f in tree.find_all(nodes.For))
    except Exception:  # vLLM then takes texts
        return False


def under(node):
    """(name, attribute) that an expression reads, without filters, tests and slices."""
    while isinstance(node, (nodes.Filter, nodes.Test)) or isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        node = node.node
    if isinstance(node, nodes.Name):
        return node.name, None
    if isinstance(node, (nodes.Getattr, nodes.Getitem)) and isinstance(node.node, nodes.Name):
        key = node.attr if isinstance(node, nodes.Getattr) else getattr(node.arg, "value", None)
        return node.node.name, key
    return None, None


def variables(messages, tools):
    return {**OURS, "messages": messages, "tools": TOOLS if tools else None}


def short(outcome):
    """The outcome with a hash for its text."""
    if "text" in outcome:
        return {"sha256": hashlib.sha256(outcome["text"].encode()).hexdigest()[:32]}
    return outcome


def compare(template, messages, tools, want):
    """What is wrong with want, if transformers' own function makes something else."""
    from transformers import PreTrainedTokenizerBase
    from transformers.utils import chat_template_utils

    class Clock:
        now = staticmethod(lambda: NOW)

    chat_template_utils.datetime = Clock
    tokenizer = PreTrainedTokenizerBase(bos_token="<s>", eos_token="</s>")
    try:
        options = {"tools": TOOLS if tools else None, "chat_template": template, "add_generation_prompt": True}
        got = {"text": tokenizer.apply_chat_template(messages, tokenize=False, **options)}
    except Exception as err:
        got = {"raised": f"{type(err).__name__}: {err}"}
    if ("text" in got) != ("text" in want) or got.get("text") != want.get("text"):
        return {"transformers": got, "here": want}
    return None


def main():
    paths = sorted(pathlib.Path(sys.argv[1]).glob("*.jinja"))
    out, differences = [], 0
    for path in paths:
        template = path.read_text(encoding="utf-8")
        if sys.argv[2:3] == ["--show"] and path.name != sys.argv[3]:
            continue
        parts = loops_over_parts(template)
        cases = {}
        for name, (messages, tools) in CASES.items():
            plain, vllm = as_transformers(messages), as_vllm(messages, parts)
            t = render(template, variables(plain, tools))
            v = render(template, variables(vllm, tools))
            cases[name] = {"transformers": short(t), **({"vllm": short(v)} if v != t else {})}
            if sys.argv[2:3] == ["--show"] and name == sys.argv[4]:
                print(json.dumps({"transformers": t, "vllm": v}, indent=1, ensure_ascii=False))
            if sys.argv[2:] == ["--transformers"]:
                wrong = compare(template, decoded(messages), tools, t)
                differences += wrong is not None
                if wrong:
                    print(path.name, name, json.dumps(wrong)[:600])
        digest = hashlib.sha256(template.encode()).hexdigest()
        alone, offered = (render(template, variables(as_vllm([U], parts), tools)) for tools in (False, True))
        drops = alone == offered and "text" in alone
        about = {"template": path.name, "sha256": digest, "content": "parts" if parts else "text", "drops_tools": drops}
        out.append({**about, "cases": cases})
    if sys.argv[2:] == ["--transformers"]:
        sys.exit(f"{differences} differences in {len(paths) * len(CASES)} renderings" if differences else None)
    if sys.argv[2:]:
        return
    conversations = {name: {"messages": m, "tools": t} for name, (m, t) in CASES.items()}
    made_with = {"python": platform.python_version(), "jinja2": jinja2.__version__}
    head = {"made_with": made_with, "tools": TOOLS, "conversations": conversations}
    body = json.dumps({**head, "templates": out}, ensure_ascii=True, separators=(",", ":"))
    (HERE / "published.json").write_text(body.replace('{"template"', '\n{"template"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
