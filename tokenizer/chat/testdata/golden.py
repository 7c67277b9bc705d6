"""Writes golden.json: what Jinja makes of templates with the settings of Hugging
Face's apply_chat_template (transformers, utils/chat_template_utils.py).

    pip install jinja2==3.1.6 && python golden.py

The settings are set up here anew so that jinja2 is enough; transformers 5.23.0 itself
gives the same for every chat in the file.

The templates beside this file are made up, with the constructs of those that
Llama 3.x, Qwen 2.5 and 3 and Mistral ship. A date stands still in them.
"""

import datetime
import json
import pathlib
import platform

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

HERE = pathlib.Path(__file__).parent
NOW = datetime.datetime(2025, 3, 7, 4, 5, 6)


class Generation(jinja2.ext.Extension):
    """{% generation %} marks what the model wrote; the text is not changed."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller):
        return caller()


class Raised(Exception):
    pass


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise Raised(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def render(template, variables):
    try:
        return {"text": environment().from_string(template).render(**variables)}
    except Raised as e:
        return {"refused": str(e)}
    except Exception as e:
        return {"error": f"{type(e).__name__}: {e}"}


VARIABLES = {
    "messages": [
        {"role": "user", "content": "h\u00e9y <b> & 'q' \"d\""},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "user", "content": " tail \n"},
    ],
    "n": None,
    "t": True,
    "f": False,
    "i": 7,
    "x": -2.5,
    "empty": "",
    "words": "one two  three\tfour\n",
    "nums": [3, 1, 2, 10, -4],
    "mixed": ["b", "A", "c", "a", "B"],
    "nested": {"b": {"items": [1, {"k": "v"}], "z": 1.5}, "a": "x\ny", "list": [[1, 2], [3]], "uni": "\u4e2d\U0001f642\u2028\u007f"},
    "rows": [{"name": "q", "n": 2, "ok": True}, {"name": "p", "n": 1}, {"name": "r", "n": 2, "ok": False}],
    "bos_token": "<s>",
    "eos_token": "</s>",
}

EXPRESSIONS = """
('a' if t else 'b') ~ 'c' | n | messages[1].content is none | messages[0].x is defined | n is defined | zz is defined
messages[0].content[1] | 'x' if messages[1].tool_calls else 'y' | 7 // 2 | -7 // 2 | -7 % 3 | 7 / 2 | 2 ** 3 | 2 ** -1 | 7.0 // 2 | -7.5 % 2 | 1 - -1
true | [1, 'a', none] | {'b': 1, 'a': 2} | 1.0 | 1e20 | 1e-7 | 123456789.123 | 1e16 | 0.1 + 0.2 | 3 * 1.5 | (1, 2) | (1,) | () | [] | {} | "it's" | ["it's", 'a"b', 'tab\\t', 'nl\\n', '\\u00e9\\x01']
messages ¦ map(attribute='role') ¦ list ¦ join(',') | (messages ¦ selectattr('role', 'equalto', 'user') ¦ list) ¦ length | not messages[0].role == 'x' | 'a' not in 'abc' | not t or t | 1 in nums and 2 not in [2]
messages[::-1][0].role | messages[-1]['role'] | messages[1:] ¦ length | nums[1:-1] | nums[::2] | nums[::-2] | nums[10:] | nums[-3:] | 'h\u00e9llo'[1:3] | 'h\u00e9llo'[::-1] | nums[99] | 'abc'[5] | nums[-99:2] | nums[3:0:-1]
'a,b'.split(',')[-1] | '  x\\n'.strip() | 'abc'.startswith('ab') | 'xxy'.lstrip('x') | 'abc'.endswith(('b', 'c')) | words.split() | words.split(' ') | words.split(none, 1) | words.rsplit(' ', 1) | words.rsplit(none, 1) | words.splitlines() | 'a\\nb\\r\\nc\\n'.splitlines(true) | 'x'.split(',') | ''.split(',') | ''.split()
messages[0].items() ¦ list | messages[0].keys() ¦ list | messages[0].values() ¦ list | nested.b['items'] | nested.b.items() ¦ list | messages[0].get('nope') | messages[0].get('nope', 3) | messages[0].get('role')
'a' ~ 1 ~ none ~ true ~ 1.5 | 'a' + 1 | 'x' ¦ default('y') | zz ¦ default('y') | n ¦ default('y', true) | n ¦ default('y') | zz ¦ d('y') | empty ¦ default('y', boolean=true) | '%s-%d %%' % ('a', 3) | 'n: %s' % 4
'a' 'b' | messages[0]['nope'].foo | zz | zz.foo | zz['a'] | zz() | zz + 1 | [1, 2] + [3] | [0] * 3 | 'ab' * 2 | 2 * 'ab' | 'ab' * -1 | zz ~ 'a' | zz == zz | zz == none | zz ¦ length | zz ¦ list | -zz
messages is iterable and messages is not string and messages is not mapping | 1 < 2 < 3 | 3 > 2 > 2 | 1 == 1.0 | true == 1 | 'a' < 'b' | [1, 2] < [1, 3] | 1 < 'a' | none == false | 'abc'[1:] ~ 'abc'[:-1] | 1 if f | 'a' if f else 'b' if f else 'c' | messages[0].content ¦ length
3 % 0 | 3 / 0 | messages[0] ¦ tojson | messages[0].content ¦ e | dict(a=1, b='c') | dict({'x': 1}, y=2) | messages ¦ first | messages ¦ last | 'Hello wORLD' ¦ upper ¦ lower ¦ title ¦ trim | 'hello' ¦ capitalize | "they're bill's" ¦ title | "they're bill's".title() | 'aBc'.capitalize()
messages ¦ length > 1 and messages[0].role | {'a': {'b': 1}}.a.b | 'x'.replace('x', 'y').upper() | 'aaa'.replace('a', 'b', 2) | 'aaa' ¦ replace('a', 'b', 2) | 'ab'.replace('', '-') | raise_exception('no') | raise_exception(1)
nested ¦ tojson | nested ¦ tojson(indent=2) | nested ¦ tojson(indent=0) | nested ¦ tojson(sort_keys=true) | nested ¦ tojson(ensure_ascii=true) | nested ¦ tojson(separators=(',', ':')) | [] ¦ tojson(indent=2) | {} ¦ tojson(indent=2) | [1.0, 1e30, -0.0, true, none, 'x'] ¦ tojson | zz ¦ tojson | {1: 2, true: 3, none: 4} ¦ tojson | '</script>\\u2028' ¦ tojson | [[], [[]]] ¦ tojson(indent=1)
nums ¦ sort | mixed ¦ sort | mixed ¦ sort(reverse=true) | mixed ¦ sort(case_sensitive=true) | rows ¦ sort(attribute='n') ¦ map(attribute='name') ¦ join | rows ¦ sort(attribute='n', reverse=true) ¦ map(attribute='name') ¦ join | nums ¦ max | nums ¦ min | nums ¦ sum | rows ¦ sum(attribute='n') | [] ¦ max | mixed ¦ unique ¦ list | nested ¦ dictsort ¦ map('first') ¦ list | mixed ¦ reverse ¦ list | 'abc' ¦ reverse
rows ¦ map(attribute='ok', default='-') ¦ list | rows ¦ selectattr('ok') ¦ map(attribute='name') ¦ list | rows ¦ rejectattr('ok') ¦ map(attribute='name') ¦ list | rows ¦ selectattr('ok', 'defined') ¦ list ¦ length | nums ¦ select('gt', 2) ¦ list | nums ¦ reject('odd') ¦ list | nums ¦ select('even') ¦ list | mixed ¦ map('upper') ¦ list | mixed ¦ map('replace', 'b', 'x') ¦ join(' ') | [n, 1, ''] ¦ select ¦ list | rows ¦ selectattr('n', 'ge', 2) ¦ map(attribute='name') ¦ join('+') | nested ¦ items ¦ list ¦ length | rows ¦ join(', ', attribute='name') | [nested] ¦ map(attribute='b.items.1.k') ¦ list
'12' ¦ int + 1 | 'z' ¦ int(5) | '1.9' ¦ int | 2.9 ¦ int | -2.9 ¦ int | '2.5' ¦ float | 'z' ¦ float | 42 ¦ string ~ 1 | x ¦ abs | -3 ¦ abs | 2.567 ¦ round(1) | 2.5 ¦ round | 3.5 ¦ round | 2.1 ¦ round(0, 'ceil') | 1234 ¦ round(-2) | 'abc' ¦ list | 7 ¦ round | 'x\\ny\\n\\nz' ¦ indent | 'x\\ny' ¦ indent(2, true) | 'x\\n\\ny' ¦ indent('> ', blank=true)
i is odd | i is even | i is divisibleby 7 | i is number and x is float and i is integer | t is boolean | t is true | f is false | 'a' is string | none is none | 'A' is upper | 'a' is lower | i is in [7] | i is not in [7] | i is sameas 7 | nested is mapping | nested is sequence | 'x' is sequence | i is iterable | i is eq 7 | i is gt 3 and i is lt 9 | i == 7 is true | dict is callable | not i is odd | x is number
range(3) ¦ list | range(1, 7, 2) ¦ list | range(3, 0, -1) ¦ list | range(0) ¦ list | 'abc'.upper().lower().find('c') | 'abc'.index('z') | 'abab'.count('ab') | 'a-b-c'.partition('-') | 'a-b-c'.rpartition('-') | 'x'.rpartition('-') | ','.join(['a', 'b']) | ','.join([1]) | [1, 2] ¦ join | '123'.isdigit() and 'ab'.isalpha() and ' \\t'.isspace() | 'aB'.isupper() | 'prefix-x'.removeprefix('prefix-') | 'Stra\u00dfe'.upper() ¦ length | [1, 2, 1].count(1) | [1, 2].index(2)
-x ¦ abs | -2 ** 2 | 2 ** 3 ** 2 | 1 + 2 ~ 3 + 4 | 'a' ~ 'b' ¦ upper | not n | 'b' in nested | 'role' in messages[0] | messages == messages | {'a': 1} == {'a': 1.0} | [1] == (1,) | messages[0] in messages | x + 1 | i / 2 | i // 2.0 | 10 ** 3 | 5 % 3.5 | (1, 'a')[1] | nested.list[0][1] | nested['list'].0.0 | nums.append(1) | nested.update(a=1) | nums.pop | t and n | n or empty or 'last' | not '' and not [] and not {} and not 0
strftime_now('%d %b %Y') | strftime_now('%Y-%m-%d %H:%M:%S %A %B %j %p %I %y %%') | strftime_now('%-d/%-m') | 'caf\u00e9' ¦ upper | '\\N' | '\\\\' | '\\q' | "a\\"b" | '\\'' | 1_000 + 1 | .5 | 1. | 08 | 'a' 'b' ¦ upper | [1, 2,] | {'a': 1,} | (1, 2,) | nums[0:2,] | true.x | 'a'.b | i.real | none.x | none['x'] | none[0] | nums['a'] | nested[0] | 'x'.format(1)
"""

BLOCKS = [
    "{% set ns = namespace(a=1) %}{% for x in messages %}{% set ns.a = ns.a + loop.index %}{% endfor %}{{ ns.a }}",
    "{% set q = 1 %}{% for x in messages %}{% set q = q + 5 %}{{ q }},{% endfor %}{{ q }}",
    "{% if true %}{% set z = 3 %}{% endif %}{{ z }}",
    "a\n  {%- if t %}\n b\n  {% endif %}\n c",
    "a\n  {% if t %}\n b\n  {% endif %}  \n c\n\n",
    "  {% if t %}x{% endif %}\n  {{ i }}\n\t{# gone #}\n  {#- gone -#}\n y {#+ kept +#}\nz\n",
    "  {%+ if t %} x {%+ endif +%}\n y",
    "x  {{- ' a ' -}}  y {{+1}} {{-1}} {{ -1 }}",
    "{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for c in 'h\u00e9' %}{{ c }},{% endfor %}",
    "{% for k in nested %}{{ k }}{% if not loop.last %},{% endif %}{% endfor %}",
    "{% for x in messages if x.role == 'user' %}{{ loop.index }}{{ loop.last }}{{ loop.length }}{{ loop.revindex0 }} {% else %}none{% endfor %}",
    "{% for x in [] %}a{% else %}none{% endfor %}{% for x in zz %}a{% else %}none{% endfor %}",
    "{% for x in none %}{% endfor %}",
    "{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for a in [1, 2] %}{% for b in 'xy' %}{{ loop.depth }}{{ loop.depth0 }}{{ a }}{{ b }} {% endfor %}{{ loop.cycle('o', 'e') }}{{ loop.previtem }}{{ loop.nextitem }}{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for a, b in [1] %}{% endfor %}",
    "{% for r in rows %}{{ loop.changed(r.n) }}{% endfor %}",
    "{% macro f(a, b='d', c=none) %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, b=2) }} {{ f(b=2, a=3, c=4) }} {{ f() }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(q=2) }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %},{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
    "{% set y = 5 %}{% macro f() %}{{ y }}{% set y = 6 %}{{ y }}{% endmacro %}{{ f() }}{{ y }}",
    "{% macro f() %}{{ late }}{% endmacro %}{% set late = 'L' %}{{ f() }}",
    "{% macro f() -%}  x  {%- endmacro %}[{{ f() | upper }}][{{ f() ~ f() }}]",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, %}{{ c }}",
    "{% set x %} hi {{ i }} {% endset %}[{{ x }}]{% set y | trim | upper %} hi {% endset %}[{{ y }}]",
    "{% filter upper %}abc {{ i }}{% endfilter %}{% with a = 1, b = i %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% raw %}{{ not }} {% this %}{% endraw %}|{%- raw -%}  x  {%- endraw -%}  y",
    "{% generation %}a{% set inner = 1 %}{% endgeneration %}b{{ inner is defined }}",
    "{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a': 1}}}",
    "{% if n %}a{% elif f %}b{% elif i == 7 %}c{% else %}d{% endif %}",
    "{% if not messages[0].nope %}x{% endif %}{% if messages[0].nope.deep %}y{% endif %}",
    "{% set ns = namespace(a=1, b=none) %}{{ ns.a }}{{ ns.b }}{{ ns.c }}{% set ns.c = 'x' %}{{ ns.c }}",
    "{% set nested.x = 1 %}",
    "{%- set d = {} -%}{% for m in messages %}{{ m.content | default('', true) | trim }}|{% endfor %}",
    "{{ messages | selectattr('role', 'eq', 'user') | map(attribute='content') | map('trim') | list | tojson }}",
    "{{ 'a' }}\r\n{{ 'b' }}\r{{ 'c' }}\n\n",
    "{{ '{{ not a tag }}' }}{{ \"%}\" }}{# {{ not }} #}",
    "{{ (messages | first).role }}{{ (messages|last)['content'].strip() }}{{ messages|map(attribute='role')|unique|join('/') }}",
    "{% for m in messages %}{% set role = 'U' if m.role == 'user' else 'A' %}{{ role }}{% if not loop.last %}\n{% endif %}{% endfor %}",
    "{% set messages = messages[1:] %}{{ messages | length }}{% for m in messages %}{% set messages = [] %}{% endfor %}{{ messages | length }}",
    "{% if x is defined and x < 0 %}{{ x }}{% endif %}{{ 'yes' if i > 3 and not n }}{{ ('no' if n) }}",
    "\n\n{% if t %}\n\nx\n{% endif %}\n",
    "{{ 1 }}\n{{ 2 }} \n  {{- 3 }}",
    "{% for i in range(2) %}\n  {{ i }}\n{% endfor %}\n",
    "{% if t -%}\n   x\n{%- endif -%}\n  y",
    "{# a #}\n{# b #}\nc{# d\ne #}\nf",
    "{% if f %}{{ 1 | nope }}{% elif t %}x{% else %}{{ 1 | nope }}{% endif %}",
    "{% if t %}{{ 1 | nope }}{% endif %}",
    "{{ 1 | nope }}",
    "{{ '<{}|{}{{}}>'.format('a', 1.0) }}{{ '{1}{0}{b}'.format(1, none, b=[1, 'x']) }}",
    "{{ '{}'.format() }}",
    "{{ '{}'.format(1, 2, a=3) }}",
    "{{ '{'.format() }}",
    "{{ 'a}'.format() }}",
    "{{ '{a.b}'.format(a=1) }}",
    "{{ '{:>3}'.format(1) }}",
]


def expressions():
    out = []
    for line in EXPRESSIONS.strip().split("\n"):
        for e in line.split(" | "):
            template = "{{ " + e.replace("\u00a6", "|").replace("\\\\", "\\") + " }}"
            out.append(template)
    return out


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Tells <the> weather & \u96e8.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}}, "required": ["city"]},
        },
    },
    {"type": "function", "function": {"name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}}},
]


def call(arguments, id="abcdefghi", name="weather"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


S = {"role": "system", "content": " Be brief. \n"}
U = {"role": "user", "content": "What is light? \U0001f642"}
A = {"role": "assistant", "content": " A ray.\n"}
T = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nRays."}
R = {"role": "assistant", "content": "Rays.", "reasoning_content": "\nLet me see\n"}
C = {"role": "assistant", "content": None, "tool_calls": [call({"city": "K\u00f6ln", "days": 2})]}
CC = {"role": "assistant", "content": "Wait.", "tool_calls": [call({"city": "a"}), call({}, "jklmnopqr", "now")]}
X = {"role": "tool", "content": "sunny", "tool_call_id": "abcdefghi", "name": "weather"}
P = {"role": "user", "content": [{"type": "text", "text": "Look: "}, {"type": "image"}, {"type": "text", "text": "nice?"}]}

CONVERSATIONS = [
    [U],
    [S, U],
    [S, U, A, U],
    [U, T, U],
    [U, R],
    [U, C, X],
    [S, U, C, X, A, U],
    [U, CC, X, dict(X, content="12:00", tool_call_id="jklmnopqr"), T],
    [P],
    [U, U],
    [S, P, A, U, A],
    [{"role": "narrator", "content": "Once"}],
]
OPTIONS = [{}, {"add_generation_prompt": True}, {"tools": TOOLS, "add_generation_prompt": True}, {"tools": []}, {"add_generation_prompt": True, "enable_thinking": False, "tools_in_user_message": False, "tools": TOOLS}]


def chats():
    out = []
    for path in sorted(HERE.glob("*.jinja")):
        for messages in CONVERSATIONS:
            for options in OPTIONS:
                variables = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": False, "bos_token": "<s>", "eos_token": "</s>"}
                variables.update(options)
                result = render(path.read_text(encoding="utf-8"), variables)
                out.append({"template": path.name, "messages": messages, "options": options, **result})
    return out


def main():
    singles = [{"template": t, **render(t, VARIABLES)} for t in expressions() + BLOCKS]
    out = {"made_with": {"python": platform.python_version(), "jinja2": jinja2.__version__}, "variables": VARIABLES, "singles": singles, "chats": chats()}
    text = json.dumps(out, ensure_ascii=True, separators=(",", ":"))
    (HERE / "golden.json").write_text(text.replace('{"template"', '\n{"template"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
