"""Installs the clients that TestClients runs into a directory outside the tree.

    python3 tools/e2e/clients/install.py DIR
    cd tools/e2e && go test . -run TestClients -clients DIR

With "more" after DIR it also installs those that need -client-results. Needs pip, npm and a network. What is there already is not installed again. Exits with
75 if a registry can't be reached.
"""

import hashlib
import pathlib
import shutil
import subprocess
import sys
import venv

HERE = pathlib.Path(__file__).resolve().parent
UNREACHABLE = 75


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        print(f"{' '.join(map(str, command[:6]))} failed:\n{done.stdout[-800:]}", file=sys.stderr)
        sys.exit(UNREACHABLE)


def once(into, pins, install):
    """Installs anew if the pins are not those of the last time."""
    mark, want = into / ".installed", hashlib.sha256(pins.read_bytes()).hexdigest()
    if mark.exists() and mark.read_text() == want:
        return
    print("installing", pins.name, "into", into, flush=True)
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    install()
    mark.write_text(want)


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["more"]):
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1]).resolve()
    js = out / "js"

    def python(into, pins):
        def install():
            venv.create(into, with_pip=True)
            run(into / "bin/python", "-m", "pip", "install", "-q", "--no-deps", "-r", pins)
        once(into, pins, install)

    def javascript():
        shutil.copy(HERE / "package.json", js)
        run("npm", "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", cwd=js)
    python(out / "py", HERE / "requirements.txt")
    if sys.argv[2:]:
        python(out / "more", HERE / "more.txt")
    once(js, HERE / "package.json", javascript)


if __name__ == "__main__":
    main()
