"""The scripted tools of tasks.json, and the checks of its answers."""

import re

DIGITS = {w: n for n, w in enumerate("zero one two three four five six seven eight nine ten eleven twelve".split())}


class World:
    """The state of one task. Tools answer as text; a text that begins with "error:" is a failure."""

    def __init__(self, given):
        self.files = dict(given.get("files", {}))
        self.given = given
        self.fails = dict(given.get("fails", {}))  # how many calls of a tool fail; -1: all

    def call(self, name, arguments):
        left = self.fails.get(name, 0)
        if left != 0:
            self.fails[name] = left - 1
            return "error: the service is not available"
        return getattr(self, name)(**arguments)

    def calculate(self, operation, a, b):
        if operation == "divide" and b == 0:
            return "error: division by zero"
        value = {"add": lambda: a + b, "subtract": lambda: a - b, "multiply": lambda: a * b, "divide": lambda: a / b}[operation]()
        return f"{round(value, 6):.15g}"

    def list_files(self, folder):
        folder = path(folder)
        names = {f[len(folder):].lstrip("/").split("/")[0] for f in self.files if not folder or f.startswith(folder + "/")}
        return "\n".join(sorted(names)) or "error: no such folder"

    def read_file(self, path):
        return self.files.get(globals()["path"](path), "error: no such file")

    def write_file(self, path, text):
        self.files[globals()["path"](path)] = text
        return "written"

    def search(self, query):
        wanted = set(words(query)) - {"the", "of", "a", "an", "in", "is", "and", "mount", "who", "what", "which", "how"}
        found = [(len(wanted & set(words(p))), p) for p in self.given.get("pages", [])]
        best = [p for n, p in sorted(found, key=lambda f: -f[0]) if n > 0][:2]
        return "\n".join(best) or "no results"

    def weather(self, city):
        return self.look("weather", city.split(",")[0], "no such city")

    def stock(self, item):
        return self.look("stock", item, "no such item")

    def phone(self, name):
        return self.look("phones", name, "no such person")

    backup_phone = phone

    def convert(self, amount, source, target):
        rates = self.given.get("rates", {})
        if source not in rates or target not in rates:
            return "error: no such currency"
        return f"{round(amount / rates[source] * rates[target], 2):.15g} {target}"

    def look(self, table, key, missing):
        table, key = self.given.get(table, {}), " ".join(words(key))
        for k in key, key.rstrip("s"):
            if k in table:
                return str(table[k])
        return "error: " + missing


def path(p):
    """The path as the files are named: without ./ and / in front, and without / at the end."""
    return re.sub(r"^(\./|/|\.$)+", "", p.strip()).rstrip("/")


def words(text):
    return re.findall(r"[\w']+", text.casefold())


def plain(text):
    """The text for comparisons: no case, no marks of Markdown, one space for white space, simple quotes."""
    text = text.casefold().replace("\u2019", "'").replace("\u2011", "-").replace("\u2212", "-")
    return " ".join(re.sub(r"[*_`\\]", "", text).split())


def numbers(text):
    """The numbers in a text, thousands with or without separators, and small ones as words."""
    text = re.sub(r"(?<=\d)[,' \u00a0\u202f](?=\d{3}(?!\d))", "", plain(text))
    found = [float(n) for n in re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?", text)]
    return found + [float(DIGITS[w]) for w in words(text) if w in DIGITS]


def has(text, wanted):
    """Whether a text contains a word or a phrase as a whole, or one of several."""
    if isinstance(wanted, list):
        return any(has(text, w) for w in wanted)
    return re.search(r"(?<!\w)" + re.escape(plain(wanted)) + r"(?!\w)", plain(text)) is not None


def called(need, calls):
    """The needed calls that were not made. An argument is as needed if it contains the text, or is the number."""
    left = list(calls)
    missing = []
    for n in need:
        for c in left:
            if c["name"] == n["name"] and all(same(v, c["arguments"].get(k)) for k, v in n["arguments"].items()):
                left.remove(c)
                break
        else:
            missing.append(n)
    return missing


def same(want, got):
    if isinstance(want, str):
        return isinstance(got, str) and plain(want) in plain(got)
    return isinstance(got, (int, float)) and abs(want - got) < 1e-9


def wrong(check, answer, files):
    """What is wrong with an answer; None if it is right."""
    tolerance = check.get("tolerance", 0) + 1e-6
    want = check.get("number", [])
    for n in want if isinstance(want, list) else [want]:
        if not any(abs(n - got) <= tolerance for got in numbers(answer)):
            return f"the answer lacks {n}"
    for w in check.get("words", []):
        if not has(answer, w):
            return f"the answer lacks {w if isinstance(w, str) else w[0]!r}"
    for w in check.get("without", []):
        if has(answer, w):
            return f"the answer has {w!r}"
    if file := check.get("file"):
        text = files.get(file["path"], "")
        for w in file["words"]:
            if not has(text, w):
                return f"{file['path']} lacks {w!r}"
    return None
