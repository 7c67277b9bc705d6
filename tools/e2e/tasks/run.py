"""Fifty scripted tasks with tools for a model, by OpenAI's Python client in a loop.

    python3 -m venv venv && venv/bin/pip install openai==3.3.0 jsonschema==4.26.0
    venv/bin/python tools/e2e/tasks/run.py --url http://127.0.0.1:8080 --model NAME --out results.jsonl
    venv/bin/python tools/e2e/tasks/run.py ... --tool-choice required --tasks calculator,files-03

Each task (tasks.json) has a question, tools, their scripted results and a check of the answer. A task succeeds if
the calls that it needs were made and the last answer is right. With --tool-choice required the first turn must call
a tool; the later ones are free, since no conversation would end otherwise. A call is valid if its tool was offered
and its arguments are JSON that the tool's schema accepts.

The results are lines of --out, which also continues a run that was broken off: a task that stands there, with the
same model and tool choice, is not run again. The table is printed at the end. The status is 0 unless a bound fails:
--at-least (share of tasks that succeed), --all-valid (calls), --no-errors (answers with a status over 299).
"""

import argparse
import json
import pathlib
import sys
import time

import jsonschema
import openai

from world import World, called, wrong

HERE = pathlib.Path(__file__).parent
COUNTS = ["calls", "valid", "errors", "turns", "tokens"]
SYSTEM = (
    "You are a helpful assistant. Use the tools that you are given. "
    "When you have their results, answer the question in one short sentence."
)


def load():
    with open(HERE / "tasks.json", encoding="utf-8") as f:
        return json.load(f)


def validity(call, tools, offered):
    """(arguments, None) for a valid call, else (None, what is wrong with it)."""
    name = call.function.name
    if name not in offered:
        return None, f"no tool {name!r}"
    try:
        arguments = json.loads(call.function.arguments)
        jsonschema.validate(arguments, tools[name]["function"]["parameters"])
    except ValueError as err:
        return None, f"arguments are no JSON: {err}"
    except jsonschema.ValidationError as err:
        return None, f"arguments do not fit: {err.message}"
    return arguments, None


def converse(client, args, task, tools):
    """Runs a task. The row has what the table counts, and the conversation for whoever looks for a cause."""
    world, made = World(task["world"]), []
    row = {"task": task["id"], "kind": task["kind"], "ok": False, "faults": [], **dict.fromkeys(COUNTS, 0)}
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task["ask"]}]
    ask = {"model": args.model, "tools": [tools[t] for t in task["tools"]], **args.sampling}
    answer = None
    for turn in range(args.turns):
        choice = args.tool_choice if turn == 0 else "auto"
        try:
            got = client.chat.completions.create(messages=messages, tool_choice=choice, **ask)
        except openai.APIStatusError as err:
            row["errors"] += 1
            row["faults"].append(f"status {err.status_code}: {err.message}"[:400])
            break
        except openai.APITimeoutError:
            row["errors"] += 1
            row["faults"].append("no answer in time")
            break
        row["turns"] += 1
        row["tokens"] += got.usage.completion_tokens if got.usage else 0
        said = got.choices[0]
        row["finish"] = said.finish_reason
        messages.append(said.message.model_dump(exclude_none=True) if args.exclude_none else said.message.model_dump())
        if not said.message.tool_calls:
            answer = said.message.content or ""
            break
        for call in said.message.tool_calls:
            row["calls"] += 1
            arguments, fault = validity(call, tools, task["tools"])
            if fault is None:
                row["valid"] += 1
                made.append({"name": call.function.name, "arguments": arguments})
                result = world.call(call.function.name, arguments)
            else:
                row["faults"].append(fault)
                result = "error: " + fault
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    row["messages"] = messages[2:]
    if answer is None:
        row["why"] = "HTTP error" if row["errors"] else f"no answer after {args.turns} turns"
    elif missing := called(task["need"], made):
        row["why"] = "not called: " + ", ".join(m["name"] for m in missing)
    else:
        row["why"] = wrong(task["check"], answer, world.files)
        row["ok"] = row["why"] is None
    return row


def chosen(tasks, names):
    """The tasks whose name begins with one of names; all without names."""
    found = [t for t in tasks if not names or any(t["id"].startswith(n) for n in names)]
    if not found:
        sys.exit(f"no task begins with {names}")
    return found


def table(rows):
    """Markdown: a line for each kind of task, and one for all."""
    out = ["| tasks | succeeded | calls | valid calls | HTTP errors | turns | output tokens |", "|---|---:|---:|---:|---:|---:|---:|"]
    for kind in [*dict.fromkeys(r["kind"] for r in rows), "all"]:
        of = [r for r in rows if kind in (r["kind"], "all")]
        totals = [str(sum(r[k] for r in of)) for k in COUNTS]
        out.append(f"| {kind} | {sum(r['ok'] for r in of)} of {len(of)} | " + " | ".join(totals) + " |")
    return "\n".join(out)


def done_before(path, key):
    """The results that an earlier run has left, by task. A line that was cut off is left out."""
    rows = {}
    if path and path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if row.get("run") == key:
                rows[row["task"]] = row
    return rows


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--url", default="http://127.0.0.1:8080")
    p.add_argument("--key", default="none")
    p.add_argument("--model", default="", help="default: the first that the server lists")
    p.add_argument("--tool-choice", choices=["auto", "required"], default="auto")
    p.add_argument("--tasks", default="", help="names or their beginnings, separated by commas; default: all")
    p.add_argument("--turns", type=int, default=8, help="most answers in a task")
    p.add_argument("--max-tokens", type=int, default=512, help="most tokens of an answer; 0: the server's default")
    p.add_argument("--temperature", type=float, default=0, help="negative: none is sent")
    p.add_argument("--seed", type=int, default=None)
    p.add_argument("--timeout", type=float, default=600, help="seconds for an answer")
    p.add_argument("--exclude-none", action="store_true", help="send answers back without their null fields")
    p.add_argument("--out", type=pathlib.Path, help="file of the results, which also continues a run")
    p.add_argument("--at-least", type=float, default=0)
    p.add_argument("--all-valid", action="store_true")
    p.add_argument("--no-errors", action="store_true")
    args = p.parse_args()
    args.sampling = {"temperature": args.temperature} if args.temperature >= 0 else {}
    if args.max_tokens:
        args.sampling["max_tokens"] = args.max_tokens
    if args.seed is not None:
        args.sampling["seed"] = args.seed
    return args


def main():
    args = parse()
    client = openai.OpenAI(base_url=args.url.rstrip("/") + "/v1", api_key=args.key, max_retries=0, timeout=args.timeout)
    args.model = args.model or client.models.list().data[0].id
    key = [args.model, args.tool_choice, args.sampling]
    held = load()
    tasks = chosen(held["tasks"], [n for n in args.tasks.split(",") if n])
    rows = done_before(args.out, key)
    for task in tasks:
        if task["id"] in rows:
            continue
        began = time.monotonic()
        try:
            row = converse(client, args, task, held["tools"])
        except openai.APIConnectionError as err:  # nobody is there: the next run begins with this task
            sys.exit(f"{task['id']}: {err}")
        row.update(run=key, seconds=round(time.monotonic() - began, 1))
        rows[task["id"]] = row
        if args.out:
            with args.out.open("a", encoding="utf-8") as f:
                f.write(json.dumps(row) + "\n")
        said = "succeeded" if row["ok"] else row["why"]
        counts = f"turns {row['turns']}, calls {row['calls']}, valid {row['valid']}, {row['seconds']} s"
        print(f"{task['id']}: {said} ({counts})", *row["faults"], file=sys.stderr, flush=True)
    rows = [rows[t["id"]] for t in tasks]
    print(table(rows))
    ok = sum(r["ok"] for r in rows)
    bad = [f"{ok} of {len(rows)} succeeded"] if ok < args.at_least * len(rows) else []
    bad += ["not all calls are valid"] if args.all_valid and any(r["calls"] != r["valid"] for r in rows) else []
    bad += ["there are HTTP errors"] if args.no_errors and any(r["errors"] for r in rows) else []
    if bad:
        sys.exit("; ".join(bad))


if __name__ == "__main__":
    main()
