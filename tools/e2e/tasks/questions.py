"""Fifty factual questions (questions.json) to a model, by OpenAI's Python client without any sampling parameter.

    venv/bin/python tools/e2e/tasks/questions.py --url http://127.0.0.1:8080 --model NAME --out questions.jsonl
    venv/bin/python tools/e2e/tasks/questions.py ... --questions 10 --seeds 3
    venv/bin/python tools/e2e/tasks/questions.py --check

Each question is asked once for each seed, 1, 2, …; a request has the question, the seed and a bound for the tokens.
An answer is right if its first sentence has one of the accepted words: the right word somewhere in a long text of
noise is no answer. Numbers may be written as words. It prints the share of right
answers, by seed and of all. --out has the answers, and continues a run that was broken off. --check shows that the
list is sound and that the judge refuses wrong answers.
"""

import argparse
import json
import pathlib
import re
import sys

from world import has, numbers, words

HERE = pathlib.Path(__file__).parent


def right(answer, accept):
    """Whether the first sentence has an accepted word. A number has to be among its numbers."""
    first = re.split(r"(?<!\bMt)(?<!\bDr)(?<!\b[A-Z])[.!?](?=\s|$)", answer.strip(), maxsplit=1)[0]
    return any(float(a) in numbers(first) if a.isdigit() else has(first, a) for a in accept)


def ask(client, args, question, seed):
    import openai

    extra = {"max_tokens": args.max_tokens} if args.max_tokens else {}
    messages = [{"role": "user", "content": question["ask"]}]
    try:
        got = client.chat.completions.create(model=args.model, messages=messages, seed=seed, **extra)
    except openai.APIStatusError as err:
        return {"error": f"status {err.status_code}: {err.message}"[:400]}
    answer = got.choices[0].message.content or ""
    return {"answer": answer, "finish": got.choices[0].finish_reason}


def check(questions):
    """The list against itself: an accepted answer is right in a sentence, any other question's answer is wrong."""
    assert len(questions) == len({q["ask"] for q in questions}) == 50
    for q in questions:
        for a in q["accept"]:
            assert right(f"It is **{a}**.", q["accept"]) and right(f"The answer: {a.upper()}!", q["accept"]), q
        for other in questions:
            if not set(words(" ".join(other["accept"]))) & set(words(" ".join(q["accept"]))):
                assert not right(f"It is {other['accept'][0]}.", q["accept"]), (q, other)
        assert not right("", q["accept"]) and not right("Alright sunshine, I do not know.", q["accept"])
    assert right("Mt. Everest.", ["Everest"]) and not right("It is Kepler. It leads to Earth.", ["Earth"])
    assert right("There are seven days.", ["7"]) and not right("There are 17 days.", ["7"]) and not right("Parisian", ["Paris"])
    print("the list is sound")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--url", default="http://127.0.0.1:8080")
    p.add_argument("--key", default="none")
    p.add_argument("--model", default="", help="default: the first that the server lists")
    p.add_argument("--questions", type=int, default=50, help="so many from the beginning of the list")
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--max-tokens", type=int, default=64, help="0: the server's default")
    p.add_argument("--timeout", type=float, default=600)
    p.add_argument("--out", type=pathlib.Path)
    p.add_argument("--at-least", type=float, default=0, help="share of right answers below which the status is 1")
    p.add_argument("--check", action="store_true")
    args = p.parse_args()
    questions = json.loads((HERE / "questions.json").read_text(encoding="utf-8"))
    if args.check:
        return check(questions)
    import openai

    client = openai.OpenAI(base_url=args.url.rstrip("/") + "/v1", api_key=args.key, max_retries=0, timeout=args.timeout)
    args.model = args.model or client.models.list().data[0].id
    before = {}
    if args.out and args.out.exists():
        for line in args.out.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            before[row["model"], row["ask"], row["seed"], row["max_tokens"]] = row
    rows = []
    for seed in range(1, args.seeds + 1):
        for q in questions[: args.questions]:
            row = before.get((args.model, q["ask"], seed, args.max_tokens))
            if row is None:
                row = {"model": args.model, "ask": q["ask"], "seed": seed, "max_tokens": args.max_tokens}
                row.update(ask(client, args, q, seed))
                if args.out:
                    with args.out.open("a", encoding="utf-8") as f:
                        f.write(json.dumps(row) + "\n")
            row["right"] = right(row.get("answer", ""), q["accept"])
            rows.append(row)
            print("right" if row["right"] else "wrong", seed, q["ask"], repr(row.get("answer", row.get("error")))[:200], file=sys.stderr, flush=True)
    for seed in range(1, args.seeds + 1):
        of = [r for r in rows if r["seed"] == seed]
        print(f"seed {seed}: {sum(r['right'] for r in of)} of {len(of)} right")
    share = sum(r["right"] for r in rows) / len(rows)
    print(f"all: {sum(r['right'] for r in rows)} of {len(rows)} right, {share:.1%}; {sum('error' in r for r in rows)} HTTP errors")
    if share < args.at_least:
        sys.exit(f"under {args.at_least:.0%}")


if __name__ == "__main__":
    main()
