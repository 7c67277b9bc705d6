"""What each client is asked, and how an answer is judged. clients.py and more.py have the clients.

A client is a class with a method for each case that it has a feature for. Each case runs by itself, with a URL of its
own, http://HOST/CLIENT/CASE/v1, so that whoever stands at the URL knows which case a request is of. For each case it
prints a line of JSON: valid or not, sensible or not, and what there was.

Valid: no exception, and an answer of the right form. Sensible: the answer that a person would expect. A generated model
says nothing sensible. Of random weights, one answer in 300 ends before its first token: with --retry the case begins again.
"""

import argparse
import contextlib
import importlib.metadata
import json
import re
import sys
import time
from typing import Literal

import pydantic

CASES = ["text", "stream", "tools", "structured", "second turn", "third turn", "usage"]
CLIENTS = {}
SYSTEM = "Be brief."
QUESTION = "What is the capital of France?"
MESSAGES = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
WEATHER = "What will the weather be like in Paris in the next 3 days? Call the tool, then tell me."
ASKED = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": WEATHER}]
RESULT = "fog, 13 degrees"  # of the tool
AGAIN = "Which city did I ask about?"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "London"]}, "days": {"type": "integer"}},
              "required": ["city", "days"], "additionalProperties": False}
ABOUT = "The weather of the next days."
TOOLS = [{"type": "function", "function": {"name": "forecast", "description": ABOUT, "parameters": PARAMETERS}}]
REPORT = "It will rain for 3 days, and it will be cold. Give me this weather: its kind, whether it is cold, and the days."
REPORTED = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": REPORT}]

# Exceptions by which a client says that the model did not come to an end within the client's number of turns.
GAVE_UP = {"MaxTurnsExceeded", "GraphRecursionError", "AgentMaxStepsError"}


class Weather(pydantic.BaseModel):
    """The weather of some days."""
    kind: Literal["sun", "rain", "snow"]  # values of few words each: a generated model would not come to the end of a text
    cold: bool
    days: int


def forecast(city: Literal["Paris", "London"], days: int) -> str:
    """The weather of the next days.

    Args:
        city: The name of the city.
        days: The number of days.
    """
    return RESULT


class Client:
    """A client of one case. The cases of a client share what is in kept."""
    name = ""
    package = None  # where it has another name than the client
    requires = True  # it can require a call of a tool
    # A word that a sensible answer has, of several each, or the values of a sensible object.
    expected = {"text": ("paris",), "stream": ("paris",), "second turn": ("fog", "13"), "third turn": ("paris",),
                "structured": {"kind": "rain", "cold": True, "days": 3}, "tools": {"city": "Paris", "days": 3}}

    def __init_subclass__(cls):
        CLIENTS[cls.name] = cls

    def __init__(self, url, model, kept):
        self.url, self.model, self.kept = url, model, kept

    def once(self, f):
        """The result of f, a method that several cases begin with."""
        if f.__name__ not in self.kept:
            self.kept[f.__name__] = f()
        return self.kept[f.__name__]


class Invalid(Exception):
    """An answer that has not the form that it was promised to have."""


def check(ok, *what):
    if not ok:
        raise Invalid(" ".join(repr(w) for w in what)[:400])


def spoken(text):
    """A text of the model. A call of the tool in it is one that the server has not parsed."""
    check(not re.search(r'"name"\s*:\s*"(forecast|llm_version)"', text), "a call that stays text:", text)
    return text


def judge(case, got, want):
    """Whether an answer is sensible. Raises Invalid if it is not valid."""
    if case == "usage":
        check(got, "no usage")
        for prompt, completion, total in got:
            check(prompt > 0 and completion > 0 and total in (None, prompt + completion), "usage", prompt, completion, total)
        return True
    if case == "tools":
        for name, arguments in got:
            values = arguments if isinstance(arguments, dict) else json.loads(arguments)
            if name == "Weather":
                Weather.model_validate(values, strict=True)
            elif name in ("forecast", "final_result"):
                ok = values.keys() == {"city", "days"} and values["city"] in ("Paris", "London") and type(values["days"]) is int
                check(ok, "arguments", values)
            if len(got) > 1 or values != want:
                return False
        return len(got) == 1
    if isinstance(want, dict):
        return Weather.model_validate(got.model_dump() if isinstance(got, pydantic.BaseModel) else got).model_dump() == want
    check(isinstance(got, str), case, "is", got)
    return any(w in spoken(got).lower() for w in want)


def shown(got):
    return got if isinstance(got, str) else repr(got)


def run(cls, case, url, model, kept, tries):
    """A line about a case."""
    began, said = time.monotonic(), {}
    method = getattr(cls, case.replace(" ", "_"), None)
    if method is None:
        return {"case": case, "valid": True, "cell": "–"}
    try:
        got = method(cls(f"{url}/{cls.name}/{case.replace(' ', '-')}/v1", model, kept))
        if not got and tries > 1 and (case != "tools" or cls.requires):
            kept.clear()
            return run(cls, case, url, model, kept, tries - 1)
        said = {"valid": True, "sensible": judge(case, got, cls.expected.get(case)), "got": shown(got)[:400]}
        check(got or tries == 0 or case == "tools" and not cls.requires, case, "is", got)
    except Exception as err:  # the other cases are of interest all the same
        kept.clear()
        said = {"valid": type(err).__name__ in GAVE_UP, "sensible": False, "got": f"{type(err).__name__}: {err}"[:800]}
    cell = "offered" if case == "tools" and not cls.requires else "yes"
    return {"case": case, "cell": cell if said["valid"] else "fault", "seconds": round(time.monotonic() - began, 1), **said}


def main():
    args = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    args.add_argument("--url", default="http://127.0.0.1:8080", help="of a server that strips /CLIENT/CASE, as TestClients has")
    args.add_argument("--model", default="demo")
    args.add_argument("--retry", action="store_true", help="try a case without an answer three times")
    args.add_argument("--skip", default="", help="cases that are not run: CLIENT/CASE,...")
    args.add_argument("clients", nargs="*")
    args = args.parse_args()
    skip = set(args.skip.split(","))
    for name in args.clients or CLIENTS:
        cls, kept = CLIENTS[name], {}
        about = {"client": name, "language": "Python", "version": importlib.metadata.version(cls.package or name)}
        for case in CASES:
            if f"{name}/{case}" in skip:
                continue
            with contextlib.redirect_stdout(sys.stderr):  # some clients tell what they do
                said = run(cls, case, args.url.rstrip("/"), args.model, kept, 3 if args.retry else 0)
            print(json.dumps({**about, **said}), flush=True)
