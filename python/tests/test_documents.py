"""Do the blocks of docs/python.md run, one after the other as they are read?"""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


def test_every_block_runs(capsys):
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 6
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102
    shown = capsys.readouterr().out
    for words in ("ours", "theirs", "'law': 'Aimd'", "1000000 of 1000000", "ok\n", "enough", "source_missing"):
        assert words in shown, shown
