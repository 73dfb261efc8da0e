"""Compares what a task wants made or changed with what is there. Pure."""

import re
from collections.abc import Sequence

from openmanus_graph.conversation.announcements import NamedFiles, own_words

_MOST_BEFORE = 400
"""Characters before a file's name in which it is looked for what is to be done with it."""
SENTENCE_END = re.compile(r"(?<=[.!?;…])\s+|(?<=[。！？])|\n+")
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
"""A sentence that asks for a change."""
_REMOVES = (
    r"(?i)\b(?:remov|delet|drop|only\b|keep|strip|clean|clear|empty|filter|trim|short|dedup|duplicat"
    r"|compress|summar|replac|simplif|reduc|without|extract|rewrit|first|last|convert|split|move"
    r"|entfern|lösch|kürz|ersetz|supprim|remplac|elimin|borr|reemplaz)|删|去|替换|精简"
)
"""What a task says that may leave less of a file."""
_HOW = r"(?i)\W*(?:how (?:do|to|can|would)|why|wie (?:kann|schreib)|cómo|如何|怎么)"
_NOT_NOW = re.compile(
    _HOW + r"|.*\b(?:script|program|function|code|class|skript|programm)\b"
    r".*\b(?:that|which|das|qui|que)\b"
    r"|(?!.*\b(?:save|store|put|run)\b).*\b(?:write|draft|give|compose|show|suggest)\b"
    r"(?: me)? (?:an?|the) (?:\S+ ){0,2}?(?:(?:command|one-?liner|snippet|entry|rule)\b"
    rf"|(?:e-?mail|message|letter|reply)\b(?!.*{_INTO}$))"
)
"""The question how, what a program is to do that is to be written, and what a letter is about."""
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
"""What stands before a file that need not be made: a question, a denial or a condition."""
_OTHERWISE = re.compile(r"(?i)^[\W]{0,3}(?:or|oder|o|ou|或)\b")


def unmade_files(text: str, task: str, files: NamedFiles) -> list[str]:
    """Return the files that a task asks to be made and that are missing, if its answer hides it.

    An empty file counts as missing, unless it was to be one.
    """
    missing = [*files.missing]
    if not re.search(_EMPTY_WANTED, task):
        missing += files.empty
    if not missing or denies(text, missing):
        return []
    return [name for name in missing if _is_to_be_made(name, task)]


def _is_to_be_made(name: str, task: str) -> bool:
    parts = (one.partition(name) for one in SENTENCE_END.split(own_words(task)))
    return any(
        (_TO_MAKE.search(before[-_MOST_BEFORE:]) or _MADE_AFTER.match(after))
        and not (_NOT_NOW.match(before) or _IS_OPEN.search(before) or _OTHERWISE.search(after))
        for before, found, after in parts
        if found
    )


def unchanged_files(text: str, task: str, files: NamedFiles) -> list[str]:
    """Return the files that a task asks to be changed, if the run changed none and hides it."""
    if files.changed or denies(text, files.given):
        return []
    asked = _wanted_changes(task)
    return [name for name in files.given if any(name in one for one in asked)]


def unmade_folders(text: str, files: NamedFiles) -> list[str]:
    """Return the folders that a task asks to be made and that are missing, if its answer hides it.

    They may be meant to be elsewhere, so it is for models whose word counts little.
    """
    return [] if denies(text, files.folders) else [*files.folders]


def emptied_files(task: str, files: NamedFiles) -> list[str]:
    """Return the files that lost most of what they held, though nothing in a task asks for it."""
    if re.search(_REMOVES, own_words(task)):
        return []
    changes = asks_for_change(task)
    return [name for name in files.shrunk if changes or not _is_to_be_made(name, task)]


def asks_for_change(task: str) -> bool:
    """Return True if a task asks to change something."""
    return bool(_wanted_changes(task))


def _wanted_changes(task: str) -> list[str]:
    sentences = SENTENCE_END.split(own_words(task))
    return [one for one in sentences if re.search(_CHANGES, one) and not re.match(_HOW, one)]


def denies(text: str, names: Sequence[str]) -> bool:
    """Return True if an answer says that files are not there, or could not be made."""
    about = "|".join([_MAKES, r"\b(?:files?|datei|fichier|archivo)\b|文件", *map(re.escape, names)])
    said = [
        one for one in re.split(r"(?<=[.!?])\s+|[。！？\n]", text) if re.search(f"(?i){about}", one)
    ]
    return any(_DENIES.search(one[:1000]) for one in said)
