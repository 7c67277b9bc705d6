"""Writes texts.json: 240 texts of 20 languages, code, emoji and odd white space, to
compare tokenizers with other implementations of them.

    python texts.py

The sentences are article 1 of the Universal Declaration of Human Rights (United
Nations, 1948), which is free to use.
"""

import json
import pathlib
import random

SENTENCES = {
    "English": "All human beings are born free and equal in dignity and rights. They are endowed with reason and conscience and should act towards one another in a spirit of brotherhood.",
    "German": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft und Gewissen begabt und sollen einander im Geist der Brüderlichkeit begegnen.",
    "French": "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de raison et de conscience et doivent agir les uns envers les autres dans un esprit de fraternité.",
    "Spanish": "Todos los seres humanos nacen libres e iguales en dignidad y derechos y, dotados como están de razón y conciencia, deben comportarse fraternalmente los unos con los otros.",
    "Portuguese": "Todos os seres humanos nascem livres e iguais em dignidade e em direitos. Dotados de razão e de consciência, devem agir uns para com os outros em espírito de fraternidade.",
    "Italian": "Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti. Essi sono dotati di ragione e di coscienza e devono agire gli uni verso gli altri in spirito di fratellanza.",
    "Polish": "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Są oni obdarzeni rozumem i sumieniem i powinni postępować wobec innych w duchu braterstwa.",
    "Czech": "Všichni lidé rodí se svobodní a sobě rovní co do důstojnosti a práv. Jsou nadáni rozumem a svědomím a mají spolu jednat v duchu bratrství.",
    "Russian": "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом и совестью и должны поступать в отношении друг друга в духе братства.",
    "Ukrainian": "Всі люди народжуються вільними і рівними у своїй гідності та правах. Вони наділені розумом і совістю і повинні діяти у відношенні один до одного в дусі братерства.",
    "Greek": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα. Είναι προικισμένοι με λογική και συνείδηση.",
    "Turkish": "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. Akıl ve vicdana sahiptirler ve birbirlerine karşı kardeşlik zihniyeti ile hareket etmelidirler. İSTANBUL, ışık.",
    "Arabic": "يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق. وقد وهبوا عقلاً وضميرًا وعليهم أن يعامل بعضهم بعضًا بروح الإخاء.",
    "Hebrew": "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם. כולם חוננו בתבונה ובמצפון, לפיכך חובה עליהם לנהוג איש ברעהו ברוח של אחווה.",
    "Hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है। उन्हें बुद्धि और अन्तरात्मा की देन प्राप्त है।",
    "Thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ต่างมีเหตุผลและมโนธรรม และควรปฏิบัติต่อกันด้วยเจตนารมณ์แห่งภราดรภาพ",
    "Vietnamese": "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi. Mọi con người đều được tạo hoá ban cho lý trí và lương tâm.",
    "Chinese": "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。",
    "Japanese": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。人間は、理性と良心とを授けられており、互いに同胞の精神をもって行動しなければならない。",
    "Korean": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 인간은 천부적으로 이성과 양심을 부여받았으며 서로 형제애의 정신으로 행동하여야 한다.",
}

CODE = [
    "func main() {\n\tfmt.Println(\"hello, world\")\n}\n",
    "for (int i = 0; i < 10; ++i) { a[i] += b[i] * 0x1F; }",
    "def f(x: int) -> list[str]:\n    return [str(i) for i in range(x) if i % 2 == 0]\n",
    "SELECT name, COUNT(*) AS n FROM users WHERE age >= 18 GROUP BY name ORDER BY n DESC LIMIT 100;",
    "<div class=\"row\"><a href='https://example.com/?q=1&amp;r=2'>It's here</a></div>",
    "{\"id\": 12345, \"tags\": [\"a\", \"b\"], \"nested\": {\"ok\": true, \"pi\": 3.14159}}",
    "fn main() -> Result<(), Box<dyn Error>> {\n    let v: Vec<u8> = vec![1, 2, 3];\n    Ok(())\n}",
    "#include <stdio.h>\nint main(void)\n{\n\treturn printf(\"%d\\n\", 42) < 0;\n}\n",
    "const x = async () => await fetch(`/api/${id}`).then(r => r.json()); // fetch it\n",
    "\\begin{equation}\n  e^{i\\pi} + 1 = 0\n\\end{equation}",
    "docker run --rm -it -v \"$PWD\":/work -p 8080:80 image:latest /bin/sh -c 'ls -la | grep \"^d\"'",
    "class HTTPServer2XX extends BaseServer implements IFooBar { private static final int MAX_SIZE = 1_000_000; }",
    "if err := json.Unmarshal(data, &v); err != nil {\n\t\treturn fmt.Errorf(\"read %q: %w\", path, err)\n\t}",
    "diff --git a/x.go b/x.go\n@@ -1,3 +1,4 @@\n-old line\n+new line\n context\n",
    "0b1010 0o755 0xDEADBEEF 1e-9 1_000 12345678901234567890 3.0f .5 5.",
    "camelCaseIdentifierWithHTTPAndXMLParser snake_case_name kebab-case-name SCREAMING_SNAKE",
    "| a | b |\n|---|--:|\n| 1 | 2 |\n\n- [x] done\n- [ ] not yet\n\n```sh\nmake -j4\n```\n",
    "x = {'k': \"v's\", \"they'll\": 'we\\'ve', 'I\\'M': \"CAN'T\"}",
    "/* comment */ // another\n# and another\n-- and one more\n; and the last\n<!-- html -->",
    "2024-01-31T23:59:59.999Z 127.0.0.1:8080 user@example.com ../path/to/file.tar.gz C:\\Users\\me",
]

EMOJI = [
    "😀", "Hello 👋🏽 world 🌍!", "👨‍👩‍👧‍👦 family", "🇩🇪🇫🇷🇯🇵", "❤️ vs ❤", "1️⃣2️⃣3️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "so 😂😂😂 funny", "🤷‍♂️🤦🏾‍♀️", "→ ← ↑ ↓ ⇒ ∀x∈ℝ: x²≥0",
    "★☆✓✗♠♣♥♦", "①②③ ⅓ ½ Ⅷ ⑳", "𝒜𝓁𝓅𝒽𝒶 𝟘𝟙𝟚", "ﬁne ﬂow ǆ ǅ Ǆ", "Ω Å K", "e\u0301 vs é; n\u0303 vs ñ", "Z̸͙̈a̴l̷g̶o̵", "¿Qué? ¡No! «oui» „ja“ ‚so‘ …", "€100 £20 ¥3000 ₹50 ₿1", "🫠🫨🪿 new ones",
]

SPACES = [
    "", " ", "  ", "   leading", "trailing   ", "a  b   c    d", "\t\ttabs\tbetween\t", "line\nline\n\nline\n\n\n", "\r\nwindows\r\nlines\r\n", "\n \n  \n   x",
    " \n", "\n ", "x \n y", "a\u00a0b\u00a0\u00a0c", "a\u3000b\u3000", "a\u2003b\u2009c\u200bd", "a\u2028b\u2029c", "\ufeffbom", "a\x0bb\x0cc\x85d", " " * 33 + "x" + " " * 17,
]

# What none of the other kinds holds: control characters, words beside special tokens' text,
# long words, numbers, Unicode's corners.
CORNERS = [
    "\x00\x01\x02", "a\x04b\x06c", "\x13\x14\x16\x1d", "\U000e0001\U000f0000", "\U00040000", "\ue000\uf8ff", "\u0378\u0379", "\u200d\u200c\u2060", "a" * 300, "ab" * 100 + "!" * 80,
    "1234567890" * 8, "３．１４１５ ٣٤٥ ४५६", "don't DON'T Don’t it's IT'S we'Ve", "'s't're've'm'll'd", "ſ'ſ ΣΊΣΥΦΟΣ ß ẞ İ ı", "각 각", "กำ ำ", "क्ष्म", "<|im_start|", "<s> </s> [INST]",
]


def main():
    rng = random.Random(1730)
    out = []
    for language, sentence in SENTENCES.items():
        words = sentence.split(" ") if " " in sentence else list(sentence)
        half = len(sentence) // 2
        out += [{"kind": language, "text": text} for text in (
            sentence, sentence.upper(), sentence[:half] + "\n" + sentence[half:], " " + sentence.replace(" ", "  "),
            f"1. {sentence} (2024, 37%)", "".join(rng.sample(words, min(12, len(words)))),
        )]
    for kind, texts in {"code": CODE, "emoji": EMOJI, "white space": SPACES, "corners": CORNERS}.items():
        out += [{"kind": kind, "text": text} for text in texts]
    for i in range(40):
        parts = rng.sample(out[: 6 * len(SENTENCES) + len(CODE) + len(EMOJI)], 3)
        glue = rng.choice([" ", "\n", "\t", "", "\n\n", " — "])
        out.append({"kind": "mixed", "text": glue.join(p["text"][: rng.randint(5, 60)] for p in parts)})
    lines = ",\n".join(json.dumps(t, ensure_ascii=False) for t in out)
    (pathlib.Path(__file__).parent / "texts.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(len(out))


main()
