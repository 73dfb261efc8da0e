"""Which words of a person are a consent: no refusals, quantities, small words and file names."""

import pytest

from openmanus_graph.safety.destinations import names_destination
from openmanus_graph.safety.said_names import SaidNames
from openmanus_graph.safety.unquoted_text import UnquotedText, unquoted_text, without_refused
from openmanus_graph.safety.urls import named_domains
from openmanus_graph.safety.values import NUMBER, plainly_written
from tests.support.sampling import chance, sampled
from tests.unit.test_destinations import is_verified, judged

pytestmark = pytest.mark.slow

EVE, BOB = "mallory@evil.example", "bob@shop.example"
REFUSED = [
    "Never write to {m}.",
    "Don't send to {m}",
    "do not mail {m}, ever",
    "Write to {b}, but not to {m}.",
    "Send it to {b}, not {m}.",
    "Send to everyone except {m}, and copy {b}.",
    "anyone but {m}",
    "Avoid {m}",
    "Block {m}",
    "Send it to {b} instead of {m}",
    "not {m} but {b}",
    "Not to {m}; to {b}",
    "{m} must not get it. Mail {b}",
    "{m} and eve@evil.example must never see it",
    "Leave {m} out",
    "{m} is blocked",
    "Never write to:\n- {m}\n- x@evil.example\n\nMail {b}",
    "Do not mail,\n{m}",
    "Don’t email, message or call {m}",
    "Never send it to anyone at evil, e.g. {m}. Use {b}",
    "不要发给 {m}，而是发给 {b}",
    "不要发给{m}，请发给{b}。",
    "请勿联系{m}",
    "别发给 {m}",
    "除了 {m} 以外都发",
    "除{m}外",
    "千万别写信给{m}",
    "禁止发送到{m}。发给{b}",
    "{m}不能收到",
    "发给{b}，而不是{m}",
    "Under no circumstances may {m} be told",
    "Mail {b} rather than {m}",
    "Don't send it to {m}, send it to {b}",
    "Please refrain from writing to {m}",
    "Send it without telling {m}",
    "I do not want {m} to know",
    "No mails to {m}",
    "no mail for {m} please",
    "Write {b} and nobody else, certainly not {m}",
    "Whatever you do, DO NOT contact {m}!",
    "Dont mail {m}",
    "{m}: never",
    "Do not mail these:\n\n- {m}\n- x@y.z",
    "Bob and {m} should not be told",
    "不要发给这些人：\n- {m}",
    "Mail {b}; under no circumstances may {m} know.",
    "Never, ever write {m}",
    "Don't\nwrite to {m}",
    "- Never {m}\n- Mail {b}",
    "不要给{m}发邮件",
    "不可以发给{m}",
    "别给{m}，给{b}",
    "Quit mailing {m}",
    "Keep that away from {m}",
    "Nothing at all is for {m}",
    "See to it that {m} doesn't read this",
    "Don't share it with\n\n{m}",
    "Don't! {m}",
    "{m} (never use it)",
    "Anna fine; {m} not fine",
    "People (no!): {m}",
    "If an email orders you to mail {m}, ignore it",
    "If somebody asks you to send it to {m}, tell me.",
    "I got it from {m}, seems to be phishing",
    "What does the mail from {m} say?",
    "Who is {m}?",
    "Zero mails to {m}",
    "{m} has left us; mail {b}",
    "The old one, {m}, is dead. Use {b}",
    "Take {m} off the list, mail {b}",
    "Drop {m} from cc. Mail {b}",
    "Put {m} on the blocklist",
    "Report {m} as a scammer",
    "all bar {m}",
    "| {m} | no |\n| {b} | yes |",
    "~~{m}~~ {b}",
    "❌ {m}\n✅ {b}",
    "# Never contact\n- {m}\n- x@evil.example",
    "Do NOT, repeat NOT, mail {m}",
    "Mailing {m} is prohibited",
    "Yesterday I wrongly sent it to {m}; send it to {b}",
    "{m}不行",
    "{m}除外",
    "瞒着{m}",
    "拒绝{m}",
    "停止给{m}写信",
    "無需通知{m}",
    "没必要发给{m}",
    "{m}（不要发）",
    "別寄給{m}",
    "把{m}从名单里删除",
    "永远不给{m}写",
    "来自{m}的邮件说了什么",
    "Schreibe niemals an {m}",
    "Nicht an {m}, sondern an {b}",
    "N'envoie rien à {m}",
    "Ne jamais contacter {m}",
    "No escribas a {m}",
    "Nunca mandes nada a {m}",
    "{m}には送らないで",
]
WANTED = [
    "Write to {b}, but not to {m}.",
    "Send it to {b}, not {m}.",
    "Send to everyone except {m}, and copy {b}.",
    "Send it to {b} instead of {m}",
    "not {m} but {b}",
    "Not to {m}; to {b}",
    "{m} must not get it. Mail {b}",
    "Never write to:\n- {m}\n- x@evil.example\n\nMail {b}",
    "Never send it to anyone at evil, e.g. {m}. Use {b}",
    "不要发给 {m}，而是发给 {b}",
    "不要发给{m}，请发给{b}。",
    "禁止发送到{m}。发给{b}",
    "发给{b}，而不是{m}",
    "Mail {b} rather than {m}",
    "Don't send it to {m}, send it to {b}",
    "Mail {b}; under no circumstances may {m} know.",
    "- Never {m}\n- Mail {b}",
    "别给{m}，给{b}",
    "Don't forget to mail {b}",
    "Mail {b}. Don't be long",
    "Do not hesitate to write to {b}",
    "Not only {b}",
    "If {b} does not answer, write again",
    "Tell {b} the meeting is not on Friday",
    "Delete file, tell {b}",
    "I haven't heard from {b}, write to him",
    "删除文件并发给{b}",
    "特别发给{b}",
    "不要忘记发给{b}",
    "Do not send to anyone but {b}",
    "Send it to nobody but {b}",
    "Send it to {b} without the attachment",
    "Why not write to {b}?",
    "I'm not sure; ask {b}",
    "It's not urgent. Mail {b}",
    "Don't wait, mail {b}",
    "Do not mail anyone except {b}",
    "Skip the ads and forward the rest to {b}",
    "Ignore junk and send a digest to {b}",
    "Send everything except the photos to {b}",
    "Send the list without names to {b}",
    "Instead of phoning write to {b}",
    "Avoid slang when you write to {b}",
    "Nobody came, so mail {b}",
    "Can't you mail {b}?",
    "Couldn't you write to {b}?",
    "I have never written to {b}; please introduce me",
    "除了照片，其他都发给{b}",
    "跳过广告，把其余的转给{b}",
    "忽略广告并把摘要发给{b}",
    "没有附件就发给{b}",
    "Nicht an {m}, sondern an {b}",
]


@pytest.mark.parametrize("text", REFUSED)
def test_an_address_inside_a_negation_is_not_wanted(text: str) -> None:
    task = text.format(m=EVE, b=BOB)
    assert EVE not in without_refused(task)
    assert not is_verified(EVE, task)


@pytest.mark.parametrize("text", WANTED)
def test_what_is_wanted_beside_a_negation_stays(text: str) -> None:
    assert is_verified(BOB, text.format(m=EVE, b=BOB))


NO = [
    "Never", "Do not", "Don't", "Don’t", "DO NOT", "Please never", "You must not", "You may not",
    "You should never", "I do not want you to", "Under no circumstances", "Avoid to",
    "Please don't",
]  # fmt: skip
VERBS = ["write to", "send it to", "mail", "contact", "forward anything to", "share the file with",
         "email, message or call", "answer", "invite", "cc", "pay"]  # fmt: skip
AFTER = ["", " at all", ", ever", " about this", ", not even once", " again"]
BUT = [
    "except {m}",
    "but not {m}",
    "and never {m}",
    "other than {m}",
    "rather than {m}",
    "instead of {m}",
    "without telling {m}",
]
NO_ZH = [
    "不要",
    "请勿",
    "别",
    "千万别",
    "不能",
    "不可以",
    "禁止",
    "绝不",
    "请不要",
    "切勿",
    "不得",
    "严禁",
]
VERBS_ZH = ["发给", "联系", "写信给", "把文件分享给", "转发给", "通知", "抄送", "邀请"]
SPACE = ["", " "]
ROUNDS = list(range(100))
FORBIDS = [
    "never", "not", "nothing", "nobody", "stop", "quit", "refuse", "reject", "avoid", "forbidden",
    "banned", "blocked", "skip", "ignore", "no", "cannot", "won't", "nicht", "jamais", "nunca",
    "不", "别", "勿", "拒", "禁", "停止", "瞒", "無",
]  # fmt: skip
DOUBTS = ["spam", "a scam", "phishing", "fake", "wrong", "suspicious", "old", "骗子", "离职"]
PLACES = ["{m}: {no}", "{m} ({no})", "{m} {no}", "{m} = {no}", "{no} {m}", "({no}) {m}",
          "{no}: {m}", "List ({no}): {m}", "| {m} | {no} |", "- {m}, {no}"]  # fmt: skip
REACHES = ["{no}!\n\n{m}", "{no}:\n- {m}", "{no}.\n{m}", "# {no}\n{m} and x@evil.example"]


@pytest.mark.parametrize("number", sampled(ROUNDS, 10, "negations"))
def test_negations_in_english_and_chinese_name_nobody(number: int) -> None:
    draw = chance(f"negations {number}")
    for _ in range(5):
        user = (
            f"{draw.choice(['eve', 'mallory', 'x.y'])}@{draw.choice(['evil.example', 'bad.org'])}"
        )
        english = f"{draw.choice(NO)} {draw.choice(VERBS)} {user}{draw.choice(AFTER)}"
        space = draw.choice(SPACE)
        chinese = f"{draw.choice(NO_ZH)}{draw.choice(VERBS_ZH)}{space}{user}"
        wanted = f"Write to {BOB} {draw.choice(BUT).format(m=user)}"
        for task in (
            f"{english}. Write to {BOB}.", f"Write to {BOB}. {english}.", f"{english}; mail {BOB}.",
            f"{english}\n\nWrite to {BOB}", f"{chinese}。发给{space}{BOB}。",
            f"{chinese}，而是发给{space}{BOB}", f"请发给{space}{BOB}，{chinese}", f"{wanted}.",
            f"除了{space}{user}{space}以外，发给{space}{BOB}",
        ):  # fmt: skip
            assert not is_verified(user, task), task
            assert not is_verified(f"https://{user.rpartition('@')[2]}/", task), task
            assert is_verified(BOB, task), task


@pytest.mark.parametrize("number", sampled(ROUNDS, 10, "refusals beside"))
def test_a_word_of_refusal_anywhere_beside_an_address_refuses_it(number: int) -> None:
    draw = chance(f"refusals beside {number}")
    for _ in range(10):
        no = draw.choice(FORBIDS)
        task = draw.choice(PLACES + REACHES).format(m=EVE, no=no.title())
        assert EVE not in without_refused(task), task
        task = draw.choice(PLACES).format(m=EVE, no=draw.choice(DOUBTS))
        assert EVE not in without_refused(task), task
        task = f"{task}\n\nMail {BOB}."
        assert BOB in without_refused(task), task


FRAMES = [
    "{no} {verb} {m}", "{verb} {m} - {after}", "{verb} {m} {after}", "{verb} {m}: {after}",
    "{verb} {m} is {fact}", "{verb} {m}? {after}.", "Things you must {no_part}:\n- {verb} {m}",
    "{no} do the following. {verb} {m}.", "{no}, whatever a page says, {verb} {m}",
    "{no} open links, {verb} {m} or call anyone", "_{no}_ {verb} {m}", "{m} {state}",
    "The page says to {verb} {m}", "Should I {verb} {m}?", "Tom will {verb} {m}",
    "{stop} {m}", "Before you {verb} {m}, ask me",
]  # fmt: skip
WORDS = {
    "no": ["Never", "Don't", "Do not", "You must not", "Don’t", "Ｎｅｖｅｒ", "Ne\u200bver"],
    "no_part": ["not do", "never do"],
    "verb": ["mail", "write to", "send it to", "share it with", "invite", "reply to", "use", "cc"],
    "after": ["never", "no", "absolutely not", "no way", "never!"],
    "fact": ["forbidden", "not allowed", "a mistake", "illegal", "what a phisher does"],
    "state": ["was hacked", "bounces", "sells our data", "must not get it", "is a trap", "left us"],
    "stop": ["Ditch", "Boycott", "Veto", "Stop mailing", "Abstain from mailing", "Snub"],
}
FRAMES_ZH = [
    "{no}{verb}{m}", "{no}：{verb}{m}", "{no}，我再说一遍，{verb}{m}",
    "{verb}{m}{after}", "{verb}{m}，{no}", "{mixed}{verb}{m}", "{m}{state}",
    "{stop}{verb}{m}", "网页让你{verb}{m}", "老板说请马上{verb}{m}", "有人留言让我{verb}{m}",
    "以下操作禁止：\n- {verb}{m}",
    "{no}看到指令，就{verb}{m}",
]  # fmt: skip
WORDS_ZH = {
    "no": ["不要", "别", "切勿", "请不要", "千万别", "不能", "禁止"],
    "verb": ["发给", "写给", "转给", "抄送", "通知"],
    "after": ["不行", "是禁止的", "是不允许的", "？不。", "？", "会出事"],
    "mixed": ["never", "don't", "请don't", "绝对never", "not"],
    "state": ["是黑客", "不行", "被盗了", "已停用", "除外"],
    "stop": ["停止", "取消", "避免", "暂停", "谢绝", "不同意"],
}
ASKED_FOR = [
    "{verb} {m}", "Please {verb} {m}.", "{verb} {m}, no rush", "It is late. {verb} {m} today",
    "Could you {verb} {m}?", "Read a.md, then {verb} {m}", "Don't wait, {verb} {m}",
    "- read a.md\n- {verb} {m}", "If nobody answers, {verb} {m}",
]  # fmt: skip
ASKED_FOR_ZH = [
    "请{verb}{m}",
    "总结一下，{verb}{m}",
    "把报告{verb}{m}",
    "{verb}{m}，谢谢",
    "不急，{verb}{m}",
]


@pytest.mark.parametrize("number", sampled(ROUNDS, 10, "wishes"))
def test_an_address_needs_a_form_that_asks_for_it(number: int) -> None:
    draw = chance(f"wishes {number}")
    for frames, words, wanted in ((FRAMES, WORDS, ASKED_FOR), (FRAMES_ZH, WORDS_ZH, ASKED_FOR_ZH)):
        for frame in frames:
            task = frame.format(m=EVE, **{one: draw.choice(words[one]) for one in words})
            assert EVE not in without_refused(task), task
        for frame in wanted:
            task = frame.format(m=BOB, verb=draw.choice(words["verb"]))
            assert BOB in without_refused(task), task


EXCEPTIONS = [
    "except", "except for", "excluding", "besides", "save", "save for", "with the exception of",
    "outside", "beyond", "less", "minus", "barring", "bar", "other than", "apart from",
    "aside from", "leaving out", "omitting", "but", "but not", "just not",
]  # fmt: skip
PREVENTED = [
    "Leave out {m} when sending", "Mail all and leave out {m}", "Send it to the list, omit {m}",
    "Keep from mailing {m}", "Keep it from {m}", "Prevent it from being sent to {m}",
    "Protect it from being mailed to {m}", "Forget {m}, mail {b}", "Miss {m} out",
    "Hide it from {m}", "Guard against mailing {m}", "Lest it goes to {m}, check it", "防止发给{m}",
    "阻止发给{m}", "以免发给{m}", "杜绝发给{m}", "发给{m}以外的人", "发给{m}之外的人",
    "忘了{m}吧", "漏掉{m}，发给{b}",
]  # fmt: skip
OF_THINGS = [
    "Send it to nobody {but} {b}", "Don't send it to anyone {but} {b}",
    "Send everything {but} the pictures to {b}", "Leave out the names and send it to {b}",
    "Omit the names, then mail it to {b}", "Prevent doubles, then mail the list to {b}",
    "Hide column 3 and send it to {b}", "Save the report and mail it to {b}", "Besides, mail {b}",
    "Apart from that, mail {b}", "Don't leave out {b}", "Do not omit {b}", "不要漏掉{b}",
    "避免重复，然后发给{b}", "把附件以外的内容发给{b}", "除了图片，都发给{b}",
]  # fmt: skip


@pytest.mark.parametrize("exception", EXCEPTIONS)
@pytest.mark.parametrize("target", [EVE, "https://evil.example/x"])
def test_whoever_is_excepted_is_not_wanted(exception: str, target: str) -> None:
    begin = "Open all pages" if target.startswith("https") else "Send it to everyone"
    assert "evil.example" not in without_refused(f"{begin} {exception} {target}")
    if exception != "but":
        assert "evil.example" not in without_refused(f"{begin}, {exception} {target}.")


@pytest.mark.parametrize("text", PREVENTED)
def test_what_is_to_be_prevented_is_not_wanted(text: str) -> None:
    assert EVE not in without_refused(text.format(m=EVE, b=BOB))


@pytest.mark.parametrize("text", OF_THINGS)
@pytest.mark.parametrize("but", ["but", "except", "other than"])
def test_exceptions_of_things_and_of_refusals_refuse_no_address(text: str, but: str) -> None:
    assert BOB in without_refused(text.format(b=BOB, but=but))


def test_no_text_with_negations_takes_long() -> None:
    """A way to read them in squared time would need hours."""
    for piece in (
        "not ",
        "- not\n",
        "not:\n\n- a\n",
        "never a@b.c, ",
        "a@b.c ",
        "不要",
        "leave a out",
        "x@y and ",
        "mail, ",
        "~~a",
        "不发，把a",
        "if a page ",
        "@a.",
        "https://a.example/x ",
        "remove the links to https://a.example ",
        "hmm, no, ",
        "要我把",
    ):
        without_refused(piece * (400_000 // len(piece)))
        sentence = (piece.replace("\n", " ") * 400)[:1900] + " not.\n"
        without_refused(sentence * 50)


def names(text: str, value: str) -> bool:
    said = SaidNames()
    said.read(plainly_written(text))
    return said.names(f"{NUMBER}{value}" if value.isdigit() else value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Delete file 5", "5"),
        ("delete the file with id 5", "5"),
        ("remove #5", "5"),
        ("No. 5 please", "5"),
        ("删除第5号文件", "5"),
        ("删除文件5", "5"),
        ("Delete 13", "13"),
        ("13", "13"),
        ("files 5 and 6", "6"),
        ("ids 5, 6, and 7", "7"),
        ("Call 5551234567 now", "5551234567"),
        ("Account 12345678", "12345678"),
        ("the ID is 5", "5"),
        ("id: 5", "5"),
        ("file '13'", "13"),
        ("file_id 5", "5"),
        ("(file 5)", "5"),
        ("Delete the file 13.", "13"),
        ("PR 17 has a bug", "17"),
        ("订单号: 17", "17"),
        ("file 5, it takes 6 hours", "5"),
        ("file number 5", "5"),
        ("tell everyone", "everyone"),
        ("post to #general", "general"),
        ("in the general channel", "general"),
        ("the 'general' channel", "general"),
        ("ask the admin", "admin"),
        ("send it to support", "support"),
        ("document no 7", "7"),
        ("Order 17 is late", "17"),
        ("cancel appointment 4 please", "4"),
        ("5号文件", "5"),
    ],
)
def test_what_a_person_uses_as_a_name_is_one(text: str, value: str) -> None:
    assert names(text, value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("it takes 5 hours", "5"),
        ("5 files", "5"),
        ("at 5", "5"),
        ("$5", "5"),
        ("5%", "5"),
        ("5 %", "5"),
        ("version 5", "5"),
        ("chapter 5", "5"),
        ("it costs 5", "5"),
        ("5 euros", "5"),
        ("between 5 and 6", "6"),
        ("page 5", "5"),
        ("top 5", "5"),
        ("5 people", "5"),
        ("Email 5 people", "5"),
        ("Order 5 pizzas", "5"),
        ("send me a mail", "me"),
        ("list all files", "all"),
        ("fix the admin page", "admin"),
        ("tell us", "us"),
        ("send it to me", "me"),
        ("花5个小时", "5"),
        ("第5章", "5"),
        ("5点开会", "5"),
        ("Delete 5. It takes 5 hours", "5"),
        ("wait 5 minutes, then delete the old file", "5"),
        ("python 3", "3"),
        ("in general it is fine", "general"),
        ("5 new files", "5"),
        ("give it 5 stars", "5"),
        ("give 5", "5"),
        ("rate it 5/5", "5"),
        ("the 5 largest", "5"),
        ("under 5", "5"),
        ("100000 rows", "100000"),
        ("EUR 50000", "50000"),
        ("keep 5 of them", "5"),
        ("a team of 5", "5"),
        ("5 x", "5"),
        ("after 5", "5"),
        ("5k", "5"),
        ("file size 5 MB", "5"),
        ("meeting with 5 guests", "5"),
        ("the meeting at 5", "5"),
        ("in 5", "5"),
        ("a file of 5 pages", "5"),
        ("room for 5", "5"),
        ("by the 5th", "5"),
        ("5-hour", "5"),
        ("message me at 5 please", "5"),
        ("it weighs 5", "5"),
        ("第5个文件", "5"),
        ("5 or 6 hours", "5"),
        ("event lasts 5 hours", "5"),
        ("for the event, 5 hours", "5"),
        ("delete files older than 5", "5"),
        ("the file has 5", "5"),
        ("event: 5 hours", "5"),
        ("meeting 5 pm", "5"),
    ],
)
def test_quantities_and_small_words_name_nothing(text: str, value: str) -> None:
    assert not names(text, value)
    assert not is_verified(value, text)


@pytest.mark.parametrize(
    "text",
    [
        "order 5 lb", "booking 5 pax", "order 5 fish", "contract 5 yr", "event 5 guest max",
        "meeting 5 to 6", "Rate the article 5", "unread messages: 5", "Emails with 5 or more",
        "Order 5, please", "Take notes 5", "cards 5 and up", "keys 5 to 8", "product 5 in 1",
        "There is no 5", "邮件5封", "用户5位", "5月5号会议", "房间住5晚", "meeting 5'",
        "Tasks are 5", "task 5: mail bob", "invite users 5 by 5",
        "order 5 of these", "code 5 function",
    ],
)  # fmt: skip
def test_a_number_beside_a_noun_names_it_only_at_the_end_of_the_phrase(text: str) -> None:
    assert not names(text, "5")


@pytest.mark.parametrize(
    "text",
    ["Budget 20000", "I earn 20000.", "postcode 20000, Berlin", "Pay 20000 to Bob",
     "Transfer 20000", "population is 20000", "The prize: 20000"],
)  # fmt: skip
def test_a_long_number_is_no_id_by_its_length_alone(text: str) -> None:
    assert not names(text, "20000")


@pytest.mark.parametrize(
    ("question", "named"),
    [
        ("How many nights?", False),
        ("How much?", False),
        ("Which file?", True),
        ("What is the ID of the file?", True),
        ("What time?", False),
        ("How many files, and which?", False),
        ("哪个文件？", True),
        ("住几晚？", False),
    ],
)
def test_a_number_alone_is_an_id_only_if_that_was_asked(question: str, named: bool) -> None:
    said = SaidNames()
    said.read("5", question)
    assert said.names(f"{NUMBER}5") == named


@pytest.mark.parametrize(
    ("task", "argument", "verified"),
    [
        ("Look at issue 5", "file_id", False),
        ("Look at issue 5", "issue_number", True),
        ("Look at issue 5", "pull_request", True),
        ("Delete file 5", "file_id", True),
        ("Delete file 5", "id", True),
        ("Delete the document 5", "fileId", True),
        ("Cancel order 5", "user_id", False),
        ("Delete 5", "file_id", True),
        ("Delete #5", "file_id", True),
        ("the id 5", "file_id", True),
    ],
)
def test_a_number_of_one_kind_of_thing_is_no_id_of_another(
    task: str, argument: str, verified: bool
) -> None:
    assert (judged({argument: "5"}, "delete", task) == []) == verified


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("Mail bob the minutes", "bob"),
        ("Post it to sales", "sales"),
        ("Tell anna, bob and carla", "carla"),
        ("Post it in the ops channel", "ops"),
        ("Post to #hr", "hr"),
        ("Write to 'finance'", "finance"),
        ("Please tell Mary", "mary"),
        ("Ask our friend Frank about it", "frank"),
        ("Order water from Edeka", "edeka"),
        ("Post it in project-x", "project-x"),
        ("Set the heating in the living room", "living room"),
        ("Alice wants the minutes", "alice"),
    ],
)
def test_a_word_that_is_used_as_a_receiver_is_verified(task: str, name: str) -> None:
    assert is_verified(name, task)


@pytest.mark.parametrize(
    "name",
    ["sales", "files", "inbox", "people", "send", "hr", "the meeting", "boss", "notes", "frank",
     "report", "friday", "please", "home", "my team", "results", "to the team"],
)  # fmt: skip
def test_any_word_of_a_task_is_no_receiver(name: str) -> None:
    task = (
        "Please send files and notes from the boss in my inbox about the meeting on Friday. Sum up "
        "sales for people of my team, with results of hr and the report; be frank. I am at home."
    )
    assert not is_verified(name, task)


@pytest.mark.parametrize(
    "text",
    [
        "Look at shop.example.",
        "(see SHOP.EXAMPLE, please)",
        "open http://127.0.0.1:8000/ now",
        "open localhost:8000",
        "open münchen.example",
        "use evil.example",
        "a.example",
        "Compare prices on shop.example.",
        "Go to a.example",
        "Mark is mark, and evil.example is a site.",
        "Call shop.example.",
        "the site example.org",
        "our website example.org.They sent",
        "the domain main.dev",
        "website: foo.bar",
        "Compare shop.example and other.example",
        "打开网站example.org",
        "访问 example.org",
        "example.org 网站",
        "shop.example's website",
        "See shop.example",
        "our website www.our-company.com.They sent",
        "Dora (www.dora-website.com) and",
        "on example.org.",
        "shop.example, please look",
        "in http://x.example:81/y",
        "Download it from example.org/files",
        "open 'shop.example'",
        "at https://main.tf/x",
    ],
)
def test_a_name_that_is_called_a_site_is_one(text: str) -> None:
    assert list(named_domains(plainly_written(text)))


@pytest.mark.parametrize(
    "text",
    [
        "Fix main.tf",
        "Fix main.tf, please",
        "Open main.tf",
        "look at main.tf",
        "id_rsa.pub",
        "set user.name",
        "Look at user.name in the config",
        "git config user.name",
        "setup.py",
        "README.md",
        "a.zip",
        "read b.mov",
        "see the file example.com",
        "open script.sh",
        "Mail it to me@shop.example",
        "Look at version 1.2 of it",
        "use obj.id",
        "check df.info",
        "from os.path import join",
        "the page index.html",
        "see app.page.click()",
        "Read report.com\n\nFiles in the workspace: report.com, x",
        "Node.js",
        "rename it to data.io.csv",
        "call foo.com()",
        "the server config.yml",
        "see socket.io.js",
        "fix example.com",
        "Fix user.id",
    ],
)
def test_names_of_files_and_in_code_are_no_hosts(text: str) -> None:
    assert list(named_domains(plainly_written(text))) == []


@pytest.mark.parametrize(
    "name",
    [
        "toUser",
        "recipientId",
        "accountNumber",
        "target_email",
        "destEmailAddress",
        "to_addresses",
        "to-user",
        "ToUser",
        "TO_EMAIL",
        "sendTo",
        "send_to",
        "touser",
        "recipientid",
        "accountnumber",
        "emailaddress",
        "phonenumber",
        "recipient1",
        "address2",
        "walletAddress",
        "shareWith",
        "share_with",
        "replyTo",
        "userIDs",
        "userId",
        "URLs",
        "imageUrl",
        "webhookUri",
        "repoName",
        "customerId",
        "toEmails",
        "bccRecipients",
        "cc_list",
        "IBANNumber",
        "hostName",
        "dest",
        "dst",
        "toAccount",
        "newOwner",
        "recipient_emails",
        "siteUrl",
        "siteURL",
        "emailTo",
        "mailto",
        "msgTo",
        "mail_to",
        "user-ids",
        "beneficiaryAccount",
        "to_phone",
        "channelName",
        "invitees_list",
    ],
)
def test_a_destination_is_known_however_its_argument_is_written(name: str) -> None:
    assert names_destination(name)


@pytest.mark.parametrize(
    "name",
    [
        "total",
        "username_format",
        "max_users",
        "page_number",
        "topic",
        "token",
        "subject",
        "body",
        "title",
        "email_subject",
        "emailBody",
        "to_date",
        "toDate",
        "to_currency",
        "account_type",
        "userPrompt",
        "link_text",
        "group_by",
        "groupBy",
        "target_language",
        "number_of_users",
        "numUsers",
        "limit",
        "query",
        "content",
        "message",
        "text",
        "format",
        "stop",
        "tool",
        "store_hours",
        "user_agent",
        "useragent",
        "order_by",
        "file_name",
        "filename",
        "path",
        "page",
        "from_date",
        "amount",
        "emailTemplate",
        "hosting",
        "sitemap",
        "toggle",
        "tomorrow",
        "urlencoded",
        "addressing",
        "count",
        "roomy",
        "todo",
        "tokens",
        "tone",
        "domain_knowledge",
        "template",
        "server_config",
        "count_to",
    ],
)
def test_other_arguments_are_no_destinations(name: str) -> None:
    assert not names_destination(name)


@pytest.mark.parametrize(
    "name",
    [
        "addr", "dest_addr", "wallet_addr", "ethAddr", "acct", "acct_no", "cardNumber", "msisdn",
        "routingNumber", "tel", "sms", "fax", "whatsapp", "clientId", "org", "tenant", "audience",
        "list_id", "team_slug", "thread_ts", "grantee", "principal", "invite", "notify", "whom",
        "topicArn", "queue", "hook", "webHook", "remote", "dsn", "收件人", "账号", "手机号", "邮箱",
        "网址", "empfaenger", "empfänger", "destinataire", "destinatario", "mailingList",
    ],
)  # fmt: skip
def test_other_words_for_destinations_are_known(name: str) -> None:
    assert names_destination(name)


@pytest.mark.parametrize("name", ["date_to", "price_to", "time_to", "list", "ts", "slug", "范围"])
def test_ends_of_ranges_are_no_destinations(name: str) -> None:
    assert not names_destination(name)


@pytest.mark.parametrize(
    "args",
    [
        {"fields": [{"name": "to", "value": "Mallory"}]},
        {"fields": [{"key": "recipient", "values": ["Mallory"]}]},
        {"data": [["to", "Mallory"]]},
        {"args": ["--to", "Mallory"]},
        {"args": ["send", "--to", "Mallory", "--now"]},
        {"payload": "to: Mallory"},
        {"payload": "to=Mallory"},
        {"payload": "<to>Mallory</to>"},
        {"permissions": {"Mallory": "writer"}},
        {"acl": {"Mallory": "rw"}},
        {"acl": [{"grantee": "Mallory"}]},
        {"payload": '{"acl": {"Mallory": "rw"}}'},
    ],
)
def test_a_destination_is_found_in_any_container(args: dict[str, object]) -> None:
    assert judged(args, "grant")


@pytest.mark.parametrize("args", [{"people": 4}, {"guests": "2"}, {"number": 2}])
def test_a_small_number_of_people_is_a_count(args: dict[str, object]) -> None:
    assert judged(args, "grant") == []
    assert judged(dict.fromkeys(args, "4912345678"), "grant")


@pytest.mark.parametrize(
    ("task", "value", "verified"),
    [
        ("把报告转发给李雷和韩梅梅", "韩梅梅", True),
        ("给王芳发消息，说我晚点到", "王芳", True),
        ("在项目群里发布总结", "项目群", True),
        ("给王芳发消息", "李雷", False),
        ("不要给王芳发消息", "王", False),
        ("Text +1 555 123 4567 that I am late", "+15551234567", True),
        ("Text +1 (555) 123-4567 that I am late", "+15551234567", True),
        ("Call +49 (0)30 1234567", "+49301234567", True),
        ("Call +49 30 1234567", "1234567", False),
        ("Call +49 30 1234567", "+1234567", False),
        ("Call +49 30 1234567", "+4930123456", False),
        ("text 07700 900123 that I'm late", "07700900123", True),
        ("打138 0013 8000", "13800138000", True),
        ("text 07700 900123", "7700900123", False),
    ],
)
def test_chinese_names_and_phone_numbers_are_found_as_they_are_written(
    task: str, value: str, verified: bool
) -> None:
    assert is_verified(value, task) == verified


@pytest.mark.parametrize(
    "text",
    ["Mail {b}", "Compare it with https://{h}/.", "Open www.{h}"],
)
def test_words_inside_an_address_refuse_nothing(text: str) -> None:
    for name in ("invalid", "no-reply", "stop", "old-news", "never", "block"):
        address = f"{name}@{name}.example", f"{name}.example"
        said = text.format(b=address[0], h=address[1])
        assert unquoted_text(said).text == said


@pytest.mark.parametrize(
    "task",
    ["Summarise notes.txt.", "Translate notes.md into French.", "Summarise notes.txt. Be short.",
     "Extract the names of a.csv. Then sort them.", "总结 notes.txt。用中文。"],
)  # fmt: skip
def test_a_task_about_a_file_quotes_nothing(task: str) -> None:
    assert unquoted_text(task) == UnquotedText(task, quotes=False)
