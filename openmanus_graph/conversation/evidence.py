"""Compares a reply with what happened: whether it is an answer. Pure."""

import json
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage

from openmanus_graph.conversation import history
from openmanus_graph.conversation.announcements import (
    WORDS_WANTED,
    NamedFiles,
    names_things,
    own_words,
)
from openmanus_graph.conversation.authorship import CALCULATING
from openmanus_graph.prompts import own_texts

ANSWER_MARK = re.compile(
    r"(?i)(?:\A|\n)[^\w\n]{0,6}(?:(?:the|my|final|die|la|el|a) )*"
    r"(?:answer|antwort|réponse|respuesta|resposta|risposta"
    r"|antwoord|svar|vastaus|válasz|răspuns|odpowiedź|odpověď|cevap|yanıt|jawaban|jibu|trả lời"
    r"|ответ|відповідь|απάντηση|الإجابة|الجواب|תשובה|उत्तर|คำตอบ|答案|回答|答え|답변|답)"
    r"[^\w\n:：]{0,4}(?:[:：](?:\*\*|__|[*_`])?[ \t]*|\n)\s*"
)
"""The line before an answer that was asked for, as `reply_announced` wants it."""
ANSWER_KEYS = ("final_answer", "answer", "response", "result", "output", "reply", "message", "text",
               "content", "summary", "explanation", "antwort", "respuesta")  # fmt: skip
BESIDE_KEYS = {"thought", "reasoning", "confidence", "type", "role", "status", "success"}
"""Keys of an object that only wraps an answer, likeliest first; and other keys in it."""
_MOST_QUOTED = 200
"""Words and signs of a reply that is looked for in results."""
OWN_SHARE = 0.7
"""A reply with this share of our words is an echo."""

SENTENCE_END = re.compile(r"(?<=[.!?;…])\s+|(?<=[。！？])|\n+")
UNTRUSTED_MARK = re.compile(r"</?untrusted-\w{8,}>\n?")
_FENCED = re.compile(r"```[\w-]*\n?(.*?)\n?```", re.DOTALL)
_TASK_LINE = re.compile(r"(?i)^\W*(?:(?:the|your|my) )?(?:task|question|request)(?: is)?\W+")
_JSON_WANTED = r"(?i)json|\bobjects?\b|\bdict|schema|structured|key[- ]value|\{|字典|对象"
_WORDS_WANTED = rf"{WORDS_WANTED}|重复|\b(?:say|greet|welcome|chat|phrase|text|repeat|echo|copy)"
_SMALL_TALK = (
    r"(?i)^\W*(?:hi|hello|hey|good|thanks?|hallo|guten|danke|hola|buen|gracias|bonjour|salut|merci"
    r"|ciao|ol[aá]|привет)\b|\b(?:you|help|du|sie|vous|usted)\b|你|您|こんにちは|안녕"
)
_ASKS = (
    r"(?i)[?？]|(?:^|[.,;!]\s+|\b(?:and|und|et|y)\s+)(?:how (?:many|much)|what|which|who"
    r"|tell|calculate|compute|count|determine|wie ?viele?"
    r"|welche|berechne|combien|quel|calcul|cuánt)"
    r"|多少|几个|什么|哪"
)
_BROKE = re.compile(r"(?i)error|traceback|no such|not found|denied|refused|cannot|failed|invalid")
_EMPTY_TALK = re.compile(
    r"(?i)(?:(?:it|this|that|all|everything|i|(?:the |your )?(?:task|work|request|answer|process))"
    r" ?(?:(?:is|are|has|have|was|['’]s|['’]ve)\b ?)?)?(?:(?:been|now|all|already|successfully) )*"
    r"(?:done|completed?|finished|success(?:ful|fully)?|ok(?:ay)?|ready|processed|executed|provided"
    r"|sure|understood|erledigt|fertig|abgeschlossen|terminé|fait|hecho|listo|feito|pronto|fatto"
    r"|готово|(?:任务)?已?完成了?|好的|好了|完了(?:しました)?|완료(?:되었습니다)?)"
    r"(?: (?:successfully|now))*|null|(?:(?:the|your) )?(?:final )?answer(?: here)?|"
)
_READY = re.compile(
    r"(?i)\b(?:i am|i['’]?m|we are) (?:now |all )?ready\b|^ready (?:to|for)\b|\btool interface\b"
    r"|\b(?:i am|i['’]m) (?:here|happy|glad) to (?:help|assist)\b"
    r"|\b(?:how|what) (?:can|may|could|should|shall|else can) i (?:do|help|assist)\b"
    r"|\bwhat (?:would you like|do you (?:want|need) me)\b"
    r"|\bplease (?:provide|give|share|specify|tell)\b.*\b(?:task|instructions?|request|query)\b"
    r"|\b(?:sorry|apolog\w+)\b.*\b(?:confusion|misunderstanding|inconvenience|mistake|format)\b"
    r"|\bi(?:['’]ll| will)\b.*\b(?:tool calls?|(?:correct|right|proper) (?:format|form|way))\b"
    r"|\bich bin bereit\b|\bwie kann ich (?:ihnen|dir)\b|\bje suis prête?\b|\bpuis-je vous aider\b"
    r"|\bestoy list[oa]\b|\b(?:puedo|posso) (?:ayudar|ajudar|aiutar)|\bчем могу\b|\bя готов"
    r"|\bas an? (?:ai|(?:large )?language)\b.*\bmodel\b"
    r"|准备好|(?:可以|能)(?:为[你您]|帮)|お手伝い|準備ができ|도와드릴|준비가"
)
"""What a reply says that waits for a task, or talks about its format."""
_FILLER = re.compile(
    r"(?i)\W*(?:(?:ok(?:ay)?|sure|certainly|of course|great|understood|got it|hello|hi|yes|thanks"
    r"|thank you|klar|verstanden|hallo|d['’]accord|claro|entendido|好的|明白|はい)\W*)*"
    r"|(?:please |just )?(?:let me know|tell me|feel free)\b.*"
)
_GIVES_UP = re.compile(
    r"(?i)\b(?:i|we) (?:can(?:not| not|['’]t)|could(?: not|n['’]t)|(?:am|was|were) not able"
    r"|(?:do|did)(?: not|n['’]t) (?:have|find|know))\b|\bunable to\b|\bgive up\b"
    r"|\b(?:can(?:not|['’]t)|could(?: not|n['’]t)) be\b|\bdo(?:es)?(?: not|n['’]t) exist\b"
    r"|\b(?:was|were|is|are|ha[sd]|have)(?: not|n['’]t) (?:been )?(?:made|created|found|done)\b"
    r"|\bstill (?:fails?|failing|missing|broken|wrong)\b"
    r"|\bi (?:still )?need to (?:import|define|install|find|fix|read|create|make|write|check|try"
    r"|use|run|convert|correct|change|add)\b"
    r"|\bneeds? to be (?:fixed|done|made|created|changed|written)\b"
    r"|\bno such file\b|\bkann ich nicht\b|\bkonnte\b.*\bnicht\b|\bnicht (?:gefunden|vorhanden)\b"
    r"|\bno (?:puedo|pude|se pudo|existe)\b|\bje n(?:e peux|['’]ai) pas\b|\bn['’]existe pas\b"
    r"|无法|没有找到|不存在"
)
_IN_GENERAL = re.compile(
    r"(?i)\bhow (?:to|(?:do|can|would|should) (?:i|you|we|one|people))\b|\b(?:which|what) command\b"
    r"|\b(?:should (?:i|we)|where should|why did you|did you|what (?:is|are) .{1,40} for"
    r"|what does the name)\b|\b(?:in general|usually|a good name|haiku|poem|later|ignore"
    r"|leave alone|(?:not|n['’]t) (?:touch|change|use|read|open))\b"
    r"|\b(?:wie (?:kann|öffne|macht) (?:ich|man)|welcher befehl|ignorier\w*|später|im allgemeinen"
    r"|cómo (?:se|puedo)|qué comando|comment (?:faire|ouvrir|puis-je)|quelle commande|en général)\b"
    r"|如何|怎么|什么命令|忽略|不要(?:动|碰|改)"
)
"""What a sentence says that names a file but does not ask for its content."""


_ABOUT_NAMES = re.compile(
    r"(?i)\b(?:how many|number of|count|list|names? of|which|what|any|wie ?viele|welche|combien de"
    r"|quels?|cuántos|qué)\b(?: (?:the|all|my|other|different))*(?: \w+)? "
    r"(?:files?|folders?|documents?|dateien|ordner|fichiers?|archivos?|is|are)\b"
    r"|(?:多少|几|哪些)个?\w{0,3}文件"
)
"""Asks for what a listing shows: names, sizes and number."""


def without_echoed_marks(text: str) -> str:
    """Return what a model wrote without copied marks of untrusted text."""
    return UNTRUSTED_MARK.sub("", text).strip() if "untrusted-" in text else text


def plain_answer(text: str, task: str) -> str:
    """Return an answer without marks of untrusted text, and without an object around it."""
    text = without_echoed_marks(text).strip()
    fenced = _FENCED.fullmatch(text)
    bare = str(fenced[1]).strip() if fenced else text
    if not bare.startswith("{") or re.search(_JSON_WANTED, task):
        return text
    for written in (bare, bare.replace("{{", "{").replace("}}", "}")):
        try:
            made: Any = json.loads(written)
        except (ValueError, RecursionError):
            continue
        wraps = {str(key).lower(): value for key, value in made.items()}
        held = next((wraps[key] for key in ANSWER_KEYS if key in wraps), "Done.")
        if wraps.keys() <= {*ANSWER_KEYS, *BESIDE_KEYS} and isinstance(held, str | int | float):
            return str(held).strip()
    return text


def is_quoted(text: str, messages: Sequence[AnyMessage], *, strict: bool = False) -> bool:
    """Return True if a result of the run contains the whole reply, which so reports it.

    If `strict`, what a program prints does not count, because it may be the model's own words.
    """
    pieces = re.findall(r"\w+|[^\w\s]", text.strip(" \n.!…。*_`"))
    if not 0 < len(pieces) <= _MOST_QUOTED:
        return False
    whole = r"\s*".join(map(re.escape, pieces))
    quoted = re.compile(rf"(?i)(?<!\w){whole}(?!\w)")
    return any(
        has_succeeded(one) and quoted.search(str(one.text))
        for one in history.run_messages(messages)
        if not (strict and one.name in CALCULATING)
    )


def is_hollow(text: str, task: str, *, delivered: bool = False) -> bool:
    """Return True if a reply says nothing: it is ready, or "Done" without delivered files."""
    plain = plain_answer(text, task)
    rest = ANSWER_MARK.sub("\n", f"\n{plain}\n").strip()
    if not task.strip():
        return False
    if not re.search(r"\w", rest):
        return not text.strip(".…-` \n") or bool(re.search(r"\w.*[:：*]|untrusted", text))
    if _is_empty_talk(plain):
        asks = names_things(task) and re.search(_ASKS, own_words(task)) is not None
        return asks and not delivered and plain == without_echoed_marks(text).strip()
    small_talk = len(task.split()) <= 8 and re.search(_SMALL_TALK, task)
    if not names_things(task) and (small_talk or re.search(_WORDS_WANTED, task)):
        return False
    # Each sentence says that it is ready, or nothing.
    said = [one for one in SENTENCE_END.split(rest) if re.search(r"\w", one)]
    ready = [one for one in said if _READY.search(one) and not re.search(r"\d", one)]
    return bool(ready) and all(one in ready or _FILLER.fullmatch(one) for one in said)


def _is_empty_talk(text: str) -> bool:
    return _EMPTY_TALK.fullmatch(text.strip(" \n.!…。！*_`\"'")) is not None


def is_echo(text: str, task: str, *, delivered: bool = False) -> bool:
    """Return True if a reply repeats an undelivered task, our words, or is an empty object."""
    plain = plain_answer(text, task)
    is_wrapped = plain != without_echoed_marks(text).strip()
    if not delivered and is_wrapped and _is_empty_talk(plain):
        return True
    if _repeats(text, task):
        return not delivered and re.search(_WORDS_WANTED, task) is None
    words = re.findall(r"\w+", text.lower())
    ours = _own_phrases()
    covered = {
        n + i for n in range(len(words)) if tuple(words[n : n + 3]) in ours for i in range(3)
    }
    return len(words) >= 6 and len(covered) >= OWN_SHARE * len(words)


def _repeats(text: str, task: str) -> bool:
    """Return True if a reply is the task, its beginning, or one of its questions."""
    asked = task.rpartition(f"\n\n{history.ATTACHED}")[0] or task
    questions = [one for one in SENTENCE_END.split(asked) if one.rstrip().endswith(("?", "？"))]
    said, *parts = (
        re.sub(r"[\W_]+", "", one).lower() for one in (_TASK_LINE.sub("", text), asked, *questions)
    )
    return any(
        len(one) > 15 and one.startswith(said) and len(said) > 0.8 * len(one) for one in parts
    )


@cache
def _own_phrases() -> frozenset[tuple[str, ...]]:
    """Return all sequences of three words in our prompts, without variables."""
    texts = [re.findall(r"\$?\w+", text.lower()) for text in own_texts()]
    found = (tuple(words[n : n + 3]) for words in texts for n in range(len(words) - 2))
    return frozenset(one for one in found if "$" not in "".join(one))


def gives_up(text: str) -> bool:
    return _GIVES_UP.search(text) is not None


def is_unread(task: str, messages: Sequence[AnyMessage], files: NamedFiles) -> bool:
    """Return True if a run is about existing files, and the model has seen nothing of them.

    No call of the thread succeeded, and no request had a picture, a text or a head of a file. A
    general question, such as how such a file is opened, is about no file.
    """
    seen = any(has_succeeded(one) or shows_content(one) or _has_run(one, files) for one in messages)
    if files.given == ["."] and history.LISTING in history.environment_of(messages)["facts"]:
        seen |= _ABOUT_NAMES.search(own_words(task)) is not None
    sentences = [one for one in SENTENCE_END.split(own_words(task)) if not _IN_GENERAL.search(one)]
    named = any(name in one for name in files.given for one in sentences)
    attached = not any(name in task for name in files.given)
    return bool(files.given) and (named or attached) and not seen


def has_succeeded(message: AnyMessage) -> bool:
    """Return True if a message is the result of a call that did work."""
    failed = not isinstance(message, ToolMessage) or message.status == "error"
    return not (failed or history.ends_run(message))


def _has_run(message: AnyMessage, files: NamedFiles) -> bool:
    """Return True if a failed call shows something, such as an error in a file of the task."""
    if not isinstance(message, ToolMessage) or message.name not in CALCULATING:
        return False
    text = str(message.text)
    return not _BROKE.search(text) or any(f'{name}"' in text for name in files.given)


def shows_content(message: AnyMessage) -> bool:
    """Return True if a message of a person, or of a flow, has more than a task."""
    if not isinstance(message, HumanMessage):
        return False
    noted, text = message.additional_kwargs, message.text
    keys = {history.NOTES_KEY, history.STEP_KEY} & noted.keys()
    if keys or noted.get("images") or history.listed_heads([message]):
        return True
    pasted = own_words(text) != text or text.count("\n") > 5
    return pasted or (not isinstance(message.content, str) and len(message.content) > 1)
