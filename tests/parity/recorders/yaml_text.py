"""What PyYAML and Python's json make of values and texts: the bytes they write, the values they read.

Values are kept as JSON text in which everything that JSON cannot tell apart is spelled out: a float
is `{"float": its repr}`, a list is `{"list": [..]}`, a dict is `{"map": [[key, value], ..]}`.
"""

import datetime
import json
import random

import yaml

from .fixture_file import write

VALUES = 300

#: Texts that something in the grammar, the folding or the escaping hangs on.
TEXTS = [
    "", " ", "a", "no", "NO", "y", "null", "~", "None", "1", "1.0", "1e8", "1.5e3", "1:30", "0x1F", "089", ".inf",
    "2001-01-01", "2001-1-1 2:03:04", "<<", "=", "-", "- a", "-a", "--- a", "...", "?", "? a", "?a", ":", ": a", ":a",
    "a:", "a: b", "a:b", "a #b", "a#b", "#a", ",a", "[a", "]a", "{a", "}a", "&a", "*a", "!a", "|a", ">a", "'a", '"a',
    "%a", "@a", "`a", "it's", 'say "no"', "a\\b", " a", "a ", "a\n", "\na", "a\nb", "a\n\nb", "a \nb", "a\n b", "\n",
    "a\tb", "\t", "a\r\nb", "\x00", "\x07\x1b", "\x7f", "\x85", "\xa0", "\u2028", "\ufeff", "\ufffe", "é", "日本語", "😀",
    "ml.p3.2xlarge", "BertLayer,GPT2Block", "/a path/with spaces", "C:\\Users\\ada", "all", "0,1", "10.0.0.1", "::1",
]
#: Pieces of the texts that are put together at random.
PIECES = [" ", " ", " ", "  ", "\n", "\n\n", "'", '"', "\\", ": ", " #", ",", "-", "é", "😀", "\t", "\x00", "\u2028", "a"]
WORDS = ["word", "anotherword", "x", "1", "no", "a-rather-long-word-that-fills-a-good-part-of-a-line"]
FLOATS = [0.0, -0.0, 1.0, 0.1, 1e-3, 1e-5, 1.5e-7, 1e15, 1e16, 1.5e16, 1e17, 1e300, 5e-324, 123456.789,
          float("inf"), float("-inf"), float("nan")]
INTS = [0, 1, -1, 29500, 2**31, 2**63 - 1, -(2**63)]
KEYS = ["a", "num_processes", "no", "1", "", "a: b", "it's", "-", "é", "a\nb", "k" * 122, "k" * 123, "w " * 61, "w " * 70]

SCALARS = """
~ null Null NULL nULL None none yes Yes YES yES no No NO nO true True TRUE tRUE false False FALSE on On ON oN off Off
OFF y Y n N t f 0 -0 +0 00 000 1 -1 +1 12 012 -012 +012 0_7 07_ 0_ 0__ 08 089 0o14 0O14 1_000 1__0 1_ _1 -_1 0x0 0x1F
0xff -0x10 +0x10 0x_1 0x1_ 0xG 0X1F 0x 0b0 0b101 -0b1 0b1_0 0b2 0B1 0b 1:30 1:3 1:60 1:59 01:30 0:30 12:30:45 -1:30
+1:30 1:30:60 1_0:30 190:20:30 1.0 1. .5 -.5 +.5 . .. ... -. 1.5 -1.5 +1.5 1_0.5 1.5_0 1._5 1_.5 ._5 .5_
1e8 1e-3 1E8 1e+8 1.0e8 1.0e+8 1.0e-8 1.0E+8 1.e+8 .5e+3 .5e3 -.5e+3 1.0e+ 1.0e+_1 1.0e+1_0 1.0e+999 -1.0e+999
1.0e-999 0.1 00.1 09.5 1:30.5 1:30. -1:30.5 1:60.5 0:30.5 1:30.5e+1 1:30_.5 .inf .Inf .INF .iNF -.inf +.inf .inF inf
-inf .nan .NaN .NAN .nAN -.nan +.nan nan 2001-12-14 2001-1-1 2001-12-1 20011214 2001-12-14t21:59:43.10-05:00
2001-12-14T21:59:43Z 2001-12-14T21:59:43+5 2001-12-14T21:59 1.2.3 10.0.0.1 0.0.0.0 1-2 1/2 1,000 0,1 1a a1 + -- +-1
-+1 --1 0x-1 NaN Infinity 9223372036854775807 -9223372036854775808 0x7FFFFFFFFFFFFFFF 0b_1 -0b_1 0777 -0777 0_8 0.
-0. -0.0 +0.0 0e0 0.0e+0 0.0e0 123456789.123456789 4.9e-324 1.7976931348623157e+308 all auto bf16 fp16 12e03 3d 3f 1L
""".split()


def record(out):
    """Writes `yaml_text.json`."""
    draw = random.Random(12)
    values = [*TEXTS, *FLOATS, *INTS, None, True, False, [], {}]
    while len(values) < VALUES:
        values.append(value(draw, depth=0))
    content = {
        "values": [[json.dumps(tagged(each)), yaml.safe_dump(each), as_json(each)] for each in values],
        "scalars": [[text, *reading(text)] for text in SCALARS],
    }
    write(out / "yaml_text.json", content)


def as_json(each):
    return json.dumps(each, indent=2, sort_keys=True) + "\n"


def value(draw, depth):
    """A value of some sort; deeper ones are smaller and simpler."""
    sort = draw.random()
    if depth < 3 and sort < 0.35:
        return {key(draw): value(draw, depth + 1) for _ in range(draw.randrange(5 - depth))}
    if depth < 3 and sort < 0.55:
        return [value(draw, depth + 1) for _ in range(draw.randrange(5 - depth))]
    if sort < 0.85:
        return text(draw)
    return draw.choice([*FLOATS, *INTS, None, True, False])


def key(draw):
    return draw.choice(KEYS) if draw.random() < 0.5 else f"key_{draw.randrange(100)}"


def text(draw):
    sort = draw.random()
    if sort < 0.3:
        return draw.choice(TEXTS)
    if sort < 0.6:
        # Long lines of words, for the folding.
        return " ".join(draw.choice(WORDS) for _ in range(draw.randrange(1, 30)))
    return "".join(draw.choice(WORDS + PIECES) for _ in range(draw.randrange(1, 25)))


def tagged(each):
    if isinstance(each, float):
        return {"float": repr(each)}
    if isinstance(each, list):
        return {"list": [tagged(item) for item in each]}
    if isinstance(each, dict):
        return {"map": [[name, tagged(item)] for name, item in each.items()]}
    return each


def reading(text):
    """How an unquoted scalar is read: the sort of value, and the value as text."""
    try:
        found = yaml.safe_load(f"a: {text}")["a"]
    except Exception as error:
        return ["error", type(error).__name__]
    if isinstance(found, (datetime.date, datetime.datetime)):
        return ["date", text]
    return [type(found).__name__, repr(found) if not isinstance(found, str) else found]
