"""A fourth set of evidence, written after the matcher was improved: ships, schools, a dam, a diary."""

# ruff: noqa: E501  # a sentence on each line; Chinese punctuation
from openmanus_graph.conversation.passages import Passage
from tests.support.claims_exam import Fact, Measure, World

SPEED = {
    ("Aurora Star", ""): 21.4,
    ("Pelikan", ""): 17.9,
    ("Sturmvogel", ""): 24.6,
    ("Mary Gale", ""): 15.3,
    ("Nordlicht", ""): 19.2,
}
CREW = dict(zip(SPEED, (1140, 318, 872, 96, 455), strict=True))
DRAFT = dict(zip(SPEED, (8.35, 5.6, 7.15, 3.9, 6.45), strict=True))
PUPILS = {
    ("Lindenhof", "2020"): 612, ("Lindenhof", "2023"): 668, ("Am Wehr", "2020"): 284, ("Am Wehr", "2023"): 251,
    ("Bergschule", "2020"): 437, ("Bergschule", "2023"): 493,
}  # fmt: skip
SPENT = dict(zip(PUPILS, (5120.4, 5894.75, 6033.1, 7216.9, 4987.6, 5342.25), strict=True))
SHIPS = "".join(
    f"## {key[0]}\n\n- Top speed: {SPEED[key]} knots\n- Crew: {CREW[key]:,}\n- Draft: {DRAFT[key]} m\n\n"
    for key in SPEED
)
SCHOOLS = (
    "<table><tr><th>Schule</th><th>Jahr</th><th>Kinder</th><th>Ausgaben (CHF)</th></tr></table>\nSchule | Jahr | Kinder | Ausgaben (CHF)\n"
    + "".join(
        f"{name} | {year} | {PUPILS[name, year]} | {SPENT[name, year]:.2f}\n"
        for name, year in PUPILS
    )
)
DAM = """The Corran Dam. Fact sheet, 2022 edition.
The dam is 94 metres high and its crest is 612 m long. It holds back 185 million cubic metres of water.
Four turbines deliver 248 MW, or 731 GWh in an average year. Building it took 1,900 workers and cost £312 million.
Concrete: 1.18 million tonnes. First water was let in on 9 February 1971; Queen Anne opened it on 22 July 1972.
Site manager Fiona Breck: "People see a wall; we see a river that never stops pushing."
Leakage is 14 litres per second, well below the limit of 40. Visitors: 86,300 (2021: 52,700).
Tours: https://corran.example.org/visit/tours
"""
TAGEBUCH = """Vereinsheft 4/2023

Am 14. August 2023 brachen 38 Mitglieder zur Tour auf. Sie legten in 11 Tagen 1.264 km zurück, bei 17.850 Höhenmetern.
Der Beitrag steigt zum 1. Januar 2024 von 84 € auf 96 €. Der Verein zählt 2.473 Mitglieder, im Vorjahr waren es 2.318.
Die Hütte hat 62 Schlafplätze, verbraucht 23,4 MWh Strom im Jahr und liegt auf 2.187 m.
Vorsitzender Jakob Steinlein: „Der Berg läuft nicht weg, die Knie schon.“
Anmeldung unter https://verein.example.at/touren/2024
"""
TEA = """云岭茶业2023年度简报

全年产茶3,260吨，同比增长8.4%，其中绿茶占57%。茶园面积为1.24万公顷，带动农户4.6万户。
出口额为1.87亿美元，每公斤均价为58.6元。新厂于2023年5月19日投产，总投资4.35亿元。
董事长何其芳表示：“好茶是等出来的，不是赶出来的。”
"""
OUT = "ships 5\nfastest Sturmvogel 24.6\ncrew total 2881\nmean draft 6.29\n"
HITS = "* Corran Dam history — https://dams.example.net/corran\n* 云岭茶业 — https://tea.yunling.example.cn/reports/2022\n"

FOURTH = World(
    passages=[
        Passage(SHIPS, "n1", "read_file", "ships.md"),
        Passage(SCHOOLS, "n2", "read_file", "schulen.html"),
        Passage(DAM, "n3", "web_fetch", "https://corran.example.org/facts"),
        Passage(TAGEBUCH, "n4", "read_file", "heft.pdf"),
        Passage(TEA, "n5", "web_fetch", "https://tea.yunling.example.cn/reports/2023"),
        Passage(OUT, "n6", "python_execute", is_printed=True),
        Passage(HITS, "n7", "web_search"),
    ],
    task="Summarise ships.md, schulen.html, heft.pdf, the dam and the tea company.",
    opened="ships.md\nschulen.html\nheft.pdf\nhttps://corran.example.org/facts\nhttps://tea.yunling.example.cn/reports/2023",
    files=frozenset({"ships.md", "schulen.html", "heft.pdf", "logbook.docx", "budget.xlsx"}),
    measures=[
        Measure("speed", {"en": "The {name} makes {value}.", "de": "Die {name} fährt {value}.", "zh": "{name}号的航速为{value}。"},
                {"en": "knots", "de": "Knoten", "zh": "knots"}, {"en": "mph", "de": "km/h", "zh": "公里/小时"}, SPEED, 1),
        Measure("crew", {"en": "The {name} has a crew of {value}.", "de": "Die Besatzung der {name} zählt {value}.", "zh": "{name}号有船员{value}名。"},
                {"en": "", "de": "", "zh": ""}, {}, CREW),
        Measure("draft", {"en": "The {name} draws {value} of water.", "de": "Der Tiefgang der {name} beträgt {value}.", "zh": "{name}号吃水{value}。"},
                {"en": "metres", "de": "Meter", "zh": "米"}, {"en": "feet", "de": "cm", "zh": "厘米"}, DRAFT, 2),
        Measure("pupils", {"en": "{name} had {value} children in {year}.", "de": "{year} besuchten {value} Kinder die Schule {name}.", "zh": "{year}年{name}有{value}名学生。"},
                {"en": "", "de": "", "zh": ""}, {}, PUPILS),
        Measure("spent", {"en": "{name} spent {value} per child in {year}.", "de": "{name} gab {year} je Kind {value} aus.", "zh": "{name}在{year}年的生均支出为{value}。"},
                {"en": "CHF", "de": "Franken", "zh": "瑞士法郎"}, {"en": "dollars", "de": "Euro", "zh": "元"}, SPENT, 2),
    ],
    facts=[
        Fact({"en": "The dam is 94 m high and 612 m long.", "de": "Der Damm ist 94 Meter hoch und 612 Meter lang.", "zh": "大坝高94米，长612米。"},
             {"en": "The dam is 97 m high and 612 m long.", "de": "Der Damm ist 94 Meter hoch und 621 Meter lang.", "zh": "大坝高94米，长642米。"},
             {"en": "The dam is 94 feet high.", "de": "Der Damm ist 612 km lang.", "zh": "大坝高94厘米。"}, {}),
        Fact({"en": "It delivers 248 MW, or 731 GWh a year.", "de": "Er liefert 248 MW, im Jahr 731 GWh.", "zh": "装机248兆瓦，年发电731 GWh。"},
             {"en": "It delivers 284 MW.", "de": "Er liefert 248 MW, im Jahr 713 GWh.", "zh": "装机243兆瓦。"},
             {"en": "It delivers 248 kW.", "de": "Er liefert im Jahr 731 MWh.", "zh": "装机248千瓦。"}, {}),
        Fact({"en": "It took 1.18 million tonnes of concrete and cost 312 million pounds.", "de": "1,18 Mio. Tonnen Beton wurden verbaut, bei Kosten von 312 Mio. £.", "zh": "耗用混凝土118万吨，造价3.12亿英镑。"},
             {"en": "It took 1.81 million tonnes of concrete.", "de": "1,18 Mio. Tonnen Beton wurden verbaut, bei Kosten von 321 Mio. £.", "zh": "耗用混凝土178万吨，造价3.12亿英镑。"},
             {"en": "It cost 312 million dollars.", "de": "1,18 Mio. kg Beton wurden verbaut.", "zh": "造价3.12亿欧元。"}, {}),
        Fact({"en": "It was opened on July 22, 1972.", "de": "Eröffnet wurde er am 22. Juli 1972.", "zh": "1972年7月22日落成。"},
             {"en": "It was opened on July 27, 1972.", "de": "Eröffnet wurde er am 22. Juni 1972.", "zh": "1972年7月12日落成。"}, {},
             {"en": "It was opened on July 22, 1975.", "de": "Eröffnet wurde er am 22. Juli 1971.", "zh": "1973年7月22日落成。"}),
        Fact({"en": "In 2021 it had 52,700 visitors.", "de": "2021 kamen 52.700 Gäste.", "zh": "2021年游客为5.27万人次。"},
             {"en": "In 2021 it had 57,200 visitors.", "de": "2021 kamen 52.900 Gäste.", "zh": "2021年游客为5.72万人次。"}, {},
             {"en": "In 2019 it had 52,700 visitors.", "de": "2018 kamen 52.700 Gäste.", "zh": "2020年游客为5.27万人次。"}),
        Fact({"en": "They rode 1,264 km in 11 days.", "de": "In 11 Tagen fuhren sie 1.264 Kilometer.", "zh": "他们11天骑行1264公里。"},
             {"en": "They rode 1,246 km in 11 days.", "de": "In 17 Tagen fuhren sie 1.264 Kilometer.", "zh": "他们11天骑行1364公里。"},
             {"en": "They rode 1,264 miles.", "de": "In 11 Wochen fuhren sie 1.264 Kilometer.", "zh": "他们骑行1264米。"}, {}),
        Fact({"en": "The hut uses 23.4 MWh of power a year.", "de": "Die Hütte verbraucht jährlich 23.400 kWh.", "zh": "小屋每年用电23.4兆瓦时。"},
             {"en": "The hut uses 24.3 MWh of power a year.", "de": "Die Hütte verbraucht jährlich 28.400 kWh.", "zh": "小屋每年用电26.4兆瓦时。"},
             {"en": "The hut uses 23.4 kWh of power a year.", "de": "Die Hütte verbraucht jährlich 23,4 GWh.", "zh": "小屋每年用电23.4千瓦时。"}, {}),
        Fact({"en": "The club has 2,473 members, against 2,318 in 2022.", "de": "Der Verein hat 2.473 Mitglieder, 2022 waren es 2.318.", "zh": "协会有2473名会员，2022年为2318名。"},
             {"en": "The club has 2,437 members.", "de": "Der Verein hat 2.473 Mitglieder, 2022 waren es 2.381.", "zh": "协会有2743名会员。"}, {},
             {"en": "In 2019 the club had 2,318 members.", "de": "2018 hatte der Verein 2.473 Mitglieder.", "zh": "2015年协会有2318名会员。"}),
        Fact({"en": "It made 3,260 tonnes of tea, 57 % of it green.", "de": "Es waren 3.260 t Tee, davon 57 Prozent grüner.", "zh": "产茶3260吨，绿茶占57%。"},
             {"en": "It made 3,620 tonnes of tea.", "de": "Es waren 3.260 t Tee, davon 75 Prozent grüner.", "zh": "产茶3290吨，绿茶占57%。"},
             {"en": "It made 3,260 kg of tea.", "de": "Es waren 3.260 Pfund Tee.", "zh": "产茶3260公斤。"}, {}),
        Fact({"en": "Exports were 187 million dollars, at 58.6 yuan a kilo.", "de": "Die Ausfuhr brachte 187 Mio. Dollar.", "zh": "出口1.87亿美元，均价58.6元。"},
             {"en": "Exports were 178 million dollars.", "de": "Die Ausfuhr brachte 157 Mio. Dollar.", "zh": "出口1.37亿美元，均价58.6元。"},
             {"en": "Exports were 187 million euros.", "de": "Die Ausfuhr brachte 187 Mio. Yuan.", "zh": "出口1.87亿元。"}, {}),
    ],
    true_sentences=[
        "Together the ships have a crew of 2,881.", "Im Mittel beträgt der Tiefgang 6,29 m.", "Sturmvogel is 9.3 knots faster than Mary Gale.",
        "Lindenhof gained 56 children.", "Am Wehr verlor 33 Kinder, das sind 11,6 %.", "2023年三校共有1412名学生。", "The three schools had 1,333 children in 2020.",
        "Visitors grew by 33,600, or 63.8 %.", "It cost about £164,000 per worker.", "The reservoir holds 185 million m³.", "Water came in on 9 February 1971, 17 months before the opening in 1972.",
        "Der Beitrag steigt um 12 Euro auf 96 Euro.", "Das sind 14,3 % mehr.", "Der Verein wuchs um 155 Mitglieder.", "Am Tag waren es im Schnitt 114,9 km.",
        "The hut lies at 2,187 metres and sleeps 62.", "绿茶约为1858吨。", "新厂于2023年5月19日投产，投资4.35亿元。", "茶园面积为12400公顷。", "46,000 farms take part.",
        "Leakage is 14 litres a second; 40 are allowed.", "It employed nineteen hundred workers.", "| Schule | 2023 |\n| --- | --- |\n| Lindenhof | 668 |\n| Bergschule | 493 |", "The data are in ships.md.",
    ],
    quotations=[
        ("Fiona Breck", "People see a wall; we see a river that never stops pushing."), ("Fiona Breck", "a river that never stops pushing"),
        ("Jakob Steinlein", "Der Berg läuft nicht weg, die Knie schon."), ("何其芳", "好茶是等出来的，不是赶出来的。"),
    ],
    invented=[
        ("Fiona Breck", "People see a river; we see a wall."), ("Fiona Breck", "The dam will stand for another century."), ("Fiona Breck", "Concrete never stops pushing"), ("Fiona Breck", "We let the water in too early"),
        ("Jakob Steinlein", "Die Knie laufen nicht weg, der Berg schon."), ("Jakob Steinlein", "Ohne Beitrag gibt es keine Hütte."), ("Jakob Steinlein", "Der Verein zählt auf seine Mitglieder."),
        ("何其芳", "好茶是赶出来的。"), ("何其芳", "茶园带动了农户。"), ("何其芳", "绿茶是我们的未来。"),
    ],
    links=["https://corran.example.org/visit/tours", "https://verein.example.at/touren/2024", "https://dams.example.net/corran", "https://tea.yunling.example.cn/reports/2022"],
    wrong_links=[
        "https://corran.example.org/visit/tour", "https://corran.example.com/visit/tours", "https://verein.example.at/touren/2023", "https://verein.example.de/touren/2024", "https://dams.example.net/corran-dam",
        "https://dam.example.net/corran", "https://tea.yunling.example.cn/reports/2021", "https://tea.yunling.example.com/reports/2022", "https://corran.example.org/visits", "https://vereine.example.at/touren/2024",
    ],
    read=["ships.md", "schulen.html", "https://corran.example.org/facts", "heft.pdf"],
    unread=["logbook.docx", "budget.xlsx", "https://dams.example.net/corran", "https://tea.yunling.example.cn/reports/2022", "https://corran.example.org/visit/tours", "https://verein.example.at/touren/2024", "crew.csv", "plan.pptx", "https://www.bbc.co.uk/corran", "archive/notes.txt"],
)  # fmt: skip
