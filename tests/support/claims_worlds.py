"""The evidence of the claims exams, and what answers say about it."""

# ruff: noqa: E501  # a sentence on each line; Chinese punctuation
from openmanus_graph.conversation.passages import Passage
from tests.support.claims_exam import Fact, Measure, World

RIDERS = {
    ("Ostkreuz", "2022"): 48213, ("Ostkreuz", "2023"): 51977, ("Westhafen", "2022"): 23764,
    ("Westhafen", "2023"): 21938, ("Seestrasse", "2022"): 36519, ("Seestrasse", "2023"): 39846,
    ("Nordbahnhof", "2022"): 17452, ("Nordbahnhof", "2023"): 18693, ("Plänterwald", "2022"): 9348,
    ("Plänterwald", "2023"): 9871,
}  # fmt: skip
LENGTHS = {key: round(3.1 + 1.37 * n + (n % 3) * 0.46, 2) for n, key in enumerate(RIDERS)}
COSTS = {key: round(412.75 + 187.31 * n + (n % 4) * 61.9, 2) for n, key in enumerate(RIDERS)}
DELAYS = {key: round(2.4 + 0.93 * n + (n % 2) * 1.7, 1) for n, key in enumerate(RIDERS)}
TABLE = "station,year,riders,length_km,cost_eur,delay_min\n" + "".join(
    f"{name},{year},{RIDERS[name, year]},{LENGTHS[name, year]:.2f},{COSTS[name, year]:.2f},{DELAYS[name, year]:.1f}\n"
    for name, year in RIDERS
)
REPORT = """# Jahresbericht der Verkehrsbetriebe

Der Umsatz stieg von 10,2 Mio. EUR im Jahr 2022 auf 12,4 Mio. EUR im Jahr 2023.
Die Flotte umfasst 187 Busse und 64 Straßenbahnen. Jeder Bus wiegt leer 11.850 kg.
Im Jahr 2019 wurde das Depot Marzahn eröffnet, es fasst 96 Fahrzeuge auf 34.500 m².
Vorständin Petra Lindner sagte: „Wir haben die Talsohle endlich durchschritten und investieren wieder.“
Der Anteil verspäteter Fahrten lag 2022 bei 8,7 % und 2023 bei 6,3 %.
"""
PAGE = """The Harbour Bridge

Construction of the bridge began on 12 May 1931 and it was opened on 3 October 1934.
The main span is 1,372 metres long and the towers are 148 m high.
Some 41,600 tonnes of steel were used, and the project cost $38.5 million.
Chief engineer Martin Osei said: "No bolt on this bridge was left to chance, and it shows."
A toll of 1.50 dollars was charged until 1988. In 2021 about 63,400 vehicles crossed it each day.
More at https://bridges.example.org/harbour/history and https://bridges.example.org/harbour/tolls?year=2021.
"""
CHINESE = """# 临江市概况

临江市面积为1,847平方公里，2020年末常住人口为312.6万人，2010年为287.9万人。
地铁2号线全长43.7公里，于2016年9月28日开通，总投资218亿元。
市长王建国表示：“公共交通是这座城市的血脉，我们不会停下脚步。”
该市2020年绿化率达到41.8%，年平均气温为16.4摄氏度。
"""
PRINTED = "rows: 10\nmean riders: 27762.1\nmax delay: 12.5\ntotal cost: 13473.85\n"
PRODUCTS = """[
  {"name": "Folding bike", "sku": "FB-204", "weight_kg": 11.8, "price_usd": 649.0, "stock": 143},
  {"name": "Cargo bike", "sku": "CB-771", "weight_kg": 34.2, "price_usd": 3290.0, "stock": 27},
  {"name": "Child seat", "sku": "CS-016", "weight_kg": 3.9, "price_usd": 89.5, "stock": 318}
]"""
SEARCH = """1. Bridge facts - https://www.encyclo.example.com/wiki/Harbour_Bridge
2. Toll archive - https://archive.example.net/tolls/1934.html
3. City statistics - https://stats.linjiang.example.cn/2020/transport
"""
LISTING = "Files in the workspace:\nstations.csv  612 bytes\naudit_2023.pdf  88 KB\nminutes.docx  14 KB\nsurvey.xlsx  31 KB\n"

WORLD = World(
    passages=[
        Passage(TABLE, "c1", "read_file", "stations.csv"),
        Passage(REPORT, "c2", "read_file", "jahresbericht.md"),
        Passage(PAGE, "c3", "web_fetch", "https://bridges.example.org/harbour"),
        Passage(CHINESE, "c4", "web_fetch", "https://www.linjiang.example.cn/about"),
        Passage(PRINTED, "c5", "python_execute", is_printed=True),
        Passage(PRODUCTS, "c6", "web_fetch", "https://shop.example.com/api/products"),
        Passage(SEARCH, "c7", "web_search"),
        Passage(LISTING, tool="run", is_stated=True),
    ],
    task="Write about stations.csv, the bridge, and the city.",
    opened="stations.csv\njahresbericht.md\nhttps://bridges.example.org/harbour\n"
    "https://www.linjiang.example.cn/about\nhttps://shop.example.com/api/products",
    files=frozenset({"stations.csv", "jahresbericht.md", "audit_2023.pdf", "minutes.docx", "survey.xlsx"}),
    measures=[
        Measure(
            "riders",
            {"en": "{name} had {value} riders in {year}.", "de": "Im Jahr {year} zählte {name} {value} Fahrgäste.", "zh": "{year}年{name}的乘客为{value}人次。"},
            {"en": "", "de": "", "zh": ""}, {}, RIDERS,
        ),
        Measure(
            "length_km",
            {"en": "In {year} the line to {name} was {value} long.", "de": "Die Strecke nach {name} war {year} {value} lang.", "zh": "{year}年通往{name}的线路长{value}。"},
            {"en": "km", "de": "Kilometer", "zh": "公里"}, {"en": "miles", "de": "Meilen", "zh": "米"}, LENGTHS, 2,
        ),
        Measure(
            "cost_eur",
            {"en": "{name}: costs of {value} in {year}.", "de": "{name} kostete {year} {value}.", "zh": "{name}在{year}年的成本是{value}。"},
            {"en": "EUR", "de": "Euro", "zh": "欧元"}, {"en": "dollars", "de": "US$", "zh": "美元"}, COSTS, 2,
        ),
        Measure(
            "delay_min",
            {"en": "The mean delay at {name} was {value} in {year}.", "de": "In {name} betrug die Verspätung {year} im Mittel {value}.", "zh": "{year}年{name}的平均晚点为{value}。"},
            {"en": "min", "de": "Minuten", "zh": "分钟"}, {"en": "hours", "de": "Stunden", "zh": "秒"}, DELAYS, 1,
        ),
    ],
    facts=[
        Fact(
            {"en": "Revenue rose to 12.4 million euros in 2023.", "de": "2023 lag der Umsatz bei 12,4 Mio. Euro.", "zh": "2023年营收为1240万欧元。"},
            {"en": "Revenue rose to 13.4 million euros in 2023.", "de": "2023 lag der Umsatz bei 12,9 Mio. Euro.", "zh": "2023年营收为1270万欧元。"},
            {"en": "Revenue rose to 12.4 million dollars in 2023.", "de": "2023 lag der Umsatz bei 12,4 Mio. Franken.", "zh": "2023年营收为1240万美元。"},
            {"en": "Revenue was 12.4 million euros in 2022.", "de": "2022 lag der Umsatz bei 12,4 Mio. Euro.", "zh": "2022年营收为1240万欧元。"},
        ),
        Fact(
            {"en": "Each bus weighs 11,850 kg.", "de": "Ein Bus wiegt 11.850 Kilogramm.", "zh": "每辆公交车重11.85吨。"},
            {"en": "Each bus weighs 11,350 kg.", "de": "Ein Bus wiegt 17.850 Kilogramm.", "zh": "每辆公交车重11.58吨。"},
            {"en": "Each bus weighs 11,850 lb.", "de": "Ein Bus wiegt 11.850 Pfund.", "zh": "每辆公交车重11,850磅。"},
            {},
        ),
        Fact(
            {"en": "The main span measures 1.372 km.", "de": "Die Hauptspannweite beträgt 1.372 m.", "zh": "主跨长1372米。"},
            {"en": "The main span measures 1.732 km.", "de": "Die Hauptspannweite beträgt 1.327 m.", "zh": "主跨长1872米。"},
            {"en": "The main span measures 1,372 feet.", "de": "Die Hauptspannweite beträgt 1.372 km.", "zh": "主跨长1372公里。"},
            {},
        ),
        Fact(
            {"en": "The bridge was opened on October 3, 1934.", "de": "Die Brücke wurde am 3. Oktober 1934 eröffnet.", "zh": "大桥于1934年10月3日通车。"},
            {"en": "The bridge was opened on October 8, 1934.", "de": "Die Brücke wurde am 13. Oktober 1934 eröffnet.", "zh": "大桥于1934年11月3日通车。"},
            {},
            {"en": "The bridge was opened on October 3, 1936.", "de": "Die Brücke wurde am 3. Oktober 1943 eröffnet.", "zh": "大桥于1933年10月3日通车。"},
        ),
        Fact(
            {"en": "It took 41,600 tonnes of steel and $38.5 million.", "de": "41.600 Tonnen Stahl und 38,5 Mio. Dollar waren nötig.", "zh": "共用钢4.16万吨，耗资3850万美元。"},
            {"en": "It took 46,600 tonnes of steel and $38.5 million.", "de": "41.600 Tonnen Stahl und 33,5 Mio. Dollar waren nötig.", "zh": "共用钢4.61万吨，耗资3850万美元。"},
            {"en": "It took 41,600 pounds of steel.", "de": "38,5 Mio. Euro waren nötig.", "zh": "共用钢4.16万公斤。"},
            {},
        ),
        Fact(
            {"en": "In 2021 some 63,400 vehicles crossed it daily.", "de": "2021 fuhren täglich 63.400 Fahrzeuge darüber.", "zh": "2021年每天有6.34万辆车通过。"},
            {"en": "In 2021 some 68,400 vehicles crossed it daily.", "de": "2021 fuhren täglich 64.300 Fahrzeuge darüber.", "zh": "2021年每天有6.74万辆车通过。"},
            {},
            {"en": "In 2018 some 63,400 vehicles crossed it daily.", "de": "2020 fuhren täglich 63.400 Fahrzeuge darüber.", "zh": "2011年每天有6.34万辆车通过。"},
        ),
        Fact(
            {"en": "At the end of 2020 the city had 3.126 million inhabitants.", "de": "Ende 2020 hatte die Stadt 3,126 Millionen Einwohner.", "zh": "2020年末人口为312.6万。"},
            {"en": "At the end of 2020 the city had 3.186 million inhabitants.", "de": "Ende 2020 hatte die Stadt 3,261 Millionen Einwohner.", "zh": "2020年末人口为316.2万。"},
            {},
            {"en": "At the end of 2010 the city had 3.126 million inhabitants.", "de": "Ende 2010 hatte die Stadt 3,126 Millionen Einwohner.", "zh": "2010年末人口为312.6万。"},
        ),
        Fact(
            {"en": "Line 2 is 43.7 km long.", "de": "Die Linie 2 ist 43,7 km lang.", "zh": "2号线全长43.7千米。"},
            {"en": "Line 2 is 47.3 km long.", "de": "Die Linie 2 ist 48,7 km lang.", "zh": "2号线全长34.7千米。"},
            {"en": "Line 2 is 43.7 miles long.", "de": "Die Linie 2 ist 43,7 Meilen lang.", "zh": "2号线全长43.7英里。"},
            {},
        ),
        Fact(
            {"en": "In 2023 only 6.3 % of the trips were late.", "de": "2023 waren nur 6,3 Prozent der Fahrten verspätet.", "zh": "2023年只有6.3%的班次晚点。"},
            {"en": "In 2023 only 6.8 % of the trips were late.", "de": "2023 waren nur 5,3 Prozent der Fahrten verspätet.", "zh": "2023年只有3.6%的班次晚点。"},
            {},
            {"en": "In 2022 only 6.3 % of the trips were late.", "de": "2022 waren nur 6,3 Prozent der Fahrten verspätet.", "zh": "2022年只有6.3%的班次晚点。"},
        ),
        Fact(
            {"en": "The cargo bike weighs 34.2 kg.", "de": "Das Cargo bike wiegt 34,2 kg.", "zh": "Cargo bike 重34.2公斤。"},
            {"en": "The cargo bike weighs 32.4 kg.", "de": "Das Cargo bike wiegt 36,2 kg.", "zh": "Cargo bike 重24.2公斤。"},
            {"en": "The cargo bike weighs 34.2 lb.", "de": "Das Cargo bike wiegt 34,2 Pfund.", "zh": "Cargo bike 重34.2磅。"},
            {},
        ),
    ],
    true_sentences=[
        "Ostkreuz gained 3,764 riders from 2022 to 2023.",
        "In Ostkreuz stieg die Zahl der Fahrgäste um 7,8 %.",
        "Westhafen在2023年减少了1,826人次。",
        "All stations together had 135,296 riders in 2022.",
        "Zusammen waren es 2023 genau 142.325 Fahrgäste.",
        "2022年全部车站共有135,296人次。",
        "Ostkreuz had 35.6 % of the riders of 2022.",
        "The folding bike costs $649, the child seat $89.50.",
        "Der Child seat kostet 89,50 Dollar und wiegt 3,9 kg.",
        "Folding bike 的价格是649美元。",
        "The fleet has 187 buses and 64 trams, 251 vehicles in all.",
        "Insgesamt sind es 251 Fahrzeuge: 187 Busse und 64 Straßenbahnen.",
        "The table has 10 rows and the mean is 27,762 riders.",
        "Die größte Verspätung betrug 12,5 Minuten.",
        "总成本为13,473.85欧元。",
        "The toll was abolished in 1988.",
        "Die Maut von 1,50 Dollar galt bis 1988.",
        "地铁2号线于2016年9月28日开通。",
        "The line was opened on 2016-09-28.",
        "Die Linie wurde am 28.09.2016 eröffnet, die Brücke am 03.10.1934.",
        "There are three reasons, and step 4 is the last of version 2.1.3.",
        "Die Daten stehen in stations.csv.",
        "数据来自 stations.csv。",
        "The towers are 148 m high, that is 0.148 km.",
        "Between 2022 and 2023 the share of late trips fell from 8.7 % to 6.3 %.",
        "Das Depot fasst 96 Fahrzeuge auf 3,45 Hektar.",
        "全市面积约1847平方公里，绿化率41.8%。",
        "Ostkreuz and Westhafen had 48,213 and 23,764 riders in 2022.",
        "In 2022: Ostkreuz 48,213, Westhafen 23,764, Seestrasse 36,519.",
        "| station | riders 2023 |\n| --- | --- |\n| Ostkreuz | 51,977 |\n| Seestrasse | 39,846 |",
    ],
    quotations=[
        ("Petra Lindner", "Wir haben die Talsohle endlich durchschritten und investieren wieder."),
        ("Martin Osei", "No bolt on this bridge was left to chance, and it shows."),
        ("Martin Osei", "No bolt on this bridge … it shows"),
        ("王建国", "公共交通是这座城市的血脉，我们不会停下脚步。"),
        ("王建国", "公共交通是这座城市的血脉"),
    ],
    invented=[
        ("Petra Lindner", "Wir haben die Talsohle noch lange nicht durchschritten."),
        ("Petra Lindner", "Die Flotte wird im nächsten Jahr verdoppelt."),
        ("Petra Lindner", "Wir investieren wieder in das Depot Marzahn."),
        ("Martin Osei", "Every bolt on this bridge was tested by hand."),
        ("Martin Osei", "This bridge was the hardest project of my life."),
        ("Martin Osei", "The towers were left to chance, and it shows."),
        ("Martin Osei", "Steel is the only honest material in construction."),
        ("王建国", "地铁是这座城市的骄傲。"),
        ("王建国", "我们不会停下建设地铁的脚步。"),
        ("王建国", "公共交通的投资还远远不够。"),
    ],
    links=["https://bridges.example.org/harbour/history", "https://bridges.example.org/harbour/tolls?year=2021", "https://www.linjiang.example.cn/about", "https://archive.example.net/tolls/1934.html"],
    wrong_links=[
        "https://bridges.example.org/harbor/history", "https://bridges.example.org/harbour/history2",
        "https://bridges.example.com/harbour/history", "https://bridges.example.org/harbour/tolls?year=2012",
        "https://www.linjiang.example.com/about", "https://linjiang.example.cn/about-us",
        "https://archive.example.net/tolls/1943.html", "https://archive.example.org/tolls/1934.html",
        "https://shop.example.com/products", "https://bridge.example.org/harbour",
    ],
    read=["stations.csv", "https://bridges.example.org/harbour", "jahresbericht.md", "https://www.linjiang.example.cn/about"],
    unread=["audit_2023.pdf", "minutes.docx", "survey.xlsx", "https://www.encyclo.example.com/wiki/Harbour_Bridge", "https://archive.example.net/tolls/1934.html", "https://stats.linjiang.example.cn/2020/transport", "https://bridges.example.org/harbour/history", "budget_2022.xlsx", "https://www.nytimes.com/1934/bridge", "notes/interview.txt"],
)  # fmt: skip

OUTPUT = {
    ("Hollow Creek", "2019"): 184.6, ("Hollow Creek", "2021"): 171.9, ("Hollow Creek", "2024"): 203.4,
    ("Brenner Alm", "2019"): 67.3, ("Brenner Alm", "2021"): 74.8, ("Brenner Alm", "2024"): 70.1,
    ("Kiefernwald", "2019"): 312.7, ("Kiefernwald", "2021"): 298.2, ("Kiefernwald", "2024"): 341.5,
    ("Saltmarsh", "2019"): 128.9, ("Saltmarsh", "2021"): 143.6, ("Saltmarsh", "2024"): 119.2,
}  # fmt: skip
TURBINES = {
    ("Hollow Creek", ""): 43, ("Brenner Alm", ""): 17, ("Kiefernwald", ""): 76, ("Saltmarsh", ""): 29,
    ("Ilsetal", ""): 58, ("Grey Point", ""): 34,
}  # fmt: skip
HEIGHTS = dict(zip(TURBINES, (98.5, 121.0, 140.25, 87.4, 112.6, 134.8), strict=True))
WEIGHTS = dict(zip(TURBINES, (218.4, 305.9, 412.3, 187.6, 263.5, 349.2), strict=True))
GRANTS = dict(zip(TURBINES, (1250000, 843500, 3972000, 618900, 2104700, 1487300), strict=True))
WIDE = "Park;2019;2021;2024\n" + "".join(
    f"{name};"
    + ";".join(f"{OUTPUT[name, year]:.1f}".replace(".", ",") for year in ("2019", "2021", "2024"))
    + "\n"
    for name in dict.fromkeys(name for name, _ in OUTPUT)
)
FRAME = "         park  turbines  hub_height_m  rotor_t     grant_eur\n" + "".join(
    f"{n}  {name[0]}  {TURBINES[name]}  {HEIGHTS[name]:.2f}  {WEIGHTS[name]:.1f}  {GRANTS[name]}\n"
    for n, name in enumerate(TURBINES)
)
MINUTES = """MINUTES OF THE COUNCIL OF HOLMWICK, 14 February 2025

Present: 23 councillors. Cllr Joan Whitaker took the chair at 19:30.
The council voted 15 to 8 to raise the parking fee from £1.20 to £1.85 per hour.
"We are not asking anyone to like this, only to pay for what the road costs," said Joan Whitaker.
Repairs of the sea wall will take 27 months and cost 6.4 million pounds sterling; the first phase ends on 30 June 2026.
In 2024 the town counted 418,700 overnight stays, against 391,250 in 2023.
The library lent 73,900 items, of which 12 % were e-books.
The next meeting is on 11 March 2025. Papers: https://council.holmwick.example/papers/2025-02 and https://council.holmwick.example/seawall/phase-1.pdf
"""
STUDIE = """Kurzfassung der Studie

Befragt wurden 2.348 Haushalte zwischen dem 4. März 2022 und dem 19. Mai 2022.
Haushalte mit Wärmepumpe verbrauchten im Mittel 3.870 kWh, Haushalte mit Gasheizung 18.240 kWh.
Der Anteil der Wärmepumpen wuchs von 5,4 % im Jahr 2020 auf 11,9 % im Jahr 2023.
Eine Anlage kostet etwa 24.600 Euro; die Förderung beträgt höchstens 9.500 Euro.
Studienleiter Ulrich Bender: „Die Technik ist nicht das Problem, es fehlt an Handwerkern.“
"""
NEWS = """晨光大学图书馆新馆启用

新馆建筑面积5.82万平方米，藏书436万册，共有座位3,150个。工程于2018年3月15日开工，2021年11月6日竣工，造价9.7亿元。
2022年到馆读者为187.4万人次，2023年为233.9万人次。
馆长林若溪说：“图书馆不是放书的地方，而是人与人相遇的地方。”
新馆每年节约用电126万千瓦时，减排二氧化碳约740吨。
"""
LOG = "checked 6 parks\nturbines in total: 257\nmean hub height: 115.76 m\nlargest grant: 3972000 EUR (Kiefernwald)\n"
RESULTS = """- Sea wall Q&A | https://www.seawall-news.example/qa
- Heat pump statistics 2023 | https://daten.example.de/waermepumpen/2023
- 晨光大学 | https://www.chenguang.example.cn/library/news/2021
"""

SECOND = World(
    passages=[
        Passage(WIDE, "k1", "read_file", "ertrag.csv"),
        Passage(FRAME, "k2", "python_execute", is_printed=True),
        Passage(MINUTES, "k3", "crawl4ai", "https://council.holmwick.example/minutes"),
        Passage(STUDIE, "k4", "read_file", "studie.pdf"),
        Passage(NEWS, "k5", "fetch_page", "https://www.chenguang.example.cn/library"),
        Passage(LOG, "k6", "bash", is_printed=True),
        Passage(RESULTS, "k7", "web_search"),
    ],
    task="Summarise ertrag.csv, studie.pdf and the two pages.",
    opened="ertrag.csv\nstudie.pdf\nhttps://council.holmwick.example/minutes\nhttps://www.chenguang.example.cn/library",
    files=frozenset({"ertrag.csv", "studie.pdf", "anhang.pdf", "protokoll.docx", "rohdaten.xlsx"}),
    measures=[
        Measure(
            "yield",
            {"en": "{name} delivered {value} in {year}.", "de": "{name} lieferte {year} einen Ertrag von {value}.", "zh": "{name}在{year}年发电{value}。"},
            {"en": "", "de": "", "zh": ""}, {}, OUTPUT, 1,
        ),
        Measure(
            "turbines",
            {"en": "There are {value} turbines at {name}.", "de": "In {name} stehen {value} Anlagen.", "zh": "{name}共有{value}台风机。"},
            {"en": "", "de": "", "zh": ""}, {}, TURBINES,
        ),
        Measure(
            "height",
            {"en": "At {name}, the hub height is {value}.", "de": "Die Nabenhöhe in {name} beträgt {value}.", "zh": "{name}的轮毂高度为{value}。"},
            {"en": "m", "de": "Meter", "zh": "米"}, {"en": "feet", "de": "km", "zh": "公里"}, HEIGHTS, 2,
        ),
        Measure(
            "rotor",
            {"en": "One rotor at {name} weighs {value}.", "de": "Ein Rotor wiegt in {name} {value}.", "zh": "{name}的转子重{value}。"},
            {"en": "tonnes", "de": "Tonnen", "zh": "吨"}, {"en": "kg", "de": "Pfund", "zh": "公斤"}, WEIGHTS, 1,
        ),
        Measure(
            "grant",
            {"en": "{name} received a grant of {value}.", "de": "{name} bekam {value} Förderung.", "zh": "{name}获得{value}的补助。"},
            {"en": "euros", "de": "EUR", "zh": "欧元"}, {"en": "dollars", "de": "CHF", "zh": "元"}, GRANTS,
        ),
    ],
    facts=[
        Fact(
            {"en": "Overnight stays rose to 418,700 in 2024.", "de": "2024 gab es 418.700 Übernachtungen.", "zh": "2024年过夜游客为41.87万人次。"},
            {"en": "Overnight stays rose to 481,700 in 2024.", "de": "2024 gab es 418.900 Übernachtungen.", "zh": "2024年过夜游客为41.37万人次。"},
            {},
            {"en": "Overnight stays were 418,700 in 2023.", "de": "2023 gab es 418.700 Übernachtungen.", "zh": "2022年过夜游客为41.87万人次。"},
        ),
        Fact(
            {"en": "The parking fee rises from £1.20 to £1.85 an hour.", "de": "Parken kostet künftig 1,85 £ statt 1,20 £.", "zh": "停车费由1.20英镑涨至1.85英镑。"},
            {"en": "The parking fee rises from £1.20 to £1.58 an hour.", "de": "Parken kostet künftig 1,95 £ statt 1,20 £.", "zh": "停车费由1.20英镑涨至2.85英镑。"},
            {"en": "The parking fee rises from $1.20 to $1.85 an hour.", "de": "Parken kostet künftig 1,85 € statt 1,20 €.", "zh": "停车费由1.20欧元涨至1.85欧元。"},
            {},
        ),
        Fact(
            {"en": "Gas-heated homes used 18,240 kWh on average.", "de": "Mit Gas waren es 18.240 kWh.", "zh": "使用燃气的家庭平均消耗18.24兆瓦时，即18240千瓦时。"},
            {"en": "Gas-heated homes used 18,420 kWh on average.", "de": "Mit Gas waren es 13.240 kWh.", "zh": "使用燃气的家庭平均消耗12840千瓦时。"},
            {"en": "Gas-heated homes used 18,240 MWh on average.", "de": "Mit Gas waren es 18.240 MWh.", "zh": "使用燃气的家庭平均消耗18240元。"},
            {},
        ),
        Fact(
            {"en": "The share of heat pumps reached 11.9 % in 2023.", "de": "2023 hatten 11,9 Prozent eine Wärmepumpe.", "zh": "2023年热泵占比达到11.9%。"},
            {"en": "The share of heat pumps reached 17.9 % in 2023.", "de": "2023 hatten 11,6 Prozent eine Wärmepumpe.", "zh": "2023年热泵占比达到19.1%。"},
            {},
            {"en": "The share of heat pumps reached 11.9 % in 2020.", "de": "2020 hatten 11,9 Prozent eine Wärmepumpe.", "zh": "2021年热泵占比达到11.9%。"},
        ),
        Fact(
            {"en": "The new library was finished on November 6, 2021.", "de": "Fertig wurde die Bibliothek am 6.11.2021.", "zh": "新馆于2021年11月6日竣工。"},
            {"en": "The new library was finished on November 9, 2021.", "de": "Fertig wurde die Bibliothek am 6.12.2021.", "zh": "新馆于2021年11月16日竣工。"},
            {},
            {"en": "The new library was finished on November 6, 2020.", "de": "Fertig wurde die Bibliothek am 6.11.2012.", "zh": "新馆于2022年11月6日竣工。"},
        ),
        Fact(
            {"en": "It has 58,200 m² of floor space and cost 970 million yuan.", "de": "Sie hat 58.200 m² und kostete 970 Mio. Yuan.", "zh": "面积为58200平方米，造价9.7亿元。"},
            {"en": "It has 52,800 m² of floor space.", "de": "Sie kostete 790 Mio. Yuan.", "zh": "面积为58900平方米，造价9.7亿元。"},
            {"en": "It has 58,200 km² of floor space.", "de": "Sie kostete 970 Mio. Euro.", "zh": "造价9.7亿美元。"},
            {},
        ),
        Fact(
            {"en": "In 2023 it had 2.339 million visitors.", "de": "2023 kamen 2,339 Millionen Besucher.", "zh": "2023年到馆读者达233.9万人次。"},
            {"en": "In 2023 it had 2.393 million visitors.", "de": "2023 kamen 2,839 Millionen Besucher.", "zh": "2023年到馆读者达239.9万人次。"},
            {},
            {"en": "In 2022 it had 2.339 million visitors.", "de": "2022 kamen 2,339 Millionen Besucher.", "zh": "2022年到馆读者达233.9万人次。"},
        ),
        Fact(
            {"en": "The sea wall costs 6.4 million pounds.", "de": "Die Mauer kostet 6,4 Mio. £.", "zh": "海堤造价640万英镑。"},
            {"en": "The sea wall costs £6.8 million.", "de": "Die Mauer kostet 4,6 Mio. £.", "zh": "海堤造价670万英镑。"},
            {"en": "The sea wall costs 6.4 million euros.", "de": "Die Mauer kostet 6,4 Mio. Dollar.", "zh": "海堤造价640万美元。"},
            {},
        ),
    ],
    true_sentences=[
        "Kiefernwald delivered 43.3 more in 2024 than in 2021.",
        "Von 2019 bis 2024 wuchs der Ertrag von Kiefernwald um 9,2 %.",
        "Saltmarsh 2024年比2021年减少24.4。",
        "The six parks have 257 turbines.",
        "Alle Parks zusammen haben 257 Anlagen.",
        "风机总数为257台。",
        "The mean hub height is 115.8 m.",
        "Kiefernwald has 29.6 % of all turbines.",
        "The largest grant, 3,972,000 EUR, went to Kiefernwald.",
        "Together the grants are 10,276,400 euros.",
        "Brenner Alm and Saltmarsh have 17 and 29 turbines.",
        "Hollow Creek: 43, Brenner Alm: 17, Kiefernwald: 76.",
        "| Park | 2024 |\n| --- | --- |\n| Saltmarsh | 119,2 |\n| Kiefernwald | 341,5 |",
        "The vote was 15 to 8.",
        "Es gab 27.450 Übernachtungen mehr als im Vorjahr.",
        "Stays grew by 7 %.",
        "The first phase ends on 30 June 2026, the next meeting is on 2025-03-11.",
        "Die Befragung lief vom 4.3.2022 bis zum 19.5.2022.",
        "About a tenth, 12 %, of the 73,900 loans were e-books, or 8,868.",
        "A heat pump saves 14,370 kWh.",
        "Nach Abzug der Förderung bleiben 15.100 Euro.",
        "热泵家庭平均用电3870千瓦时。",
        "读者增加了46.5万人次。",
        "Readers rose by 24.8 %.",
        "新馆有3150个座位，藏书436万册。",
        "It emits 740 t less CO2 and saves 1.26 million kWh a year.",
        "The work takes 27 months.",
        "Twenty-three councillors were present.",
        "Es waren dreiundzwanzig Ratsmitglieder da.",
        "The data are in ertrag.csv.",
    ],
    quotations=[
        ("Joan Whitaker", "We are not asking anyone to like this, only to pay for what the road costs"),
        ("Joan Whitaker", "only to pay for what the road costs"),
        ("Ulrich Bender", "Die Technik ist nicht das Problem, es fehlt an Handwerkern."),
        ("林若溪", "图书馆不是放书的地方，而是人与人相遇的地方。"),
        ("林若溪", "人与人相遇的地方"),
    ],
    invented=[
        ("Joan Whitaker", "We are asking everyone to pay for the sea wall"),
        ("Joan Whitaker", "Nobody has to like the road, only the fee"),
        ("Joan Whitaker", "The council will raise the fee again next year"),
        ("Joan Whitaker", "Parking was never meant to be free in this town"),
        ("Ulrich Bender", "Die Technik ist das eigentliche Problem."),
        ("Ulrich Bender", "Es fehlt nicht an Handwerkern, sondern an Geld."),
        ("Ulrich Bender", "Ohne Förderung kauft niemand eine Anlage."),
        ("林若溪", "图书馆是放书的地方。"),
        ("林若溪", "新馆的造价是值得的。"),
        ("林若溪", "读者比藏书更重要。"),
    ],
    links=["https://council.holmwick.example/papers/2025-02", "https://council.holmwick.example/seawall/phase-1.pdf", "https://daten.example.de/waermepumpen/2023", "https://www.chenguang.example.cn/library"],
    wrong_links=[
        "https://council.holmwick.example/papers/2025-03", "https://council.holmwick.example/papers/2024-02",
        "https://council.holmwick.example/seawall/phase-2.pdf", "https://council.holmwich.example/papers/2025-02",
        "https://daten.example.de/waermepumpe/2023", "https://daten.example.com/waermepumpen/2023",
        "https://www.chenguang.example.cn/library/news", "https://chenguang.example.com/library",
        "https://www.seawall-news.example/faq", "https://seawallnews.example/qa",
    ],
    read=["ertrag.csv", "https://council.holmwick.example/minutes", "studie.pdf", "https://www.chenguang.example.cn/library"],
    unread=["anhang.pdf", "protokoll.docx", "rohdaten.xlsx", "https://www.seawall-news.example/qa", "https://daten.example.de/waermepumpen/2023", "https://www.chenguang.example.cn/library/news/2021", "https://council.holmwick.example/papers/2025-02", "jahresabschluss.pdf", "https://www.bbc.co.uk/news/holmwick", "daten/interview.docx"],
)  # fmt: skip
