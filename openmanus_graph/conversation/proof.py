"""Compares what a task asks for with the files and calls of a run. Pure."""

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from openmanus_graph.conversation import announcements
from openmanus_graph.conversation.authorship import CALCULATING
from openmanus_graph.conversation.claims import claims_in
from openmanus_graph.conversation.evidence import SENTENCE_END
from openmanus_graph.conversation.history import canonical_calls, ends_run, run_messages
from openmanus_graph.prompts import render

_MOST_BEFORE = 400
"""Characters before a file's name that may say what is to be done with it."""
_DENIES = re.compile(
    r"(?i)n['’]t\b|\b(?:can|could|did|was|were|does|do|is|are|ha[sd]|have)(?:not| not)\b"
    r"|\b(?:unable|fail(?:s|ed|ure)?|impossible|missing|denied|not (?:possible|found|there|able"
    r"|written|created|made|saved|allowed)|no (?:permission|such|access|need|\S+\.\w+)|nicht|fehlt"
    r"|n(?:e|['’]\w+)\b.*\bpas|échoué|no (?:se|he|pud\w+|exist\w+|hay)|não|nie"
    r"|niet|nothing|skipped|unnecessary|left out"
    r"|kein\w*|entfällt|aucune?|ningún|sin|inte|не|нет|değil)\b|没有"
    r"|沒有|没能|未创建|无需|不需要"
    r"|不生成|不创建|无法|無法|未能|不存在|失败|ません|못|없|नहीं|ไม่|δεν|ვერ"
)
_MAKES = (
    r"(?:\b(?:wr[io]t|sav(?:e|ing)|store|creat|mak(?:e|ing) (?!sure)|generat|produc|export|put"
    r"|output|convert|renam|cop(?:y|ies)|append|draw|plot|prepare|schreib|speicher|erstell|erzeug|leg|fass"
    r"|écri|enregistr|cré|escrib|guard|gener|escrev|salv|cri[ae]|scriv|schrijf|запиш|сохран|созда"
    r"|zapisz|kaydet|oluştur|simpan)|写|寫|保存|创建|生成|输出|导出|存|作成|書|出力|저장|작성|만들|생성)"
)
_USES = (
    r"(?:\b(?:read|pars|open|load|from|us(?:es?|ing)|with|compar|between|about|explain|of\b|that\b"
    r"|check|analy|count|lies|lese|aus\b|von\b|mit\b|lire|depuis|leer|desde|из\b)|读|讀|从|から|読|읽)"
)
_EMPTY_WANTED = r"(?i)\b(?:empty|blank|touch|leere?\w*|vide|vac[ií]o|vazio|vuoto)\b|空|пуст"
_INTO = r"(?:\b(?:to|into|as|named|called|als|comme|como|в)\b|[到为至])\W*(?:(?:a|the|file)\W+)*"
_ONE_MORE = r"\b(?:and|und|et|y|e) (?:also )?(?:an?|eine?|une?|una?|uma?) (?:\w+ ){0,3}"
_TO_MAKE = re.compile(rf"(?i){_MAKES}(?:(?:(?!{_USES}).)*|.*(?:{_INTO}|{_ONE_MORE}))$")
"""What a sentence says before the name of a file that is to be made."""
_MADE_AFTER = re.compile(rf"\W*(?:に|へ|로|으로|에|dosyasına).*{_MAKES}")
_CHANGES = (
    r"(?i)(?:^|[,;:]|\b(?:and|then|please|und|dann|bitte|et|y)\b)\W*(?:then |please |bitte )?"
    r"(?:set|fix|change|update|replace|edit|modify|correct|remove|delete|insert|append|rename|add"
    r"|setze?|ändere?|ersetze?|korrigiere?|entferne?|lösche?|ergänze?|corrige|remplace|modifie"
    r"|supprime|ajoute|cambia|reemplaza|modifica|elimina|añade|agrega)\b|修改|替换|删除|更新|修复|添加"
)
_REMOVES = (
    r"(?i)\b(?:remov|delet|drop|only\b|keep|strip|clean|clear|empty|filter|trim|short|dedup|duplicat"
    r"|compress|summar|replac|simplif|reduc|without|extract|rewrit|first|last|convert|split|move"
    r"|entfern|lösch|kürz|ersetz|supprim|remplac|elimin|borr|reemplaz)|删|去|替换|精简"
)
"""What a task says that may make a file smaller."""
_HOW = r"(?i)\W*(?:how (?:do|to|can|would)|why|wie (?:kann|schreib)|cómo|如何|怎么)"
_NOT_NOW = re.compile(
    _HOW + r"|.*\b(?:script|program|function|code|class|skript|programm)\b"
    r".*\b(?:that|which|das|qui|que)\b"
    r"|(?!.*\b(?:save|store|put|run)\b).*\b(?:write|draft|give|compose|show|suggest)\b"
    r"(?: me)? (?:an?|the) (?:\S+ ){0,2}?(?:(?:command|one-?liner|snippet|entry|rule)\b"
    rf"|(?:e-?mail|message|letter|reply)\b(?!.*{_INTO}$))"
)
"""Questions how, what a program to be written does, and what a letter is about."""
_IS_OPEN = re.compile(
    r"(?i)^\W*(?:what|which|why|when|where|who|does|do|did|is|are|was|were|explain|find out"
    r"|check (?:if|whether)|wer|welche\w*|warum|macht|ist|erklär\w*|qué|cuál|por qué|quel\w*"
    r"|pourquoi|if|in case|unless|wenn|falls|si)\b"
    r"|\b(?:don['’]t|do not|never|without|instead of|rather than|keine?[nmrs]?|nicht|statt|sin|sans"
    r"|writes|saves|stores|creates|makes|generates|produces|exports|converts"
    r"|(?:should(?: have)?|would|could) (?:write|save|create|make|generate|produce)\w*)\b"
    r"(?:(?! (?:and|then|und|y|et) )[^,.;:]){0,40}$|\b(?:or|like|such as) $"
    r"|(?:不要|别)[^，,。]{0,15}$|^\W*如果|是否|为什么"
)
"""Text before a file that need not be made: a question, a denial or a condition."""
_OTHERWISE = re.compile(r"(?i)^[\W]{0,3}(?:or|oder|o|ou|或)\b")
_HAS_TO_PASS = re.compile(
    r"(?i)\b(?:pass(?:es)?|fails?|succeeds?|besteh\w*|fehl\w*|échou\w*|fall[ae])\b|通过|失败"
)
_ABOUT_FAILURES = re.compile(
    r"(?i)\b(?:errors?|fails?|failures?|failing|goes wrong|happens|exit (?:code|status)|fehler"
    r"|erreur)\b"
)
_RUNS = {
    "bash": r"\./[^|;& ]*{test}"
    r"|\b(?:python3?|node|np[mx]|bash|sh|ruby|go|cargo|source)\b[^|;&]*{test}",
    "python_execute": r"\b(?:import|from) {test}\b|\b(?:subprocess|runpy|exec|system)\b.*{test}",
}
_ALL_TESTS = r"\b(?:pytest|unittest|(?:npm|make|go|cargo) (?:run )?test)\b"
_QUESTION = r"(?:how (?:many|much|often|long|old|far)|which|what|who|where|when)\b"
_TWO_QUESTIONS = re.compile(
    rf"(?i)(?:^|[.!?]\s+){_QUESTION}[^?]*\band (?:(?:in|on|at|by|of|for|from) )?{_QUESTION}[^?]*\?"
)
_NOTHING = re.compile(
    r"(?s)\s*(?:0(?:\.0*)?|None|nan|\[\]|\{\}|\(\)|set\(\)|Empty DataFrame.*|Series\(\[\].*)\s*"
)
"""The output of a program that found nothing, often because its condition is wrong."""
_COMPARES = re.compile(
    r"(?i)(?<!at )\b(?:most|least|fewest|maximum|minimum|(?:larg|bigg|small|high|low|long|short|old"
    r"|new|young|earli|cheap|heavi|light|fast|slow)est)\b|\b(?:größte|kleinste|höchste|niedrigste"
    r"|längste|kürzeste|älteste|jüngste|meiste)\w*|\b(?:le|la|les) (?:plus|moins)\b"
    r"|最[大小高低多少长短早晚新旧]"
)
"""A question for the one that has most or least."""
_COUNTS = re.compile(
    r"(?i)\b(?:how (?:many|often)|wie (?:viele|oft)|combien|cuánt[oa]s)\b"
    r"|(?:多少|几)[个行次条]"
)
_READING = {"read_file", "str_replace_editor"}
_WHOLE = re.compile(r"(?<![\w.,:/-])\d+(?![\w/:-]|[.,]\d)")
_FEW_LINES = 4
"""So many lines can be compared by reading."""
_SHORT_LINES = 20
"""An output of so many lines is a result."""
_FILL = {"a", "an", "and", "are", "at", "for", "has", "have", "in", "is", "it", "of", "on", "that",
         "the", "there", "to", "was", "were"}  # fmt: skip
"""Words that answer nothing."""
_MOST_CHARS = 2000


def unmade_files(text: str, task: str, files: announcements.NamedFiles) -> list[str]:
    """Return the missing files that a task asks to make, unless the answer admits it."""
    missing = [*files.missing]
    if not re.search(_EMPTY_WANTED, task):
        missing += files.empty
    if not missing or denies(text, missing):
        return []
    return [name for name in missing if _is_to_be_made(name, task)]


def _is_to_be_made(name: str, task: str) -> bool:
    parts = (one.partition(name) for one in SENTENCE_END.split(announcements.own_words(task)))
    return any(
        (_TO_MAKE.search(before[-_MOST_BEFORE:]) or _MADE_AFTER.match(after))
        and not (_NOT_NOW.match(before) or _IS_OPEN.search(before) or _OTHERWISE.search(after))
        for before, found, after in parts
        if found
    )


def unchanged_files(text: str, task: str, files: announcements.NamedFiles) -> list[str]:
    """Return the files that a task asks to change, if none changed and the answer hides it."""
    if files.changed or denies(text, files.given):
        return []
    asked = _wanted_changes(task)
    return [name for name in files.given if any(name in one for one in asked)]


def emptied_files(task: str, files: announcements.NamedFiles) -> list[str]:
    """Return the files that lost most of their content although the task does not ask for it."""
    if re.search(_REMOVES, announcements.own_words(task)):
        return []
    changes = _wanted_changes(task)
    return [name for name in files.shrunk if changes or not _is_to_be_made(name, task)]


def _wanted_changes(task: str) -> list[str]:
    """Return the sentences of a task that ask to change something."""
    sentences = SENTENCE_END.split(announcements.own_words(task))
    return [one for one in sentences if re.search(_CHANGES, one) and not re.match(_HOW, one)]


def denies(text: str, names: Sequence[str]) -> bool:
    """Return True if an answer says that files are missing, or could not be made."""
    about = "|".join([_MAKES, r"\b(?:files?|datei|fichier|archivo)\b|文件", *map(re.escape, names)])
    said = [
        one for one in re.split(r"(?<=[.!?])\s+|[。！？\n]", text) if re.search(f"(?i){about}", one)
    ]
    return any(_DENIES.search(one[:1000]) for one in said)


class _Outcome(NamedTuple):
    name: str
    args: str
    said: Any
    failed: bool


def lack_of_proof(
    answer: str, task: str, messages: Sequence[AnyMessage], *, delivered: bool
) -> str:
    """Return why nothing shows that the work is done; empty if something may.

    `delivered` tells whether the files that the task names were made. Then they may be looked at
    again.
    """
    outcomes = _outcomes(messages)
    about_failures = _ABOUT_FAILURES.search(announcements.own_words(task)) and not _wanted_changes(
        task
    )
    if outcomes and outcomes[-1].failed and not about_failures:
        return f"the last call ({outcomes[-1].name}) failed"
    repeated = [one for n, one in enumerate(outcomes) if one in outcomes[:n]]
    circles = repeated and not delivered and all(one in repeated for one in outcomes[-2:])
    if circles and not _is_result(answer, outcomes[-1]):
        return f"the last calls ({outcomes[-1].name}) only repeated earlier ones"
    if test := _test_that_has_to_pass(task, outcomes):
        return f"{test} was not run, or it failed"
    if reason := _lack_of_reckoning(answer, task, outcomes):
        return reason
    return "a part of the question is not answered" if _is_half(answer, task) else ""


def _lack_of_reckoning(answer: str, task: str, outcomes: Sequence[_Outcome]) -> str:
    """Return why a question about files has no reliable result; empty if it may have."""
    if not outcomes or _wanted_changes(task) or not announcements.names_things(task):
        return ""
    ran = [one for one in outcomes if one.name in CALCULATING and not one.failed]
    empty = [one for one in ran if _NOTHING.fullmatch(str(one.said))]
    if ran and ran[-1] in empty and len(set(empty)) == 1:  # a second, different one is believed
        return "the program found nothing: compare its condition with some lines of the data"
    asked = announcements.own_words(task)[:_MOST_CHARS]
    if _COUNTS.search(asked) and not _is_counted(answer, task, outcomes):
        return "no program has counted and printed this number"
    if _COMPARES.search(asked) and not _is_compared(answer, task, outcomes):
        return "no program has compared and printed what the answer names"
    return ""


def _is_compared(answer: str, task: str, outcomes: Sequence[_Outcome]) -> bool:
    """Return True if a program has named the answer's words, or little was to be compared."""
    said = (one for one in outcomes if not one.failed and one.said != "(no output)")
    seen = [one for one in said if one.name != "search_tools"]
    reads = [one for one in seen if one.name in _READING]
    is_long = any(str(one.said).count("\n") >= _FEW_LINES for one in reads)
    if reads and announcements.named_files(task) and not is_long:
        return True
    named = _words(answer) - _words(task) - _FILL
    found = {word for one in seen if one not in reads for word in _words(str(one.said))}
    return len(seen) > len(reads) and not (named and named.isdisjoint(found))


def _words(text: str) -> set[str]:
    return set(re.findall(r"\d+|[^\W\d_]{2,}", re.sub(r"(?<=\d),(?=\d{3})", "", text).lower()))


def _is_counted(answer: str, task: str, outcomes: Sequence[_Outcome]) -> bool:
    """Return False if the whole numbers of an answer occur only in data, which does not count.

    Results of a long output are its last lines; those of a file are the line above its content.
    """
    said = {*_WHOLE.findall(answer)} - {*_WHOLE.findall(task)}
    shown, results = set[str](), set[str]()
    for one in outcomes:
        text = str(one.said)
        numbers = set(re.findall(r"\d+", text))
        shown |= numbers
        if one.name in {*CALCULATING, *_READING}:
            lines = text.split("\n")
            if one.name in _READING:
                lines = lines[:1]
            elif len(lines) > _SHORT_LINES:
                lines = lines[-_FEW_LINES:]
            numbers = set(_WHOLE.findall("\n".join(lines)))
        results |= numbers
    return said.isdisjoint(shown) or not said.isdisjoint(results)


def _is_result(answer: str, outcome: _Outcome) -> bool:
    """Return True if a program printed the figures of an answer."""
    figures = [one.text for one in claims_in(answer) if one.kind == "number"]
    said = str(outcome.said)
    found = (re.search(rf"(?<![\d.]){re.escape(one)}(?![\d.])", said) for one in figures)
    return outcome.name in CALCULATING and bool(figures) and all(found)


def _outcomes(messages: Sequence[AnyMessage]) -> list[_Outcome]:
    """Return what the run's calls gave, in order, except the call that ends the run."""
    calls, outcomes = dict[str | None, tuple[str, str]](), list[_Outcome]()
    for message in run_messages(messages):
        if isinstance(message, AIMessage):
            ids = (call["id"] for call in message.tool_calls)
            calls |= zip(ids, canonical_calls(message), strict=True)
        elif isinstance(message, ToolMessage) and not ends_run(message):
            call = calls.get(message.tool_call_id, (message.name or "?", ""))
            outcome = _Outcome(*call, message.content, message.status == "error")
            same = (one for one in reversed(outcomes) if (one.name, one.args) == call)
            again = message.content == render("same_result")
            outcomes.append(next(same, outcome) if again else outcome)
    return outcomes


def _test_that_has_to_pass(task: str, outcomes: Sequence[_Outcome]) -> str:
    """Return the test that a task wants to pass, if its last run did not."""
    if not (_HAS_TO_PASS.search(announcements.own_words(task)) and _wanted_changes(task)):
        return ""
    for test in (name for name in announcements.named_files(task) if "test" in name.lower()):
        stem = re.escape(PurePath(test).stem)
        forms = {name: f"{one.format(test=stem)}|{_ALL_TESTS}" for name, one in _RUNS.items()}
        calls = (one for one in outcomes if one.name in forms)
        runs = [one for one in calls if re.search(forms[one.name], one.args.replace("\\n", "\n"))]
        if not runs or runs[-1].failed:
            return test
    return ""


def _is_half(answer: str, task: str) -> bool:
    """Return True if an answer to two questions in one brings at most one new word or figure."""
    asked = _TWO_QUESTIONS.search(announcements.own_words(task)[:_MOST_CHARS])
    if asked is None or re.search(r"\bor\b", asked[0]):
        return False
    said, known = (re.findall(r"\w+", text.lower()) for text in (answer, task))
    return len([one for one in said if one not in {*known, *_FILL}]) < 2
