"""What small models write where Python is wanted."""

import pytest

from openmanus_graph.conversation.fenced_calls import meant_call


@pytest.mark.parametrize(
    "code",
    [
        "print(1)", "x = 'a\\n'", "await f()", "ls = 3", "import (", "for x in y: if x: z",
        "print('a", "print('a\nb", "", "%pip install x", "!", "!ls", "wc", "rm",
        '"""a\nb"""', "import os\nos.sep", "import os.path\nos.sep", "os = 3\nos.sep",
        "def f(re): re.sub", "from a import json\njson.dumps", "datetime.now()", "os",
        "from __future__ import a\nos.sep",
        "for np in x: np.y", "%pip install x\nos.sep", "print(csv.splitlines())",
        "x = " + "1+" * 20_000 + "1", "-" * 20_000 + "1",
    ],
)  # fmt: skip
def test_python_and_what_nobody_knows_is_left_alone(code: str) -> None:
    assert meant_call(code) is None


@pytest.mark.parametrize(
    ("code", "call"),
    [
        ("print('a\nb')", ("python_execute", "print('a\\nb')")),
        ("print(f'{1}\n{2}\n')\nx = 1", ("python_execute", "print(f'{1}\\n{2}\\n')\nx = 1")),
        (
            "with open('a', 'w') as f:\n    f.write('\n'.join(x))",
            ("python_execute", "with open('a', 'w') as f:\n    f.write('\\n'.join(x))"),
        ),
        ("json.loads(a)", ("python_execute", "import json\njson.loads(a)")),
        ("pd.x\nos.pardir", ("python_execute", "import os\nimport pandas as pd\npd.x\nos.pardir")),
        (
            "from os import path\nos.sep",
            ("python_execute", "import os\nfrom os import path\nos.sep"),
        ),
        ("await os.getenv('a\nb')", ("python_execute", "import os\nawait os.getenv('a\\nb')")),
        ('python3 -c "print(1)"', ("python_execute", "print(1)")),
        ("python -c 'print('a')'", ("python_execute", "print('a')")),
        ("python -c 'print(' > a.txt", ("bash", "python -c 'print(' > a.txt")),
        ("python test_it.py", ("bash", "python test_it.py")),
        ("grep -c x a.txt | sort", ("bash", "grep -c x a.txt | sort")),
        ("mkdir -p a\ntouch a/b", ("bash", "mkdir -p a\ntouch a/b")),
    ],
)
def test_what_is_meant_is_called(code: str, call: tuple[str, str]) -> None:
    name, given = call
    assert meant_call(code) == (name, {"code" if name == "python_execute" else "command": given})
