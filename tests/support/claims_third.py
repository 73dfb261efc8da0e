"""A third set of evidence, in other layouts: wards, coffee, rivers, a trial, a museum, a railway."""

# ruff: noqa: E501  # a sentence on each line; Chinese punctuation
from openmanus_graph.conversation.passages import Passage
from tests.support.claims_exam import Fact, Measure, World

STAYS = {
    ("Cardiology", "2021"): 5.8, ("Cardiology", "2022"): 5.3, ("Oncology", "2021"): 9.4,
    ("Oncology", "2022"): 8.9, ("Geriatrics", "2021"): 17.2, ("Geriatrics", "2022"): 16.1,
    ("Paediatrics", "2021"): 3.7, ("Paediatrics", "2022"): 4.1,
}  # fmt: skip
PATIENTS = dict(zip(STAYS, (2184, 2267, 1349, 1418, 863, 927, 3052, 2871), strict=True))
HARVEST = {
    ("Yirgalem", ""): 128450, ("Huila", ""): 96720, ("Tarrazú", ""): 74380, ("Kintamani", ""): 51960,
    ("Chiriquí", ""): 33815, ("Nyeri", ""): 112640,
}  # fmt: skip
ALTITUDE = dict(zip(HARVEST, (1875, 1640, 1530, 1290, 1465, 1790), strict=True))
PRICE = dict(zip(HARVEST, (7.85, 6.4, 8.15, 5.95, 11.3, 9.25), strict=True))
FLOW = {
    ("Lahnau", ""): 41.7, ("Erzbach", ""): 6.83, ("Moorau", ""): 18.95, ("Steinach", ""): 73.2,
    ("Dornfließ", ""): 2.46,
}  # fmt: skip
WATER = dict(zip(FLOW, (14.3, 9.6, 16.8, 12.1, 18.4), strict=True))
LONG = dict(zip(FLOW, (137.4, 28.6, 64.9, 212.3, 11.7), strict=True))
WARDS = (
    "Quality report, St Brigid's Hospital\n\n| Ward | Year | Patients | Mean stay |\n|---|---|---|---|\n"
    + "".join(
        f"| {name} | {year} | {PATIENTS[name, year]:,} | {STAYS[name, year]} days |\n"
        for name, year in STAYS
    )
)
COFFEE = "Region\tHarvest (kg)\tAltitude (m)\tPrice (USD)\n" + "".join(
    f"{key[0]}\t{HARVEST[key]}\t{ALTITUDE[key]}\t{PRICE[key]:.2f}\n" for key in HARVEST
)
RIVERS = "".join(
    f"[{key[0]}]\nlength = {LONG[key]} km\ndischarge = {FLOW[key]} m³\ntemperature = {WATER[key]} °C\n\n"
    for key in FLOW
)
TRIAL = """ABSTRACT. Background: Iron deficiency is common after surgery. Methods: Between 11 January 2017 and
29 August 2019 we randomised 1,246 adults at 31 centres to 150 mg of the study drug or placebo.
Results: Haemoglobin rose by 18.6 g per litre with the drug and 7.9 g per litre with placebo. Transfusion
was needed by 4.3% and 11.8%. Median follow-up was 14 months. Serious events occurred in 57 patients.
"Giving it early was safe, and simpler than we had feared," said lead author Ingrid Solheim.
The trial cost 5.75 million Swiss francs. Protocol: https://trials.example.org/iron/protocol-v3
Data: https://data.example.edu/sets/8841
"""
MUSEUM = """Jahresbilanz 2023 des Museums für Technik

• 294.600 Besucherinnen und Besucher (Vorjahr: 251.300)
• Eintrittserlöse: 3,18 Mio. € (Vorjahr: 2,64 Mio. €)
• Neu in der Sammlung: 1.127 Objekte, darunter eine Dampfmaschine von 1887 mit 23 Tonnen Gewicht
• Ausstellungsfläche seit dem 17. Juni 2023: 8.450 m², zuvor 6.900 m²
• Energieverbrauch: 1.940 MWh, davon 37 % aus eigener Photovoltaik
Direktorin Henrike Vollmer: »Wir zeigen keine Maschinen, wir zeigen die Menschen, die sie gebaut haben.«
Der Bericht im Ganzen: https://technikmuseum.example.de/bilanz/2023.pdf
"""
RAILWAY = """沧澜高铁今日开通运营

沧澜高速铁路全长468.3公里，设计时速350公里，共设11座车站。项目于2017年4月8日动工，2022年12月26日通车，总投资673亿元。
开通首年发送旅客2,145万人次，2023年增至2,618万人次。最长的云岭隧道长13.72公里，造价28.6亿元。
总工程师沈怀远说：“最难的不是打通隧道，而是不惊动山里的水。”
二等座票价为214元，比普速列车快3小时40分钟。
"""
SENSORS = """{"station": "Alpha", "pm25": 12.7, "noise_db": 61, "battery": 0.83}
{"station": "Bravo", "pm25": 31.4, "noise_db": 74, "battery": 0.46}
{"station": "Delta", "pm25": 8.9, "noise_db": 55, "battery": 0.97}
"""
PRINTED = "Patients 2022     7483\nPatients 2021     7448\nHeaviest harvest  Yirgalem (128450 kg)\nTotal harvest     497965 kg\nMean price        8.15 USD\n"
HITS = """[1] Iron after surgery: full text <https://journal.example.com/iron/full>
[2] Museum in Zahlen <https://technikmuseum.example.de/zahlen>
[3] 沧澜高铁 <https://rail.canglan.example.cn/stations>
"""

THIRD = World(
    passages=[
        Passage(WARDS, "m1", "read_file", "quality.md"),
        Passage(COFFEE, "m2", "read_file", "coffee.tsv"),
        Passage(RIVERS, "m3", "read_file", "rivers.ini"),
        Passage(TRIAL, "m4", "web_fetch", "https://trials.example.org/iron"),
        Passage(MUSEUM, "m5", "read_file", "bilanz.docx"),
        Passage(RAILWAY, "m6", "web_fetch", "https://rail.canglan.example.cn/news/1226"),
        Passage(SENSORS, "m7", "bash", is_printed=True),
        Passage(PRINTED, "m8", "python_execute", is_printed=True),
        Passage(HITS, "m9", "web_search"),
    ],
    task="Compare quality.md, coffee.tsv and rivers.ini, and summarise the trial, bilanz.docx and the railway.",
    opened="quality.md\ncoffee.tsv\nrivers.ini\nbilanz.docx\nhttps://trials.example.org/iron\nhttps://rail.canglan.example.cn/news/1226",
    files=frozenset({"quality.md", "coffee.tsv", "rivers.ini", "bilanz.docx", "appendix.pdf", "etat.xlsx", "wards_raw.csv"}),
    measures=[
        Measure(
            "stay",
            {"en": "Patients in {name} stayed {value} on average in {year}.", "de": "In {name} dauerte ein Aufenthalt {year} im Schnitt {value}.", "zh": "{year}年{name}的平均住院时间为{value}。"},
            {"en": "days", "de": "Tage", "zh": "天"}, {"en": "weeks", "de": "Stunden", "zh": "小时"}, STAYS, 1,
        ),
        Measure(
            "patients",
            {"en": "{name} treated {value} patients in {year}.", "de": "{year} behandelte {name} {value} Kranke.", "zh": "{name}在{year}年收治了{value}名患者。"},
            {"en": "", "de": "", "zh": ""}, {}, PATIENTS,
        ),
        Measure(
            "harvest",
            {"en": "{name} harvested {value}.", "de": "Die Ernte in {name} betrug {value}.", "zh": "{name}的收成是{value}。"},
            {"en": "kg", "de": "Kilogramm", "zh": "公斤"}, {"en": "pounds", "de": "Tonnen", "zh": "吨"}, HARVEST,
        ),
        Measure(
            "altitude",
            {"en": "The farms of {name} lie at {value}.", "de": "{name} liegt auf {value} Höhe.", "zh": "{name}的海拔为{value}。"},
            {"en": "metres", "de": "m", "zh": "米"}, {"en": "feet", "de": "Fuß", "zh": "英尺"}, ALTITUDE,
        ),
        Measure(
            "price",
            {"en": "A kilo from {name} costs {value}.", "de": "Kaffee aus {name} kostet {value}.", "zh": "{name}咖啡的价格为{value}。"},
            {"en": "dollars", "de": "US$", "zh": "美元"}, {"en": "euros", "de": "€", "zh": "英镑"}, PRICE, 2,
        ),
        Measure(
            "length",
            {"en": "The {name} is {value} long.", "de": "Der Fluss {name} ist {value} lang.", "zh": "{name}河长{value}。"},
            {"en": "km", "de": "Kilometer", "zh": "公里"}, {"en": "miles", "de": "Meter", "zh": "米"}, LONG, 1,
        ),
        Measure(
            "temperature",
            {"en": "The water of the {name} has {value}.", "de": "Das Wasser der {name} hat {value}.", "zh": "{name}河的水温为{value}。"},
            {"en": "°C", "de": "°C", "zh": "摄氏度"}, {"en": "°F", "de": "°F", "zh": "华氏度"}, WATER, 1,
        ),
    ],
    facts=[
        Fact(
            {"en": "The trial enrolled 1,246 adults at 31 centres.", "de": "An der Studie nahmen 1.246 Erwachsene in 31 Zentren teil.", "zh": "试验在31个中心招募了1246名成人。"},
            {"en": "The trial enrolled 1,264 adults at 31 centres.", "de": "An der Studie nahmen 1.246 Erwachsene in 37 Zentren teil.", "zh": "试验在31个中心招募了1846名成人。"},
            {}, {},
        ),
        Fact(
            {"en": "They were given 150 mg of the drug.", "de": "Sie erhielten 150 mg des Mittels.", "zh": "他们服用了150毫克药物。"},
            {"en": "They were given 180 mg of the drug.", "de": "Sie erhielten 250 mg des Mittels.", "zh": "他们服用了160毫克药物。"},
            {"en": "They were given 150 g of the drug.", "de": "Sie erhielten 150 Gramm des Mittels.", "zh": "他们服用了150克药物。"},
            {},
        ),
        Fact(
            {"en": "Follow-up lasted 14 months.", "de": "Die Nachbeobachtung dauerte 14 Monate.", "zh": "随访时间为14个月。"},
            {"en": "Follow-up lasted 16 months.", "de": "Die Nachbeobachtung dauerte 19 Monate.", "zh": "随访时间为24个月。"},
            {"en": "Follow-up lasted 14 weeks.", "de": "Die Nachbeobachtung dauerte 14 Jahre.", "zh": "随访时间为14天。"},
            {},
        ),
        Fact(
            {"en": "Recruitment ran from January 11, 2017 to August 29, 2019.", "de": "Die Aufnahme lief vom 11.01.2017 bis zum 29.08.2019.", "zh": "招募时间为2017年1月11日至2019年8月29日。"},
            {"en": "Recruitment ran from January 11, 2017 to August 27, 2019.", "de": "Die Aufnahme lief vom 17.01.2017 bis zum 29.08.2019.", "zh": "招募时间为2017年2月11日至2019年8月29日。"},
            {},
            {"en": "Recruitment ran from January 11, 2016 to August 29, 2019.", "de": "Die Aufnahme lief vom 11.01.2017 bis zum 29.08.2018.", "zh": "招募时间为2017年1月11日至2020年8月29日。"},
        ),
        Fact(
            {"en": "The trial cost CHF 5.75 million.", "de": "Die Studie kostete 5,75 Mio. Franken.", "zh": "试验耗资575万瑞士法郎。"},
            {"en": "The trial cost CHF 5.15 million.", "de": "Die Studie kostete 7,55 Mio. Franken.", "zh": "试验耗资525万瑞士法郎。"},
            {"en": "The trial cost $5.75 million.", "de": "Die Studie kostete 5,75 Mio. Euro.", "zh": "试验耗资575万欧元。"},
            {},
        ),
        Fact(
            {"en": "The museum had 294,600 visitors in 2023.", "de": "2023 kamen 294.600 Gäste ins Museum.", "zh": "2023年博物馆接待29.46万人次。"},
            {"en": "The museum had 249,600 visitors in 2023.", "de": "2023 kamen 294.800 Gäste ins Museum.", "zh": "2023年博物馆接待29.96万人次。"},
            {},
            {"en": "The museum had 294,600 visitors in 2019.", "de": "2021 kamen 294.600 Gäste ins Museum.", "zh": "2020年博物馆接待29.46万人次。"},
        ),
        Fact(
            {"en": "The steam engine weighs 23,000 kg and was built in 1887.", "de": "Die Dampfmaschine von 1887 wiegt 23 t.", "zh": "1887年的蒸汽机重23吨。"},
            {"en": "The steam engine weighs 28,000 kg.", "de": "Die Dampfmaschine von 1887 wiegt 33 t.", "zh": "1887年的蒸汽机重32吨。"},
            {"en": "The steam engine weighs 23 kg.", "de": "Die Dampfmaschine wiegt 23 Pfund.", "zh": "蒸汽机重23公斤。"},
            {"en": "The steam engine was built in 1878.", "de": "Die Dampfmaschine ist von 1867.", "zh": "蒸汽机造于1897年。"},
        ),
        Fact(
            {"en": "It used 1.94 GWh, 37 percent of it from its own panels.", "de": "Verbraucht wurden 1.940.000 kWh, 37 Prozent davon aus eigener Erzeugung.", "zh": "能耗为1940兆瓦时，其中37%来自自有光伏。"},
            {"en": "It used 1,490 MWh.", "de": "Verbraucht wurden 1.940 MWh, 39 Prozent davon aus eigener Erzeugung.", "zh": "能耗为1980兆瓦时，其中37%来自自有光伏。"},
            {"en": "It used 1,940 kWh.", "de": "Verbraucht wurden 1.940 kWh.", "zh": "能耗为1940千瓦时。"},
            {},
        ),
        Fact(
            {"en": "The galleries cover 8,450 m² since June 17, 2023.", "de": "Seit dem 17.6.2023 sind es 8.450 Quadratmeter.", "zh": "自2023年6月17日起，展厅面积为8450平方米。"},
            {"en": "The galleries cover 8,540 m².", "de": "Seit dem 17.6.2023 sind es 8.950 Quadratmeter.", "zh": "自2023年6月17日起，展厅面积为8150平方米。"},
            {"en": "The galleries cover 8,450 square feet.", "de": "Die Fläche beträgt 8.450 Hektar.", "zh": "展厅面积为8450公顷。"},
            {"en": "The galleries were enlarged on June 17, 2021.", "de": "Erweitert wurde am 17.6.2022.", "zh": "自2024年6月17日起扩建。"},
        ),
        Fact(
            {"en": "The line is 468.3 km long and cost 67.3 billion yuan.", "de": "Die Strecke ist 468,3 km lang und kostete 67,3 Mrd. Yuan.", "zh": "全线长468.3千米，投资673亿元。"},
            {"en": "The line is 486.3 km long and cost 67.3 billion yuan.", "de": "Die Strecke ist 468,3 km lang und kostete 76,3 Mrd. Yuan.", "zh": "全线长463.8千米，投资673亿元。"},
            {"en": "The line is 468.3 miles long.", "de": "Die Strecke kostete 67,3 Mrd. Euro.", "zh": "全线投资673亿美元。"},
            {},
        ),
        Fact(
            {"en": "It opened on 26 December 2022.", "de": "Eröffnet wurde sie am 26. Dezember 2022.", "zh": "2022年12月26日通车。"},
            {"en": "It opened on 28 December 2022.", "de": "Eröffnet wurde sie am 26. November 2022.", "zh": "2022年12月16日通车。"},
            {},
            {"en": "It opened on 26 December 2021.", "de": "Eröffnet wurde sie am 26. Dezember 2020.", "zh": "2023年12月26日通车。"},
        ),
        Fact(
            {"en": "In 2023 it carried 26.18 million passengers.", "de": "2023 fuhren 26,18 Mio. Fahrgäste mit.", "zh": "2023年发送旅客2618万人次。"},
            {"en": "In 2023 it carried 21.68 million passengers.", "de": "2023 fuhren 26,88 Mio. Fahrgäste mit.", "zh": "2023年发送旅客2681万人次。"},
            {},
            {"en": "In 2021 it carried 26.18 million passengers.", "de": "2022 fuhren 26,18 Mio. Fahrgäste mit.", "zh": "2020年发送旅客2618万人次。"},
        ),
    ],
    true_sentences=[
        "The two years together had 14,931 patients.",
        "Insgesamt wurden 497.965 kg geerntet.",
        "总收成约为498吨。",
        "Yirgalem harvested a quarter of it, 25.8 %.",
        "Nyeri lies 325 m higher than Chiriquí.",
        "The stay in Oncology fell by 0.5 days from 2021 to 2022.",
        "In Geriatrics sank die Dauer um 6,4 %.",
        "Oncology拥有1418名患者，比上一年多69名。",
        "The mean price was $8.15.",
        "Chiriquí was the dearest at 11.30 dollars, Kintamani the cheapest at 5.95 dollars.",
        "- Steinach: 212.3 km\n- Lahnau: 137.4 km\n- Moorau: 64.9 km",
        "| River | km | °C |\n| --- | --- | --- |\n| Steinach | 212.3 | 12.1 |\n| Erzbach | 28.6 | 9.6 |",
        "The Lahnau carries 41.7 m³ of water.",
        "Das Wasser des Dornfließ ist mit 18,4 Grad am wärmsten.",
        "The drug raised haemoglobin by 18.6 g per litre, against 7.9 g with placebo.",
        "That is a difference of 10.7 g per litre.",
        "Transfusions fell from 11.8 % to 4.3 %, by 7.5 percentage points.",
        "57 of 1,246 patients had serious events, or 4.6 %.",
        "Die Erlöse wuchsen um 0,54 Mio. € auf 3,18 Millionen Euro.",
        "Es kamen 43.300 Menschen mehr, ein Plus von 17,2 %.",
        "Die Fläche wuchs um 1.550 m².",
        "旅客比首年增加473万人次，增长22%。",
        "隧道每公里造价约2.08亿元。",
        "Second class costs 214 yuan.",
        "The top speed is 350 km/h, and there are eleven stations.",
        "Bravo measured 31.4 for PM2.5 and 74 dB.",
        "Delta's battery is at 97 %, Bravo's at 46 %.",
        "Alpha: 12.7, Bravo: 31.4, Delta: 8.9.",
        "The table has 6 regions and 3 figures for each.",
        "The figures are from quality.md and coffee.tsv.",
    ],
    quotations=[
        ("Ingrid Solheim", "Giving it early was safe, and simpler than we had feared"),
        ("Ingrid Solheim", "simpler than we had feared"),
        ("Henrike Vollmer", "Wir zeigen keine Maschinen, wir zeigen die Menschen, die sie gebaut haben."),
        ("沈怀远", "最难的不是打通隧道，而是不惊动山里的水。"),
        ("沈怀远", "不惊动山里的水"),
    ],
    invented=[
        ("Ingrid Solheim", "Giving it early was safer than we had hoped"),
        ("Ingrid Solheim", "Placebo was simpler, and we had feared that"),
        ("Ingrid Solheim", "Every centre should now give the drug early"),
        ("Ingrid Solheim", "Iron deficiency is a silent epidemic"),
        ("Henrike Vollmer", "Wir zeigen Maschinen, nicht die Menschen."),
        ("Henrike Vollmer", "Ohne eigene Photovoltaik gäbe es dieses Museum nicht mehr."),
        ("Henrike Vollmer", "Die Dampfmaschine ist das Herz der Sammlung."),
        ("沈怀远", "最难的是打通隧道。"),
        ("沈怀远", "这条铁路改变了山里人的生活。"),
        ("沈怀远", "我们惊动了山里的水。"),
    ],
    links=["https://trials.example.org/iron/protocol-v3", "https://data.example.edu/sets/8841", "https://technikmuseum.example.de/bilanz/2023.pdf", "https://rail.canglan.example.cn/stations"],
    wrong_links=[
        "https://trials.example.org/iron/protocol-v2", "https://trials.example.com/iron/protocol-v3",
        "https://data.example.edu/sets/8814", "https://data.example.edu/set/8841",
        "https://technikmuseum.example.de/bilanz/2022.pdf", "https://technik-museum.example.de/bilanz/2023.pdf",
        "https://rail.canglan.example.cn/station", "https://rail.canglan.example.com/stations",
        "https://journal.example.com/iron/abstract", "https://journals.example.com/iron/full",
    ],
    read=["quality.md", "coffee.tsv", "https://trials.example.org/iron", "https://rail.canglan.example.cn/news/1226"],
    unread=["appendix.pdf", "etat.xlsx", "wards_raw.csv", "https://journal.example.com/iron/full", "https://technikmuseum.example.de/zahlen", "https://rail.canglan.example.cn/stations", "https://trials.example.org/iron/protocol-v3", "https://www.thelancet.com/iron", "interviews.docx", "data/sensors.json"],
)  # fmt: skip
