"""Do the notebooks of docs/gallery run, and are their pages what comes out?"""

import importlib.util
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
pytest.importorskip("tomllib", reason="the notebooks read scenarios by tomllib, of Python 3.11")


def renderer():
    spec = importlib.util.spec_from_file_location("render", DOCS / "gallery/render.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RENDER = renderer()


@pytest.fixture(scope="module")
def rendering():
    """All notebooks being executed, two at a time and the longest first, each in an interpreter of its own."""
    with ThreadPoolExecutor(RENDER.KERNELS) as pool:
        yield {name: pool.submit(RENDER.rendered, name) for name in RENDER.ordered()}


@pytest.mark.parametrize("name", RENDER.names())
def test_a_page_is_what_its_notebook_gives(name, rendering):
    found = RENDER.differences(name, rendering[name].result())
    assert not found, "python docs/gallery/render.py writes the pages:\n" + "\n".join(found)


def test_every_page_is_in_the_book_and_in_the_gallery():
    pages = {path.stem for path in (DOCS / "gallery").glob("*.md")} - {"README"}
    assert pages == set(RENDER.names())
    book, gallery = (DOCS / "SUMMARY.md").read_text(), (DOCS / "gallery/README.md").read_text()
    for name in pages:
        assert f"](gallery/{name}.md)" in book and f"]({name}.md)" in gallery, name


def test_notebooks_have_no_outputs():
    for name in RENDER.names():
        notebook = RENDER.nbformat.read(DOCS / f"gallery/{name}.ipynb", as_version=4)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        assert all(not cell.outputs and cell.execution_count is None for cell in code), name


def test_figures_of_other_data_are_told_apart():
    one = next((DOCS / "gallery/figures").glob("*.svg")).read_text()
    path = one.index('<path d="M', one.index("clip-path"))
    digit = next(at for at in range(path, len(one)) if one[at].isdigit())
    moved = one[:digit] + str(9 - int(one[digit])) + one[digit + 1 :]
    assert RENDER.alike(one, one) and not RENDER.alike(one, moved)


def test_what_a_cell_prints_is_one_output(tmp_path, monkeypatch):
    monkeypatch.setattr(RENDER, "FOLDER", tmp_path)
    form = RENDER.nbformat.v4
    cells = [form.new_markdown_cell("# Title"), form.new_code_cell("print(45, flush=True, end=' ')\nprint('files')")]
    RENDER.nbformat.write(form.new_notebook(cells=cells), tmp_path / "parts.ipynb")
    page = RENDER.rendered("parts")["parts.md"]
    assert page.endswith("```text\n45 files\n```\n"), page
