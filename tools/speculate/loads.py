"""Writes the loads of `coppice bench speculate`: bench/speculate/loads/*.jsonl, a JSON object a line for each task.

    python3 tools/speculate/loads.py [DIR]

A task has a name, the messages of a chat, the answer that a good model gives (output) and, for the calls of tools, the JSON
schema that the answer satisfies. The same script writes the same bytes each time: the values of records are drawn with a
fixed seed, and the source files are those of one commit of this repository, whose licence they have.
"""

import json
import pathlib
import random
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMIT = "7295b3c2"  # whose source files the tasks of rewrite change

# A task of rewrite: a file, what to do, and the replacements that do it. A word that stands alone is replaced everywhere as
# a whole word, another text exactly once.
EDITS = [
    ("actors/engine.go", "Rename the field `sought` to `lookups`", [("sought", "lookups")]),
    ("actors/engine.go", "Change the constant `seekPatience` from 50 to 80 milliseconds, and log an error of the backend's Close with the "
     "message \"the backend did not close\" instead of \"closing the backend\"",
     [("50 * time.Millisecond", "80 * time.Millisecond"), ('"closing the backend"', '"the backend did not close"')]),
    ("actors/pool.go", "Rename the field `news` to `notices`", [("news", "notices")]),
    ("bench/load/sse.go", "Rename the type `timed` to `stampedReader`", [("timed", "stampedReader")]),
    ("bench/load/sse.go", "Lower the limit of an event from 16 MiB to 4 MiB, in the constant and in the text of the error",
     [("16 << 20", "4 << 20"), ("event of more than 16 MiB", "event of more than 4 MiB")]),
    ("bench/load/record.go", "Rename the type `meter` to `recorder`, but keep the name of `newMeter`", [("meter", "recorder")]),
    ("gateway/internal/prompt/cache.go", "Rename the type `textShard` to `cacheShard`", [("textShard", "cacheShard")]),
    ("gateway/internal/prompt/cache.go", "Give each shard 4 MiB at least instead of 1, and use at most 8 shards",
     [("maxShards  = 16", "maxShards  = 8"), ("shardBytes = 1 << 20", "shardBytes = 4 << 20")]),
    ("gateway/internal/residency/rank.go", "Rename the method `remove` to `drop`", [("remove", "drop")]),
    ("internal/web/open.go", "Rename the field `most` to `limit`", [("most", "limit")]),
    ("internal/web/open.go", "Let `Leave` panic with the text \"web: Leave without Enter\" if no request is open",
     [("\tif o.n--; o.n == 0 && o.draining {", "\tif o.n == 0 {\n\t\tpanic(\"web: Leave without Enter\")\n\t}\n\tif o.n--; o.n == 0 && o.draining {")]),
    ("internal/web/conns.go", "Rename the method `enter` to `admit`", [("enter", "admit")]),
    ("internal/web/conns.go", "Add the missing doc comment to the type ConnLimits: \"ConnLimits bounds the connections of a listener.\"",
     [("type ConnLimits struct {", "// ConnLimits bounds the connections of a listener.\ntype ConnLimits struct {")]),
    ("openai/tokenize.go", "Rename the variable `d` to `dec`, in the function DecodeUnpin only",
     [("v, p, d := parse(body), &Pin{AddSpecialTokens: true}, &decoder{}\n\tgiven := 0\n\td.fields", "v, p, dec := parse(body), &Pin{AddSpecialTokens: true}, &decoder{}\n\tgiven := 0\n\tdec.fields"),
      ("{ p.Model = d.text(v) }", "{ p.Model = dec.text(v) }"), ("all := d.promptList(v)", "all := dec.promptList(v)"),
      ("p.AddSpecialTokens = d.flag(v)", "p.AddSpecialTokens = dec.flag(v)"), ("d.label(v, \"\")", "dec.label(v, \"\")"),
      ("d.seconds(v)", "dec.seconds(v)"), ("case given == 0:\n\t\td.missing", "case given == 0:\n\t\tdec.missing"),
      ("case given > 1:\n\t\td.fail", "case given > 1:\n\t\tdec.fail")]),
    ("tokenizer/merge.go", "Rename the constant `noMerge` to `unmergeable`", [("noMerge", "unmergeable")]),
    ("tokenizer/merge.go", "Raise `maxShortPiece` to 96, and rename the variable `gone` in mergeLong to `swallowed`",
     [("maxShortPiece = 64", "maxShortPiece = 96"), ("gone", "swallowed")]),
    ("tokenizer/normalize.go", "Rename the type `normalizerKind` to `stepKind`", [("normalizerKind", "stepKind")]),
    ("tokenizer/normalize.go", "Also accept the kind \"Uppercase\" in newNormalizer: it is refused with the message \"normalizer Uppercase is not supported yet\"",
     [('\tcase "Prepend":\n', '\tcase "Uppercase":\n\t\tunsupported("normalizer Uppercase is not supported yet")\n\tcase "Prepend":\n')]),
    ("server/internal/answer/parser.go", "Rename the type `cleaner` to `markFilter`", [("cleaner", "markFilter")]),
    ("server/internal/answer/tokens.go", "Decode 512 tokens at a time in WriteText instead of 256, and rename `unfinished` to `partialRune`",
     [("textTokens = 256", "textTokens = 512"), ("unfinished", "partialRune")]),
    ("scheduler/schedtest/mail.go", "Rename the type `place` to `whereabouts` and nothing else", [("place", "whereabouts")]),
    ("scheduler/schedtest/progress.go", "Rename the field `passed` to `overtaken`", [("passed", "overtaken")]),
    ("cmd/coppice/settings_print.go", "Rename the method `printed` to `printable`", [("printed", "printable")]),
    ("cmd/internal/hub/list.go", "Rename the type `sibling` to `listedFile`", [("sibling", "listedFile")]),
]

CHAT = [
    ("How does a rainbow form?",
     "A rainbow appears when sunlight meets falling drops of water. Light bends as it enters a drop, is reflected once at the back, and bends "
     "again on its way out. Each colour bends by a slightly different amount, so red leaves the drop at about 42 degrees from the direction of "
     "the sun and violet at about 40. Your eye therefore receives red from drops a little higher in the sky and violet from lower ones, and all "
     "drops at the same angle form an arc. The sun must stand behind you and low enough; at noon in summer the arc lies below the horizon. A "
     "fainter second bow comes from light that was reflected twice, which is why its colours are in the opposite order."),
    ("Give me a simple recipe for pancakes.",
     "For about eight pancakes you need 200 g of flour, two eggs, 300 ml of milk, a pinch of salt and a little butter.\n\n1. Put the flour and "
     "salt into a bowl and make a hollow in the middle.\n2. Break in the eggs, add a third of the milk and whisk until it is smooth.\n3. Stir in "
     "the rest of the milk and let the batter stand for a quarter of an hour.\n4. Melt some butter in a pan over medium heat and pour in a "
     "small ladle of batter.\n5. When the edge is dry and the underside golden, turn it and give it another minute.\n\nServe them hot with lemon "
     "and sugar, or with cheese and spinach if you like them savoury."),
    ("Why should I write tests before the code?",
     "Writing the test first makes you decide what the code should do before you think about how. That has three effects. You meet your own "
     "interface as its first user, so awkward signatures show up while they are still cheap to change. You see the test fail once, which proves "
     "that it can fail; a test written afterwards often passes for the wrong reason. And you know when to stop, because the work is done once "
     "the test is green. It is not a law. When you explore an unknown library, a throwaway experiment may teach you more than a test, and you "
     "write the real thing, test first, on the next day."),
    ("What is the difference between weather and climate?",
     "Weather is what the atmosphere does at one place over hours or days: the shower this afternoon, the frost tomorrow morning. Climate is the "
     "pattern of that weather over decades, with its averages and its extremes. A single cold winter says little about climate, just as one "
     "throw says little about a die; thirty winters say a good deal. The two are also predicted differently. A weather forecast starts from the "
     "exact state of today and loses its way after about ten days. A climate projection asks how the balance of energy changes, for instance when "
     "there is more carbon dioxide, and what range of weather follows from it."),
    ("Can you explain what a hash table is to a beginner?",
     "Imagine a cloakroom with a hundred numbered hooks. When a coat arrives, you compute a number between 1 and 100 from the owner's name by a "
     "fixed rule, and hang it there. To find the coat later you apply the rule to the name again and go straight to the hook, without looking at "
     "any other. A hash table does the same with data: the rule is the hash function, the hooks are buckets. Sometimes two names give the same "
     "number. Then both coats share a hook and you look through the few that hang there. If the hooks fill up, you move to a bigger cloakroom "
     "and hang everything anew, which is slow but rare."),
    ("Plan a quiet Sunday in a small town by the sea.",
     "Start late, with bread from the bakery at the harbour and coffee on the wall where the boats are tied up. Around ten, walk along the beach "
     "to the lighthouse; at low tide you can take the way over the sand and come back by the path on the cliffs. Lunch is soup in the place with "
     "the blue door. In the early afternoon the museum opens for two hours, and its one large room with ship models is worth half of them. Then "
     "rent a bicycle and ride to the chapel inland, six kilometres through orchards. Be back by six: the light is best then, and the fish stall "
     "sells what is left at half the price."),
    ("Write a polite note to a neighbour about loud music at night.",
     "Dear Ms Okafor,\n\nI hope you have settled in well. I am writing about something small that we can surely solve together. On several nights "
     "last week the music in your flat could be heard clearly in our bedroom until about one o'clock. The walls of this house are thin, and you "
     "may not have been aware of how far the sound carries.\n\nWould it be possible to turn it down after ten in the evening, at least from Sunday "
     "to Thursday? My daughter leaves for school at half past six. On weekends, or if you plan a party and tell us beforehand, we do not mind at "
     "all.\n\nThank you, and please knock if we should ever disturb you.\n\nKind regards,\nMartin Hale, second floor"),
    ("How do vaccines work?",
     "A vaccine shows the immune system a harmless part of a germ before the germ itself arrives. That part may be a killed virus, a weakened "
     "one, a single protein, or the instructions for making that protein. Certain white cells recognise it as foreign and multiply. Some make "
     "antibodies, which stick to the germ and mark it; others learn to destroy cells that are infected. After a few weeks most of them disappear, "
     "but memory cells stay for years. If the real germ comes later, these cells respond within days instead of weeks, often before you notice "
     "an illness at all. A second dose strengthens the memory, and for germs that change quickly it has to be refreshed."),
    ("What should I look for when I buy a used bicycle?",
     "Look at the frame first. Run a finger along the tubes near the head and the bottom bracket: a ripple in the paint or a fine crack means "
     "leave it. Lift each wheel and spin it. It should run straight and stop slowly; a wobble can be trued, but a flat spot in the rim can't. Push "
     "the crank sideways, and if it knocks, the bearings need work. Measure the chain with a gauge or by how far it lifts off the large ring. A "
     "worn chain is cheap, yet the sprockets it has ruined are not. Try all gears and both brakes under load. Finally ask for the receipt, and "
     "compare the number under the bottom bracket with a register of stolen bicycles."),
    ("Tell me a short story about a clockmaker.",
     "In a narrow street lived a clockmaker who could repair anything except his own clock. It hung above the door and was always eleven minutes "
     "slow. Customers teased him; he only smiled. One winter evening a boy came in, out of breath, and said that his mother would miss the last "
     "train because she believed that clock. The old man took his coat, locked the shop, and walked with him to the station, not fast. They "
     "arrived as the train came in, eleven minutes late, as it had been every night for thirty years. The boy looked up at him. \"I never "
     "repaired it,\" said the clockmaker, \"because somebody has to keep the time that people really need.\""),
]


def source(path):
    return subprocess.run(["git", "show", f"{COMMIT}:{path}"], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def edited(text, changes):
    for old, new in changes:
        word = re.fullmatch(r"\w+", old)
        hits = len(re.findall(rf"\b{old}\b", text)) if word else text.count(old)
        if hits == 0 or not word and hits > 1:
            raise SystemExit(f"{old!r} occurs {hits} times")
        text = re.sub(rf"\b{old}\b", new, text) if word else text.replace(old, new)
    return text


def task(name, ask, output, **more):
    return {"name": name, "messages": [{"role": "user", "content": ask}], "output": output, **more}


def rewrite():
    for i, (path, what, changes) in enumerate(EDITS):
        text = source(path)
        ask = f"{what} in this Go file. Change nothing else. Answer with the whole file in one code block, without any other text.\n\n```go\n{text}```"
        yield task(f"rewrite-{i + 1:02}", ask, f"```go\n{edited(text, changes)}```")


def csv(rows):
    return "\n".join(",".join(str(v) for v in row) for row in rows)


def table(rng, i, n):
    """The column names and n rows of one of four tables."""
    first = ["Ada", "Bela", "Chen", "Dora", "Emre", "Farid", "Grete", "Hana", "Igor", "Jana", "Kofi", "Lena", "Milo", "Nora", "Omar", "Pia"]
    last = ["Abel", "Brandt", "Costa", "Dunn", "Eriksen", "Fischer", "Greene", "Haas", "Ivanova", "Jones", "Kaya", "Lopez", "Moreau", "Novak"]
    cities = ["Bergen", "Cork", "Delft", "Essen", "Faro", "Ghent", "Izmir", "Lyon", "Malmo", "Porto", "Riga", "Turin"]
    date = lambda: f"{rng.randint(2019, 2025)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    kinds = [
        (["employee_id", "first_name", "last_name", "department", "office_city", "start_date", "annual_salary"],
         lambda k: [1000 + 7 * k + rng.randint(0, 6), rng.choice(first), rng.choice(last), rng.choice(["sales", "research", "support", "finance"]),
                    rng.choice(cities), date(), rng.randrange(32000, 98000, 500)]),
        (["sensor_id", "station_name", "measured_at", "temperature_celsius", "humidity_percent", "battery_volts"],
         lambda k: [f"s-{rng.randint(100, 999)}", rng.choice(cities), f"{date()}T{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:00Z",
                    round(rng.uniform(-8, 31), 1), rng.randint(30, 98), round(rng.uniform(2.9, 4.2), 2)]),
        (["order_number", "customer_name", "product_code", "quantity", "unit_price_euro", "shipping_status", "destination_city"],
         lambda k: [50000 + 11 * k + rng.randint(0, 9), f"{rng.choice(first)} {rng.choice(last)}", f"P{rng.randint(100, 999)}-{rng.choice('ABCD')}",
                    rng.randint(1, 24), round(rng.uniform(1, 250), 2), rng.choice(["pending", "packed", "shipped", "delivered"]), rng.choice(cities)]),
        (["book_id", "title", "author_last_name", "publication_year", "shelf_number", "number_of_copies", "available"],
         lambda k: [200 + k, f"{rng.choice(['A History of', 'Notes on', 'The Craft of', 'Letters from'])} {rng.choice(cities)}", rng.choice(last),
                    rng.randint(1890, 2024), rng.randint(1, 60), rng.randint(1, 9), rng.choice([True, False])]),
    ]
    columns, row = kinds[i % len(kinds)]
    return columns, [row(k) for k in range(n)]


def record_task(rng, name, i, n):
    columns, rows = table(rng, i, n)
    written = [[json.dumps(v) if isinstance(v, bool) else v for v in row] for row in rows]
    ask = ("Convert this CSV to JSON Lines: one JSON object for each row, on a line of its own, with the column names as keys in the same order. "
           "Numbers and booleans are not quoted. Answer with the lines alone.\n\n" + csv([columns] + written))
    return task(name, ask, "\n".join(json.dumps(dict(zip(columns, row))) for row in rows))


def records():
    rng = random.Random(31)
    for i in range(12):
        yield record_task(rng, f"records-{i + 1:02}", i, 16)


def call_task(rng, name, i):
    """A call of one of three tools, as a JSON object under the tool's schema."""
    text = {"type": "string", "maxLength": 60}
    people = ["maria.keller", "tom.osei", "li.wen", "sara.lind", "jan.peeters"]
    city = rng.choice(["Lisbon", "Oslo", "Vienna", "Dublin", "Prague"])
    day, hour = f"2026-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}", rng.randint(8, 17)
    some = rng.sample(people, 2)
    if i % 3 == 0:
        tool = "create_calendar_event"
        given = {"event_title": f"Planning for {city}", "start_date": day, "start_hour": hour, "duration_minutes": rng.choice([30, 45, 60]),
                 "participant_addresses": [f"{p}@example.com" for p in some], "reminder_before_start": rng.choice(["none", "ten_minutes", "one_hour"]),
                 "visible_to_organisation": rng.choice([True, False])}
        properties = {"event_title": text, "start_date": text, "start_hour": {"type": "integer"}, "duration_minutes": {"enum": [30, 45, 60]},
                      "participant_addresses": {"type": "array", "items": text, "maxItems": 4},
                      "reminder_before_start": {"enum": ["none", "ten_minutes", "one_hour"]}, "visible_to_organisation": {"type": "boolean"}}
        ask = (f"Enter \"Planning for {city}\" on {day} at {hour}:00 for {given['duration_minutes']} minutes, with {some[0]}@example.com and "
               f"{some[1]}@example.com. Reminder: {given['reminder_before_start']}. Visible to the organisation: {given['visible_to_organisation']}.")
    elif i % 3 == 1:
        tool = "search_train_connections"
        to = rng.choice(["Berlin", "Paris", "Rome", "Geneva"])
        given = {"departure_station": city, "arrival_station": to, "travel_date": day, "earliest_departure_hour": hour,
                 "number_of_passengers": rng.randint(1, 4), "seat_class": rng.choice(["first_class", "second_class"]),
                 "maximum_number_of_changes": rng.randint(0, 2), "include_night_trains": rng.choice([True, False])}
        properties = {"departure_station": text, "arrival_station": text, "travel_date": text, "earliest_departure_hour": {"type": "integer"},
                      "number_of_passengers": {"type": "integer"}, "seat_class": {"enum": ["first_class", "second_class"]},
                      "maximum_number_of_changes": {"type": "integer"}, "include_night_trains": {"type": "boolean"}}
        ask = (f"Find trains from {city} to {to} on {day}, not before {hour}:00, for {given['number_of_passengers']}, {given['seat_class']}, at most "
               f"{given['maximum_number_of_changes']} changes, night trains: {given['include_night_trains']}.")
    else:
        tool = "create_support_ticket"
        given = {"ticket_subject": f"Printer on floor {rng.randint(1, 9)} does not answer", "reported_by_employee": some[0],
                 "assigned_to_employee": some[1], "priority_level": rng.choice(["low_priority", "normal_priority", "high_priority"]),
                 "affected_service": rng.choice(["printing", "electronic_mail", "file_storage"]), "office_location": city,
                 "reported_on_date": day, "send_confirmation_message": rng.choice([True, False])}
        properties = {"ticket_subject": text, "reported_by_employee": {"enum": people}, "assigned_to_employee": {"enum": people},
                      "priority_level": {"enum": ["low_priority", "normal_priority", "high_priority"]},
                      "affected_service": {"enum": ["printing", "electronic_mail", "file_storage"]}, "office_location": text,
                      "reported_on_date": text, "send_confirmation_message": {"type": "boolean"}}
        ask = (f"{some[0]} reported on {day} in {city}: {given['ticket_subject'].lower()}. Open a ticket for {some[1]} with {given['priority_level']}, "
               f"service {given['affected_service']}, confirmation message: {given['send_confirmation_message']}.")
    arguments = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    schema = {"type": "object", "properties": {"name": {"const": tool}, "arguments": arguments}, "required": ["name", "arguments"], "additionalProperties": False}
    return task(name, f"{ask}\n\nAnswer with a call of the tool {tool}, as a JSON object with name and arguments that satisfies this schema:\n"
                + json.dumps(schema), json.dumps({"name": tool, "arguments": given}), schema=schema)


def calls():
    rng = random.Random(32)
    for i in range(12):
        yield call_task(rng, f"calls-{i + 1:02}", i)


def chat():
    for i, (ask, answer) in enumerate(CHAT):
        yield task(f"chat-{i + 1:02}", ask, answer)


def streams():
    """Sixteen tasks that run at a time: four of each kind, with other values than in the loads of one stream."""
    rng, rewrites, chats = random.Random(33), list(rewrite()), list(chat())
    for i in range(4):
        yield {**rewrites[5 * i + 2], "name": f"streams-{4 * i + 1:02}"}
        yield record_task(rng, f"streams-{4 * i + 2:02}", i, 12)
        yield call_task(rng, f"streams-{4 * i + 3:02}", i + 1)
        yield {**chats[2 * i + 1], "name": f"streams-{4 * i + 4:02}"}


def main(directory):
    out = pathlib.Path(directory)
    for load in (rewrite, records, calls, chat, streams):
        lines = [json.dumps(t) for t in load()]
        (out / f"{load.__name__}.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else ROOT / "bench/speculate/loads")
