"""Executes the notebooks of this folder, and writes of each a page of the book, with its figures.

``python docs/gallery/render.py`` writes the pages; ``--check`` says where those that are there differ from what comes out.
Names of notebooks choose some. Needs farhaul, and what the notebooks import: nbclient, ipykernel, matplotlib, pandas, pyarrow,
distributed.

- A simulation depends on its seed alone, and figures have neither date nor random names: equal notebooks give equal pages.
- Figures of another matplotlib than that of the committed ones are compared by their text only.
"""

from __future__ import annotations

import argparse
import atexit
import functools
import os
import re
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent
#: At once. Most of a notebook's time is a simulation, which has all cores.
KERNELS = 2
#: Begun before the others.
LONGEST_OF_ALL = ("iwanaga-fig2", "kachan-fig3")
#: Of one cell, s.
LONGEST = 600
#: How far apart numbers of equal figures may be: another processor rounds otherwise.
CLOSE = 0.05
#: Where programs look for what a user has configured, and store things.
HOMES = ("HOME", "TMPDIR", "IPYTHONDIR", "MPLCONFIGDIR", "DASK_CONFIG", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")
#: What a busy machine has Dask warn of belongs on no page.
SETTINGS = {
    "PYTHONHASHSEED": "0",
    "DASK_LOGGING__DISTRIBUTED": "error",
    # Dask reads names of temporary folders as if they were literals.
    "PYTHONWARNINGS": "ignore::SyntaxWarning",
}
CONFIGURATION = """
c.InlineBackend.figure_formats = {"svg"}
c.InlineBackend.print_figure_kwargs = {"bbox_inches": None, "metadata": {"Date": None}}
"""


def names() -> list[str]:
    """All notebooks."""
    return sorted(path.stem for path in FOLDER.glob("*.ipynb"))


@functools.cache
def _home() -> Path:
    """A home without the user's configuration, until this process ends."""
    home = Path(tempfile.mkdtemp(prefix="gallery-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    profile = home / "profile_default"
    profile.mkdir()
    (profile / "ipython_kernel_config.py").write_text(CONFIGURATION)
    return home


def ordered() -> list[str]:
    """All notebooks, in the order in which they are executed."""
    return sorted(names(), key=lambda name: name not in LONGEST_OF_ALL)


def rendered(name: str) -> dict[str, str]:
    """The files of a notebook's page, by their path in this folder."""
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    resources = {"metadata": {"path": str(FOLDER)}}
    # What a cell prints is one output, in however many parts the kernel sends it.
    client = NotebookClient(notebook, timeout=LONGEST, resources=resources, coalesce_streams=True)
    home = str(_home())
    client.create_kernel_manager()
    client.km.transport = "ipc"
    client.km.connection_file = f"{home}/{name}.json"
    client.execute(env={**os.environ, **dict.fromkeys(HOMES, home), **SETTINGS})
    files: dict[str, str] = {}
    parts = [part for cell in notebook.cells for part in _cell(cell, name, files)]
    title, _, rest = parts[0].partition("\n")
    parts[:1] = [title, f"*A [notebook]({name}.ipynb), executed; all of them: [gallery](README.md).*", rest.strip()]
    files[f"{name}.md"] = "\n\n".join(part for part in parts if part) + "\n"
    return files


def _cell(cell: nbformat.NotebookNode, name: str, files: dict[str, str]) -> list[str]:
    """A cell as paragraphs; its figures are added to ``files``."""
    if cell.cell_type == "markdown":
        return [cell.source.strip()]
    parts = [f"```python\n{cell.source.strip()}\n```"]
    for output in cell.outputs:
        if output.output_type == "stream":
            if output.name == "stderr":
                raise ValueError(f"{name}: a warning does not belong on a page: {output.text}")
            parts.append(_text(output.text))
        elif (figure := output.data.get("image/svg+xml")) is not None:
            file = f"figures/{name}-{len(files) + 1}.svg"
            files[file] = "\n".join(line.rstrip() for line in figure.splitlines()) + "\n"
            parts.append(f"![{cell.metadata.get('alt', name)}]({file})")
        else:
            parts.append(_text(output.data["text/plain"]))
    return parts


def _text(text: str) -> str:
    lines = (line.rstrip() for line in text.strip("\n").splitlines())
    return "```text\n{}\n```".format("\n".join(lines))


def written(name: str) -> list[Path]:
    """The files of a notebook's page that are there."""
    return [*FOLDER.glob(f"{name}.md"), *sorted(FOLDER.glob(f"figures/{name}-[0-9]*.svg"))]


def differences(name: str, files: dict[str, str]) -> list[str]:
    """Where what is there is not what came out."""
    found = []
    there = {str(path.relative_to(FOLDER)): path.read_text(encoding="utf-8") for path in written(name)}
    for file in sorted(there.keys() | files.keys()):
        if file not in there or file not in files:
            found.append(f"{file}: only {'written' if file in there else 'made'}")
        elif file.endswith(".svg"):
            if not alike(there[file], files[file]):
                found.append(f"{file}: another figure")
        else:
            lines = zip(there[file].splitlines(), files[file].splitlines())
            first = next((f"\n- {old}\n+ {new}" for old, new in lines if old != new), ": its length")
            if there[file] != files[file]:
                found.append(f"{file}{first}")
    return found


def alike(one: str, other: str) -> bool:
    """Do two figures show the same?"""
    texts = [re.findall(r"<text[^>]*>([^<]*)</text>", figure) for figure in (one, other)]
    makers = [re.findall(r"<dc:title>(Matplotlib[^<]*)", figure) for figure in (one, other)]
    if texts[0] != texts[1] or makers[0] != makers[1]:
        return texts[0] == texts[1]
    # Names are made of positions, rounded or not.
    bare = [re.sub(r'(id="|#)[mp][0-9a-f]{10}', "", figure) for figure in (one, other)]
    number = r"-?\d+(?:\.\d+)?"
    numbers = [[float(n) for n in re.findall(number, figure)] for figure in bare]
    if len(numbers[0]) != len(numbers[1]) or re.sub(number, "0", bare[0]) != re.sub(number, "0", bare[1]):
        return False
    return all(abs(a - b) <= CLOSE for a, b in zip(*numbers))


def main() -> int:
    arguments = argparse.ArgumentParser(description="Executes the notebooks of the gallery and writes their pages.")
    arguments.add_argument("names", nargs="*", metavar="NAME", help="of a notebook; default: all")
    arguments.add_argument("--check", action="store_true", help="write nothing, and say what differs")
    asked = arguments.parse_args()
    wrong = 0
    with ThreadPoolExecutor(KERNELS) as pool:
        chosen = asked.names or ordered()
        for name, files in zip(chosen, pool.map(rendered, chosen)):
            if asked.check:
                for difference in differences(name, files):
                    print(difference)
                    wrong += 1
                continue
            for path in written(name):
                path.unlink()
            for file, text in files.items():
                (FOLDER / file).parent.mkdir(exist_ok=True)
                (FOLDER / file).write_text(text, encoding="utf-8")
            print(f"{name}.md")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
