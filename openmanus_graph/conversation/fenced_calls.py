"""Reads code that a model shows instead of a call, and whether the task wants it shown. Pure."""

import ast
import csv
import glob
import json
import math
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from textwrap import dedent
from typing import Any

from openmanus_graph.conversation.announcements import names_things
from openmanus_graph.conversation.call_forms import TextCall
from openmanus_graph.conversation.text_calls import read_text_calls

_FENCE = re.compile(
    r"(?ms)^[ \t]*+(?P<mark>`{3,}|~{3,})[ \t]*+(?P<language>[\w+-]*)[^\n`]*\n(?P<body>.*?)"
    r"(?:^[ \t]*+(?P=mark)[ \t]*+$|\Z)"
)
_RUN_BY = {
    **dict.fromkeys(("python", "py", "python3"), ("python_execute", "code")),
    **dict.fromkeys(("bash", "sh", "shell", "console"), ("bash", "command")),
}
"""By the language of a fence, the tool that runs it, and the argument that takes the code."""
_OF_JSON = ("", "json", "jsonc", "json5", "tool_call", "function_call")
_CODE_ALONE = (
    r"(?:function|snippet|one-?liner|example|sample|reg(?:ular )?ex(?:pression)?|class|method"
    r"|algorithm|decorator|generator|loop|query"
    r"|funktion|beispiel|klasse|methode|befehl|einzeiler|algorithmus"
    r"|fonction|exemple|classe|méthode|commande|algorithme"
    r"|funci[oó]n|ejemplo|clase|método|comando|algoritmo|fun[cç][aã]o|exemplo|funzione|esempio)s?\b"
)
_CODE_OR_FILE = (
    r"(?:code|script|skript|program|programm?e?|programme|c[oó]digo|programa|codice)s?\b"
)
_NAMED = (
    r"(?!(?:of|in|per|for|by|from|with|each|every|and|error|exit|status|zip|country|postal|product"
    r"|mit|pro|avec|par|con|por|de)\b)[\w'’#+-]+"
)
"""A word between the request and the code, unless it makes the code part of something else."""
_ASKS_FOR = (
    r"\b(?:write|show|give|provide|suggest|create|make|draft|implement|define|need|want|code"
    r"|schreibe?n?|zeige?n?|gib|erstelle?n?|brauche|implementiere?n?"
    r"|[ée]cri[st]\w*|montre\w*|donne\w*|cr[ée]e[rz]?|propose\w*"
    r"|escrib\w+|mu[eé]str\w+|ense[ñn]\w+|dame|haz\w*|crea\w*|necesito|escrev\w+|mostr\w+|scriv\w+)\b"
    rf"(?:-(?:moi|nous))?(?:[ ]+{_NAMED}){{0,5}}?[ ]+"
)
_SHOWN = re.compile(
    r"(?i)\b(?:show|give|tell|teach)(?: me| us)?(?: (?:the|an?|some|your|this|that))?"
    rf"(?: {_NAMED}){{0,2}} (?:code|script|snippet|example|function|program)\b"
    r"|\b(?:explain|describe|walk me through|review|comment on|erkläre?n?|expli\w+)\b[^.?!\n]{0,60}"
    r"\b(?:code|script|function|snippet|command|program|class|loop|skript|funktion|befehl|fonction"
    r"|commande|c[oó]digo|funci[oó]n|comando)\b"
    r"|\bwhat does (?:this|that|the)\b[^.?!\n]{0,30}\b(?:code|script|function|snippet|command)\b"
    r"|\b(?:refactor|rewrite|improve|fix|optimi[sz]e|simplify|convert|translate|port|clean up)\b"
    r"[^.?!\n]{0,30}\b(?:this|these|the following|my|below)\b[^.?!\n]{0,30}"
    r"\b(?:code|script|function|snippet|class|method|quer(?:y|ies)|loop|expression)\b"
    r"|\b(?:what(?:['’]s| is| are)|explain|difference between)\b[^.?!\n]{0,60}\b(?:in |an? |the )?"
    r"(?:python|bash|shell|javascript|typescript|java|rust|go|c\+\+|ruby|sql|regex) "
    r"(?:equivalent|syntax|idiom|way|decorator|generator|context manager|comprehension|lambda"
    r"|closure|function|class|method|keyword|loop|list|dict\w*|tuple|set|iterator|trait|interface"
    r"|promise)s?\b"
    r"|\bhow (?:do|can|could|would|should) (?:i|you|we|one)\b|\bhow to\b"
    r"|\bhow (?:does|would|do) one\b|\bwie (?:kann|könnte|würde|\w+ (?:ich|man|du|sie))\b"
    r"|\bcomment (?:puis-je|peut-on|\w{3,}er|faire|écrire)\b|\bcómo \w+|\bcomo (?:posso|faço)\b"
    r"|\bwhat (?:does|do|would)\b[^?\n]{0,20}`[^`\n]+`[^?\n]{0,15}\b(?:do|mean|print|return)\b"
    r"|\bwhat does (?:the following|this|it)\b|\b(?:which|what|best|right) (?:\w+ )?command\b"
    r"|\b(?:befehl|comando|commande)\b[^.?!\n]{0,60}\?|\bmit welche\w* befehl\b|\bqué comando\b"
    r"|\bcommand (?:to|for)\b|\bsyntax\b|\bcron (?:line|entry|expression)\b|\btool call\b"
    r"|\bcall of the tool\b|\bmake this\b|\bconvert this\b"
    r"|\bwrite (?:some )?code (?:that|which|to)\b"
    r"|\bwas macht\b|\bqué hace\b|\bque fait\b|\b(?:install\w*|set-?up) instructions\b"
    r"|(?:给我?|给出|展示|显示|看看|提供|举)[^。？！\n]{0,15}(?:例子|示例|代码|脚本|函数)"
    r"|(?:解释|讲解|说明)[^。？！\n]{0,20}(?:代码|脚本|函数|命令)|怎么|如何|怎样|命令是什么|什么命令|什么是"
)
"""Asks to see code, or to have it explained, whatever else is said."""
_CODE_WANTED = re.compile(
    rf"(?i){_ASKS_FOR}{_CODE_ALONE}|写[^。？！\n]{{0,20}}(?:函数|例子|示例|正则|方法|类)"
    r"|(?:関数|例)を?[^。\n]{0,10}(?:書|見せ|教え)|(?:напиши|покажи)\w*[^.?!\n]{0,30}(?:функци|пример|класс)"
)
_PROGRAM_WANTED = re.compile(
    rf"(?i){_ASKS_FOR}{_CODE_OR_FILE}|写[^。？！\n]{{0,20}}(?:代码|脚本|程序)"
    r"|(?:コード|スクリプト|プログラム)を?[^。\n]{0,10}(?:書|見せ)|(?:напиши|покажи)\w*[^.?!\n]{0,30}(?:код|скрипт)"
)
_TO_DO = re.compile(
    r"(?i)\b(?:run|execute|save|store) (?:it|them|this|that|the)\b"
    r"|\band (?:run|execute|save|test)\b"
    r"|\b(?:führe?|speicher\w*|starte?)\b|\b(?:exécut\w+|enregistr\w+|lance[rz]?)\b"
    r"|\b(?:ejec[uú]t\w+|gu[aá]rd\w+|execut[ae]\w*|salv[ae]\w*)\b|运行|执行|保存|実行|保存|запусти|сохрани"
    r"|\b(?:in|into|to|as|called|named|nach|als|dans|en|sous|file|datei|fichier|archivo)"
    r" [`\"'“]?[\w/.-]+\.(?:py|sh)\b"
)
_CODE_IN_WORDS = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_ASKS_IN_GENERAL = re.compile(
    r"(?i)[?？]|^\W*(?:how|why|what|which|who|is|are|explain|describe|difference|compare|wie|warum|was"
    r"|welche\w*|erklär\w*|cómo|qué|por qué|explica\w*|comment|pourquoi|quel\w*|解释|说明|为什么)\b"
    r"|\bvs\b|\b(?:in|auf|en) (?:python|bash|shell|javascript|java|rust|go|ruby|sql)(?: please)?"
    r"\W*$"
)
_FILE = re.compile(r"\w\.(?!(?:js|net)\b)[A-Za-z][A-Za-z0-9]{1,4}\b")


def asks_for_code(task: str) -> bool:
    """Return True if a task asks for code to be shown or explained, and not for what it does.

    A program to be saved or run, or about a file, is not to be shown. A question that gives nothing
    to work on (no file, page or figure) is about code in general.
    """
    if _SHOWN.search(task):
        return True
    given = _CODE_IN_WORDS.sub("", task)
    if _ASKS_IN_GENERAL.search(given) and not (names_things(given) or re.search(r"\d", given)):
        return True
    if _TO_DO.search(task):
        return False
    if _CODE_WANTED.search(task):
        return True
    return _PROGRAM_WANTED.search(task) is not None and not _FILE.search(task)


def fenced_call(text: str, tools: Sequence[Mapping[str, Any]]) -> tuple[str, TextCall] | None:
    """Return the text before the only fence of a text, and its call; None if it makes none."""
    found = list(_FENCE.finditer(text))
    if len(found) != 1:
        return None
    fence, said = found[0], text[: found[0].start()].strip()
    body, language = dedent(fence["body"]).strip("\n"), fence["language"].lower()
    offered = [one["function"] for one in tools if "function" in one]  # not a provider's own
    if language in _OF_JSON and body.startswith(("{", "[")):
        read = read_text_calls(body, tools)
        calls = read[1] if read and not read[0] else []
        known = {one["name"] for one in offered}
        return (said, calls[0]) if len(calls) == 1 and calls[0].name in known else None
    tool, argument = _RUN_BY.get(language, ("", ""))
    if tool == "bash":
        lines = [line for line in body.splitlines() if line.strip()]
        prompted = [line.startswith("$ ") for line in lines]
        if any(prompted):  # a transcript with output is not a command
            body = "\n".join(line[2:] for line in lines) if all(prompted) else ""
    takes = any(
        one["name"] == tool and argument in one.get("parameters", {}).get("properties", {})
        for one in offered
    )
    return (said, TextCall(tool, {argument: body}, body)) if takes and body.strip() else None


def reports_result(text: str, task: str, results: str) -> bool:
    """Return True if the words around the fences of a text report a result of the code.

    They have a figure that the task lacks, or another word that only the results have.
    """
    said, asked, seen = (
        set(re.findall(r"\w+", one.lower())) for one in (_FENCE.sub("", text), task, results)
    )
    return any(word in seen or word.isdigit() for word in said - asked)


Call = tuple[str, dict[str, str]]

_PYTHON_C = re.compile(r"""python3? -c (['"])(.*)\1""", re.DOTALL)
_SHELL = re.compile(
    r"(?s)(?:awk|bash|cat|cd|chmod|cp|curl|cut|diff|echo|find|git|grep|head|ls|mkdir|mv|pip3?|printf"
    r"|pytest|python3?|rm|sed|sh|sort|tail|tar|test|touch|tr|uniq|unzip|wc|wget|zip) .*"
)

_MODULES = {one.__name__: one for one in (csv, glob, json, math, os, re, shutil)}
_IMPORTS = {
    **{name: f"import {name}" for name in _MODULES},
    "np": "import numpy as np",
    "pd": "import pandas as pd",
    "plt": "import matplotlib.pyplot as plt",
}
"""The lines that import well-known modules, by their usual names."""


def meant_call(code: str) -> Call | None:
    """Return the tool and the arguments that faulty code means; None if it is valid or unknown.

    Shell commands mean `bash`. Line breaks in strings are escaped again, because JSON took the
    escapes that the model wrote. Well-known modules that are used without an import are imported.
    """
    code = code.strip()
    fixed = _with_escapes(code)
    if fixed is not None:
        fixed = _with_imports(fixed)
        return None if fixed == code else ("python_execute", {"code": fixed})
    inner = _PYTHON_C.fullmatch(code)
    if inner and _with_escapes(inner[2]) == inner[2]:
        return "python_execute", {"code": inner[2]}
    return ("bash", {"command": code}) if _SHELL.fullmatch(code) else None


def _with_escapes(code: str) -> str | None:
    """Return code that compiles, with line breaks in its strings escaped; None if none does."""
    for _ in range(code.count("\n") + 1):
        try:
            compile(code, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            cut = getattr(error, "lineno", None) or 0
            lines = code.split("\n")
            if "unterminated" not in str(error) or not 0 < cut < len(lines):
                return None
            joined = f"{lines[cut - 1]}\\n{lines[cut]}"
            code = "\n".join([*lines[: cut - 1], joined, *lines[cut + 1 :]])
        else:
            return code
    return None


def _with_imports(code: str) -> str:
    nodes = [*ast.walk(ast.parse(code))]
    own = {one.arg for one in nodes if isinstance(one, ast.arg)}
    own |= {one.id for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    for one in nodes:
        if isinstance(one, ast.Import | ast.ImportFrom):
            own |= {(name.asname or name.name).partition(".")[0] for name in one.names}
    used = {
        one.value.id
        for one in nodes
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name)
        # A variable of an earlier cell may have the module's name.
        if hasattr(_MODULES.get(one.value.id), one.attr) or one.value.id not in _MODULES
    }
    lacking = [line for name, line in _IMPORTS.items() if name in used - own]
    if "__future__" in code:  # which has to come first
        return code
    return "\n".join([*lacking, code])
