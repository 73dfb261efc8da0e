"""Distinguishes an answer from a text that only announces work. Pure.

There are four kinds of evidence. The text breaks off with a colon or dots. Its words say what the
speaker does next. The task is about files or pages, nothing was called, and the text adds nothing.
A file that the task names is missing, and the text does not mention it. The last two work in any
language. A model that was asked whether it meant an answer is believed if work supports it: all
files of the task exist and one was written, or calls were made and the text has figures.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

SHORT_CHARS = 600
"""Longer texts announce work only in their last sentence, after what they report."""
LAST_CHARS = 1000
LEAST_FACTS_CHARS = 400
"""A text this long says something."""
LEAST_BYTES = 24
"""A shorter text is a brief answer, unless its words announce work."""

_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+")
_QUOTED = re.compile(r"\"[^\"\n]*\"|“[^”]*”|„[^“”]*[“”]|«[^»]*»|「[^」]*」|`[^`\n]*`")
"""What somebody else says: a translation, a draft, a name."""
_ANNOTATION = re.compile(r"[*_#>\s\-–—•]+")
_BREAKS_OFF = re.compile(r"(?:[^\W\d_]\S* ){2}.*[^\W\d_]\s*:$|[\u3040-\u9fff]{4,}：$")
"""A last line of some words that ends with a colon."""
_COLONS = (":", "：")
"""Checked first, because looking for words before a colon takes 0.1 s."""
_DOTS = ("...", "…", "……")
_QUESTION = ("?", "？", "؟")
_NUMBER = re.compile(r"(?<!\d)\d+(?:[.,]\d+)*(?![.)] )")
"""A figure that is not a list item's number."""
_STEP_NUMBER = re.compile(r"\bstep \d+\b", re.IGNORECASE)
_BLOCK = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_ADDRESS = re.compile(r"https?://[^\s)>\"']+")
_FILE = re.compile(
    r"(?i)(?<![\w/-])[\w/-]++\.(?:csv|tsv|xlsx?|jsonl?|xml|ya?ml|txt|md|pdf|docx?|pptx?|html?|png|"
    r"jpe?g|gif|svg|py|ipynb|sh|sql|log|zip|parquet|toml|db|sqlite)\b"
)

_PASTED = re.compile(
    r"Traceback \(most|npm ERR!|^\W*File \"|\", line \d+|^\s*at \S+.*:\d+|^\s*--> |^[>$] "
    r"|^\W{0,2}\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d|\w(?:Error|Exception|Warning): "
    r"|No such file or dir|^\W*(?:ERR(?:OR)?|WARN(?:ING)?|INFO|DEBUG|FATAL|FAILED|panic)\b\W"
    r"|^\S+\.\w{1,5}:\d+[:\s]"
)
"""A line that a program wrote. In a task of one line, the text after it too."""

# The patterns that follow are long. They are compiled, by `re`, when a text is first looked into.
_THINGS = (
    r"(?i)\b(?:files?|folders?|director(?:y|ies)|repo(?:sitory)?|codebase|spreadsheets?"
    r"|web ?(?:site|page)s?|datei(?:en)?|ordner|verzeichnis|fichiers?|dossiers?|archivos?|ficheros?"
    r"|carpetas?|arquivos?|pastas?|cartell[ae]|bestand(?:en)?|mapp?en|filer(?:na)?|plik\w*|soubor\w*"
    r"|složk\w*|fișier\w*|tiedosto\w*|kansio\w*|fájl\w*|mappá\w*|dosya\w*|klasör\w*|berkas|faili|folda"
    r"|файл\w*|папк\w*|αρχεί\w*|φάκελ\w*|ملف\w*|المجلد|مجلد)\b|קובץ|קבצים|תיקי|फ़ाइल|फ़ोल्डर|文件|目录|網頁|网页|网站"
    r"|ファイル|フォルダ|ディレクトリ|파일|폴더|ไฟล์|โฟลเดอร์|thư mục|\btệp\b|საქაღალდე|ფაილ"
)
"""Words for what only a tool can read."""

_FILES_HERE = (
    r"(?i)\b(?:th(?:is|ese)|attached|uploaded|given|current|working|my|diese[mrsn]?|angehängte\w*|ce"
    r"|cette|este|esta|estos) (?:\w+ ){0,2}(?:files?|folder|director(?:y|ies)|workspace|csv|pdf"
    r"|spreadsheets?|datei(?:en)?|ordner|fichiers?|dossier|archivos?|carpeta)\b|\bin the (?:folder"
    r"|directory|workspace|csv|spreadsheet)\b|(?:这个|当前)\S{0,4}(?:文件|目录)|附件"
)

_DO = (
    r"(?:start|begin|now|next|first|then|read|list|check|look|open|run|analy[sz]e|compare|go|see"
    r"|fetch|search|download|create|write|make|proceed|continue|process|examine|inspect|work)"
)
_MORE_TO_DO = r"(?:find|fix|identify|convert|count|update|extract|determine|load|use|get)"
_DOING = (
    r"(?:starting|beginning|reading|processing|checking|calling|running|opening|listing|comparing"
    r"|continuing|working|proceeding|fetching|searching|looking|analy[sz]ing|writing|creating)"
)
_STATES = r"\b(?:is|are|was|were|takes?|took|costs?|shows?|showed|gives?|gave|needs?|makes?|made)\b"
_NEXT_OWN_ACTION = "(?i)" + "|".join(
    (
        # English
        r"\bi(?:['’]ll| (?:will|shall|should|must|plan to|intend to|am (?:going|about) to))\b",
        rf"\bi (?:need|have|want|would like) (?:the list|to (?:first )?(?:{_DO}|{_MORE_TO_DO}))\b",
        rf"\bi['’](?:m (?:going to|about to|gonna|now|on it)|d (?:like to )?{_DO})\b",
        rf"\b(?:i am|i['’]m) (?:now )?{_DOING}\b|\b(?:still|so far[;,]) {_DOING}\b",
        rf"; {_DOING}\b",
        rf"\bi (?:now )?(?:proceed|continue) to\b|[;,] {_DOING} (?:the rest|with|on)\b",
        r"\blet me\b|\blet(?:['’]s| us)\b|\bi can do that\b|\beverything i need to\b",
        rf"\bwe(?:['’]ll| will| need to| should| must) (?:now |first )?{_DO}\b",
        rf"^(?:\W*(?:ok(?:ay)?|sure|alright|understood|got it|on it|now|next|first)\b)*\W*"
        rf"(?:still )?{_DOING}\b(?!.*{_STATES})",
        r"\b(?:hang tight|stand by|please wait|(?:get started|start) (?:now|right away)|will do"
        r"|report back|comes next|(?:here(?:['’]s| is) )?my (?:plan|approach)\b.{0,3}:)",
        r"\b(?:first|next) (?:step|up|on)?(?: are|: | (?:is|would be) to " + _DO + r"\b)",
        r"\band will continue\b",
        rf"^(?:now|next|first|time to),? (?:i )?{_DO}\b",
        r"\bneeds? to be (?:written|made|read)\b",
        r"^(?:just )?(?:one|a) moment\b|^(?:i['’]m )?on it\b|^step 1\b|^action: \w+",
        r"^(?:that failed[;,:.]? )?(?:retrying|trying|moving on|viewing|generating|on to the)\b"
        rf"(?!.*{_STATES})",
        r"\bin progress\b\W*$",
        # German, Dutch, Scandinavian
        r"\bich \w+ (?:nun|jetzt|dann|zuerst)\b|\b(?:nun|jetzt|dann|dazu|zuerst) \w+ ich\b",
        r"\b(?:ich (?:werde|beginne|schaue|lese jetzt|liste|sehe mir|fange)|werde ich)\b",
        r"\blass(?:t|en sie)? mich\b",
        r"\b(?:beginne|fange|lese|liste|vergleiche|sehe|öffne) ich\b",
        r"\beinen moment\b|^nun folgt\b",
        r"\bik (?:ga|zal)\b|\b(?:ga|zal) ik\b|\blaat me\b",
        r"\bjag (?:ska|kommer att)\b|\b(?:ska|kommer) jag\b|\bjeg (?:vil|skal)\b",
        r"\b(?:vil|skal) jeg\b",
        # French, Spanish, Portuguese, Italian, Romanian
        r"\bje (?:vais|commence(?:rai)?|procède|m['’]en occupe)\b",
        r"\bje \w+ (?:maintenant|d['’]abord)\b",
        r"\b(?:d['’]abord|maintenant|ensuite),? je \w+|\blaissez-moi\b|\bcommençons\b",
        r"\bun instant\b",
        r"\bvoy a\b|\b(?:comenzaré|empezaré|leeré|procedo a|empecemos|comencemos|déjame)\b",
        r"\b(?:ahora|primero|a continuación),? (?:\w+ré|necesito|\w+o)\b|\bestoy \w+ndo\b",
        r"\bun momento\b",
        r"\bvamos a (?:leer|ver|empezar|comenzar|listar|comparar)\b",
        r"\bvou \w+(?:r|ndo)\b|\bcomeçarei\b|\bdeixe-me\b",
        r"\b(?:primeiro|agora),? (?:vou|preciso)\b",
        r"\binizi(?:o|erò|amo)\b|\b(?:fammi|lasciami)\b",
        r"\b(?:ora|prima|poi|adesso) \w+(?:[ei]rò|o)\b",
        r"^(?!(?:im)?però\b)\w+[ei]rò\b|\bvoi (?:citi|începe|compara|verifica)\w*\b",
        # Polish, Czech, Russian, Ukrainian, Finnish, Hungarian, Turkish, Greek
        r"\b(?:zacznę|przeczytam|sprawdzę|sprawdzam|začnu|přečtu|podívám)\b",
        r"\bпозвольте мне\b",
        r"\b(?:начну|приступаю|почну|зараз я)\b",
        r"\b(?:сначала|сперва|сейчас|теперь) (?:я\b|\w+(?<!и)ю\b)",
        r"\b(?:aloitan|luen (?:nyt|ensin)|seuraavaksi \w+n|nyt \w+n)\b",
        r"\b(?:most(?=.*[áéíóöőúüű])|először|ezután)\b.*\w+(?:om|em|öm)\b",
        r"\b\w+(?:acağım|eceğim)\b|\bbaşlıyorum\b|\b(?:şimdi|önce)\b.*\w+[ıiuü]yorum\b",
        r"\bθα \w+ω\b",
        # Arabic, Hebrew, Hindi, Vietnamese, Indonesian, Swahili, Thai
        r"\bسأ\w+|\bسوف أ\w*|\bدعني\b|(?:ूँगा|ूंगा|ूँगी|ूंगी)|\bאני (?:אקרא|אתחיל|אבדוק)",
        r"\btôi sẽ\b|\bhãy để tôi\b|\bsaya akan\b|\bmari kita\b",
        r"\b(?:sasa|kwanza|kisha) nita\w+",
        r"(?:ผม|ฉัน|ดิฉัน)จะ|^กรุณารอ(?:สักครู่|ครับ|ค่ะ)|กำลัง(?:อ่าน|ดู|ตรวจ|เปิด)",
        r"เริ่มจากการ|ขั้นตอนต่อไปคือ|เดี๋ยวขอ",
        # Chinese, Japanese, Korean: no spaces between words
        r"我(?:将|會|会|来|來|就来|马上|现在(?:就|去)?|准备|打算|这就|要先|需要先|先(?:列|读|看|查|检|打开|分析))",
        r"我们(?:将|先|来|开始)|让我|讓我|接下来(?:我|核|比|读|检|查|将)|接着(?:比|读|检|核)",
        r"正在(?:读|讀|处理|處理|检查|分析|查看|打开|计算|列出|比较|下载|为您)|请稍|稍等|(?:马上|馬上)(?:开始|就)",
        r"(?:首先|第一步|下一步|现在|先)[，,：:]?(?:读|讀|列|查|看)|开始(?:处理|读取|分析)",
        r"(?:まず|次に|これから|それでは|では|ただいま).{0,60}(?:確認|読|調べ|開始|始め|比較|取得|作成)\w*(?:ます|ましょう)",
        r"(?:始め|はじめ)ます|開始いたします|(?:読んで|見て|確認して)(?:いき|み)ま(?:す|しょう)|一覧表示します",
        r"少々お待ち|(?:読み込み|読み込んで)\w*ます|確認いたします|(?<!좋)겠습니다|할게요|시작합니다|기다려",
    )
)
"""Words that say what the speaker does next, in the languages that models are used in."""

_NO_ACTION = (
    r"(?i)\b(?<!check )(?<!see )(?:if|once|when|whenever|should|unless) "
    r"(?:you|there|it|they|the|anything|something)\b"
    r"|\b(?:i|we)(?:['’]ll| will| am going to|['’]m going to) (?:now |then )?"
    r"(?:finish|end|conclude|close|terminate|wrap|await|stand by|mark)\b"
    r"|\b(?:please|confirm|tell me|send|reply|say|give me|just ask|approve)\b.{0,99}\bi\b"
    r"|\b(?:just ask|if you like|on request)\b"
    r"|\b(?:bestätig\w*|sag|gib|confirma|dime|dígame|envía\w*|dis-moi|confirme\w*)\b.{0,99}"
    r"|(?:确认|请您?|告诉我).{0,30}我"
    r"|\blet me (?:double|note|add|stress)\b"
    r"|\bi (?:should|must) (?:note|mention|add|admit|say|stress|point)\b"
    r"|\b(?:beende|warte|schließe)\b|\b(?:terminer|attendre|clore)\b|\b(?:finalizar|terminar|esperar|encerrar|"
    r"aguardar|concludere|attendere)\w*|заверш|ожида|жду\b|结束|等待|마치|기다리|종료"
    r"|\blet me (?:know|be clear|explain|put|denote)\b|\bjust say\b|\bto you\b"
    r"|\b(?:i|we)(?:['’]ll| will| shall) (?:be (?:happy|glad|here|able)|wait|not\b|never\b|only\b|"
    r"gladly|leave|stop|assume|remember|keep|call you|always|subtract|tell you)"
    r"|\blet['’]s (?:assume|say|suppose|imagine|go|talk)\b"
    r"|\b(?:nie|nicht|wenn|falls|sobald)\b|\b(?:si|se|avísame|dites-moi)\b|\bno voy\b|\bom\b"
    r"|\b(?:если|jeśli|jika|nếu|olursa)\b|سعيد|буду (?:рад|ждать)"
    r"|如果|如有|需要的话|随时|请告诉我|我会很|我不会|我将不|让我解释|お知らせ|必要であれば|もし|よろしく"
    r"|ご報告|필요하|있으면|도와"
)
"""Offers, conditions, refusals and figures of speech, which end many answers."""

WORDS_WANTED = (
    r"(?i)\b(?:translat|übersetz|tradu|poem|haiku|song|slogan|letter|e-?mail|reply|story|joke|draft|"
    r"conjugat|quote|minutes|message|post\b|tweet|sms|bio\b|dialog|speech|recipe|sentence|chess|role|"
    r"gedicht|brief|nachricht|rezept|rede\b|poème|message|recette|discours|carta|mensaje|receta|mensagem)"
    r"|翻译|翻訳|번역|诗|信|消息|メール|メッセージ|메시지"
)
"""Tasks for a text in which somebody may say what he will do."""


@dataclass(frozen=True)
class NamedFiles:
    """The state of the files that a task names."""

    missing: Sequence[str] = ()
    """Missing files, as the task names them."""
    delivered: bool = False
    """Whether all exist and the run has written one."""
    given: Sequence[str] = ()
    """Files that existed when the run began; or the folder, if the task is about all of it."""
    empty: Sequence[str] = ()
    """Files made since the run began, without content."""
    changed: bool = True
    """Whether the run made, changed or removed any file."""
    invalid: Sequence[str] = ()
    """Files that the run made or changed and that do not have the format of their name."""
    text: str = ""
    """The beginning of the files that the run made or changed."""
    folders: Sequence[str] = ()
    """Folders that the task asks to make, and that do not exist."""
    there: Sequence[str] = ()
    """Files that the answer names and that exist."""
    shrunk: Sequence[str] = ()
    """Files that existed when the run began, and are less than half as large now."""


_WITH_COLUMNS = (
    r"\b(?:with|mit|avec|con) (?:exactly )?(?:(?:the|these|two|three|four|den|les|las) )*"
    r"(?:columns?|headers?|fields|spalten|colonnes|columnas):? ([^.;:\n(]+)"
)
_COLUMN = re.compile(
    r"(?i)(?!(?:in|with|for|where|sorted|by|as|from|each|both|one|rounded|no|that|which|separated)\b)"
    r"\w+(?:[ -]\w+)?"
)
_A_FOLDER = r"(?:sub)?(?:folders?|director(?:y|ies)|ordner|dossiers?|carpetas?)"
_MAKES_FOLDER = re.compile(
    rf"(?i)(?:\A|[,:]|\b(?:and|then|first|now|please|to|und|bitte|et|y)\b)\s*"
    rf"(?:make|create|mkdir|add|erstelle|crée[rz]?|crea)\b"
    rf" (?:(?:me|an?|the|one|two|three|four|\d+|new|empty|following|ein\w*|une?|una) )*"
    rf"{_A_FOLDER}\b"
)
_FOLDER = (
    r"(?:[`'\"][\w./-]+[`'\"]|(?!(?:structure|tree|hierarchy|names?|paths?|icons?|layout|list"
    r"|listing|index|sizes?|overview|view|watcher|scanner|organi[sz]er|cleaner|for|with|that|and"
    r"|in|inside|of|to|where|which|from|under|on|at|per|is|if|as|containing|here|there|first|mit"
    r"|für|pour|con|para)\b)\w[\w/-]*)"
)
_FOLDERS = re.compile(
    rf"(?i)\b{_A_FOLDER}(?: (?:called|named|namens|nommée?|llamad[ao]))?:? "
    rf"({_FOLDER}(?:(?:, (?:and )?| (?:and|und|et|y) ){_FOLDER})*)"
    r"(?= (?:with|and|in|inside|under|that|containing|mit|und|im)\b|[,.;:!?)]|\s*$)"
)
"""Names after the word for folders. Compounds such as "folder structure" are none."""
_WITHIN = re.compile(
    r"(?i)\s*(?:with|containing|mit)(?: (?:the|two|three|four|\d+|empty|subfolders?|den))* "
)
"""Between the name of a folder and those of the folders in it."""
_FOLDER_NAME = re.compile(rf"(?i)(?<![\w/.-])(?!(?:und|et|y)\b){_FOLDER}")
_OFFERS = re.compile(
    r"(?i)(?<!what )(?<!how )\b(?:shall|should|may|can) (?:i|we) (?:now |first )?"
    r"(?:start|begin|proceed|go|continue|read|do)\b"
    r"|(?<!what would you )\b(?:want|like) me to\b"
    r"|\bsoll ich\b|\bdois-je\b|\b(?:quieres|desea) que\b|要我"
    r"|需要我|しましょうか|할까요"
)
"""Questions whether to begin, by which no work was done."""
_WELL_KNOWN = re.compile(
    r"(?i)\b(?:the|is|are|of|der|die|das|ist|und|le|les|est|el|los|es|está|het|een|il|che|os|não)\b"
)
"""Words of languages in which the patterns find most announcements."""


def announces_work(
    text: str, *, task: str, worked: bool, files: NamedFiles = NamedFiles(), asked: bool = False
) -> bool:
    """Return True if a text only announces work that no call does.

    The text is that of a reply without tool calls. The run has `worked` if it has called a tool,
    and its newest calls did not fail. If the model was already `asked` if it meant an answer, dots
    at the end, and words in a text that was to be written, are not evidence.
    """
    text = text.strip()
    if text.endswith(_QUESTION):  # to the person
        return not (worked or asked) and bool(_OFFERS.search(text))
    facts = says_something(text, task, asked=asked or not files.given)
    if asked and not files.missing and (files.delivered or (worked and facts)):
        return False
    if _words_announce(text, task, worked=worked, asked=asked):
        return True
    # No word announces work, which proves little if the language is not well known.
    believed = asked and bool(_WELL_KNOWN.search(text))
    if files.missing:
        named = any(PurePath(name).name in text for name in files.missing)
        speaks = facts or (named and (worked or asked))
        return not (speaks or (believed and worked))
    if worked or facts or len(text.encode("utf-8", "replace")) < LEAST_BYTES:
        return False
    only_words = not named_files(task) and not _ADDRESS.search(task)
    return names_things(task) and not (believed and only_words)


def _words_announce(text: str, task: str, *, worked: bool, asked: bool) -> bool:
    bare = _BLOCK.sub("\n", text).strip()
    short = len(bare) <= SHORT_CHARS
    end = bare if short else bare[-LAST_CHARS:]
    if bare == text and end.endswith(_COLONS) and _BREAKS_OFF.search(end.rpartition("\n")[2]):
        return True
    if short and not asked and bare.endswith(_DOTS):
        return True
    return says_next_action(end, task, whole=short and not worked, asked=asked)


def says_next_action(text: str, task: str, *, whole: bool, asked: bool) -> bool:
    """Return True if words of a text say what the speaker does next.

    If the task wants a text, such words may be part of that. All sentences count if `whole`,
    because nothing was done before, else only the last two.
    """
    if asked and re.search(WORDS_WANTED, task):
        return False
    unquoted = _QUOTED.sub("", text)
    plain = (_ANNOTATION.sub(" ", one).strip() for one in _SENTENCE_END.split(unquoted))
    sentences = [one for one in plain if one]
    says = [
        bool(re.search(_NEXT_OWN_ACTION, one)) and not re.search(_NO_ACTION, one)
        for one in (sentences if whole else sentences[-2:])
    ]
    # A model that has worked, was asked, and says more than what it does next has answered.
    return bool(says) and (all(says) if asked and not whole else any(says))


def names_things(task: str) -> bool:
    """Return True if a task is about files or pages, and so needs a tool."""
    task = own_words(task)
    return bool(named_files(task) or _ADDRESS.search(task) or re.search(_THINGS, task))


def named_files(task: str) -> list[str]:
    """Return the files that a task names, except those in a pasted text."""
    return list(dict.fromkeys(_FILE.findall(_ADDRESS.sub("", own_words(task)))))


def columns_of(file: str, task: str) -> list[str]:
    """Return the columns that a task wants a table to have."""
    named = re.search(rf"(?i){re.escape(file)}\b[^.;\n]{{0,80}}?{_WITH_COLUMNS}", own_words(task))
    names = re.split(r",|\b(?:and|und|et|y)\b", named[1]) if named else []
    bare = (one.strip(" `'\"") for one in names)
    return [one for one in bare if _COLUMN.fullmatch(one)]


def folders_to_make(task: str) -> list[str]:
    """Return the folders that a task asks to make, as it names them."""
    found = list[str]()
    for sentence in re.split(r"(?<=[.!?;])\s+|\n+", own_words(task)):
        if (made := _MAKES_FOLDER.search(sentence)) is None:
            continue
        outer, end = "", 0
        for named in _FOLDERS.finditer(sentence, made.start()):
            names = [one.strip("`'\"").rstrip("/") for one in _FOLDER_NAME.findall(named[1])]
            inside = end and _WITHIN.fullmatch(sentence, end, named.start())
            found += [f"{outer}/{one}" if inside else one for one in names]
            outer, end = names[0], named.end()
    return [*dict.fromkeys(one for one in found if not one.startswith(("/", "..")))]


def means_folder(task: str) -> bool:
    """Return True if a task is about existing files, whatever their names."""
    return re.search(_FILES_HERE, own_words(task)) is not None


def own_words(task: str) -> str:
    """Return a task without pasted code, tracebacks and logs, which name other files."""
    lines = _BLOCK.sub("", task).split("\n")
    pasted = [_PASTED.search(line) for line in lines]
    if len(lines) == 1 and pasted[0] is not None:
        return lines[0][: pasted[0].start()]
    indented = ("    ", "\t") if any(pasted) else ("\0",)
    said = [
        line
        for line, found in zip(lines, pasted, strict=True)
        if not (found or line.startswith(indented))
    ]
    return "\n".join(said)


def says_something(text: str, task: str, *, asked: bool = True) -> bool:
    """Return True if a text adds figures, addresses, much text or, if `asked`, code to its task."""
    if len(text) > LEAST_FACTS_CHARS or (asked and "```" in text):
        return True
    text = _STEP_NUMBER.sub("", text)
    known = set(_NUMBER.findall(task)) | set(_ADDRESS.findall(task))
    return bool({*_NUMBER.findall(text), *_ADDRESS.findall(text)} - known)
