"""Code in a fence: which is a call, and which tasks want code to be shown."""

from typing import Any

import pytest

from openmanus_graph.conversation.fenced_calls import asks_for_code, fenced_call


def tool(name: str, *arguments: str) -> dict[str, Any]:
    properties = {one: {"type": "string"} for one in arguments}
    return {
        "type": "function",
        "function": {"name": name, "parameters": {"properties": properties}},
    }


TOOLS = [tool("python_execute", "code"), tool("bash", "command"), tool("read_file", "path")]


def call(text: str) -> tuple[str, str, dict[str, Any] | None] | None:
    found = fenced_call(text, TOOLS)
    return None if found is None else (found[0], found[1].name, found[1].args)


@pytest.mark.parametrize("language", ["python", "py", "Python", "python3"])
def test_python_is_run_by_python_execute(language: str) -> None:
    text = f"I sum them:\n\n```{language}\nx = 1\nprint(x + 1)\n```\nThe result is 2."
    assert call(text) == ("I sum them:", "python_execute", {"code": "x = 1\nprint(x + 1)"})


@pytest.mark.parametrize("language", ["bash", "sh", "shell", "console"])
def test_a_shell_s_lines_are_run_by_bash(language: str) -> None:
    assert call(f"```{language}\nrm -rf build\n```") == ("", "bash", {"command": "rm -rf build"})
    assert call(f"~~~{language}\n$ ls\n$ pwd\n~~~") == ("", "bash", {"command": "ls\npwd"})


@pytest.mark.parametrize(
    "json",
    ['{"name": "read_file", "arguments": {"path": "a.csv"}}',
     '{"name": "read_file", "arguments": {"path": """a.csv"""}}',
     "{{'name': 'read_file', 'arguments': {{'path': 'a.csv'}}}}",
     '[{"name": "read_file", "arguments": {"path": "a.csv",}}]'],
)  # fmt: skip
@pytest.mark.parametrize("language", ["json", ""])
def test_a_call_in_json_is_one(json: str, language: str) -> None:
    text = f"I read it.\n```{language}\n{json}\n```\nThen I sum."
    assert call(text) == ("I read it.", "read_file", {"path": "a.csv"})


def test_a_fence_in_a_list_and_one_that_is_not_closed_are_read() -> None:
    listed = "1. Count:\n   ```python\n   for x in y:\n       print(x)\n   ```"
    assert call(listed) == ("1. Count:", "python_execute", {"code": "for x in y:\n    print(x)"})
    assert call("```bash\nls") == ("", "bash", {"command": "ls"})


@pytest.mark.parametrize(
    "text",
    [
        "```python\nprint(1)\n```\nor\n```python\nprint(2)\n```",
        "```bash\nls\n```\nIt prints:\n```\na.txt\n```",
        "```\nprint(1)\n```",
        "```javascript\nconsole.log(1)\n```",
        "```console\n$ ls\na.txt\n```",
        "```python\n\n```",
        '```json\n{"name": "Ada", "arguments": {"age": 36}}\n```',
        '```json\n{"total": 42}\n```',
        "Use `python -m http.server` for it.",
    ],
)
def test_other_fences_are_no_calls(text: str) -> None:
    assert call(text) is None


def test_only_what_is_offered_is_called() -> None:
    assert fenced_call("```python\nprint(1)\n```", [tool("bash", "command")]) is None
    assert fenced_call("```bash\nls\n```", [tool("bash", "line")]) is None
    assert fenced_call("```bash\nls\n```", []) is None
    assert fenced_call("```bash\nls\n```", [{"type": "web_search"}, *TOOLS])


@pytest.mark.parametrize(
    "task",
    [
        "Write a function that reverses a list",
        "please write me a short Python function to parse dates",
        "Show me the script",
        "What is a Python decorator?",
        "What does `git reset --hard HEAD~1` do?",
        "What is the difference between rm -r and rm -rf?",
        "Which command deletes a git branch?",
        "I need to free port 8080. What is the best command?",
        "git rebase vs merge?",
        "Explain list comprehensions",
        "What is a closure?",
        "Is == the same as is?",
        "Quicksort in Python please",
        "Write code that saves a list to list.txt.",
        "I want to know the syntax of scp with a port",
        "Wie lösche ich alle .tmp-Dateien rekursiv?",
        "Was macht `ls -la`?",
        "Comment supprimer une branche git ?",
        "¿Cómo borro una rama?",
        "¿Qué comando borra una rama?",
        "git 怎么撤销上一次提交？",
        "什么是 Python 装饰器？",
        "What is the Python equivalent of Ruby's each_slice?",
        "Refactor this function to use a set",
        "Fix the bug in this function",
        "Can you show me some example code?",
        "Give me an example of a decorator",
        "Explain this code",
        "explain what that recursive function does",
        "How do I count lines in bash?",
        "I need a regex for e-mail addresses",
        "Implement a binary search algorithm",
        "Write a script that renames all files by date",
        "Schreibe eine Funktion, die Primzahlen findet",
        "Zeig mir das Skript",
        "Gib mir ein Beispiel für eine Schleife",
        "Erkläre diesen Code",
        "Wie kann ich in Python eine Datei lesen?",
        "写一个计算阶乘的函数",
        "给我一个递归的例子",
        "解释这段代码",
        "如何用 Python 写一个循环？",
        "Escribe una función que invierta una lista",
        "Muéstrame el script",
        "Dame un ejemplo de bucle",
        "Explica este código",
        "Écris une fonction qui trie une liste",
        "Montre-moi le script",
        "Donne-moi un exemple de boucle",
        "Explique ce code",
    ],
)
def test_these_ask_for_code(task: str) -> None:
    assert asks_for_code(task)


@pytest.mark.parametrize(
    "task",
    [
        "Calculate 17 * 23",
        "What is the mean of the column price in sales.csv?",
        "Create the file out.txt with the word hello",
        "How many lines are in notes.md?",
        "How many lines of code has main.py?",
        "Write a script hello.py that prints hello, and run it",
        "Create a file fib.py with a function fib",
        "Write a program that sums data.csv into sums.json",
        "Give me the number of students in each class",
        "Show me the error code in server.log",
        "Rename all txt files",
        "Find the largest file here",
        "Write the squares of 1 to 10 to squares.txt",
        "Berechne die Summe der Spalte Preis",
        "Erstelle die Datei bericht.md",
        "Wie viele Zeilen hat data.csv?",
        "计算总和",
        "创建文件 a.txt",
        "写一个脚本并运行",
        "Calcula la suma de los precios",
        "¿Cuántas líneas tiene datos.csv?",
        "Crea el archivo salida.txt",
        "Calcule la somme des prix",
        "Combien de lignes y a-t-il dans data.csv ?",
        "Crée le fichier sortie.txt",
    ],
)
def test_these_want_something_done(task: str) -> None:
    assert not asks_for_code(task)
