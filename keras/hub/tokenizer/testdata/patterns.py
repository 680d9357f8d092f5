"""Writes patterns.json.gz, or with an argument DIR/patterns.json.gz of 10000 texts: how the pre-tokenizer Split of the
package tokenizers splits texts at regular expressions.

python patterns.py [DIR]

The patterns are those of tokenizer.json files in use, and some of the syntax.
"""
import gzip
import json
import os
import random
import sys

from tokenizers import Regex, pre_tokenizers

small = len(sys.argv) < 2
text = open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden.py"), encoding="utf-8").read()
names = {"sys": type(sys)("sys"), "__name__": "texts"}
exec(text[text.index("import gzip"):text.index("random.seed(1)")].replace("sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 60", f"'', {60 if small else 10000}"), names)
names["random"].seed(5)
texts = [names["line"](i) for i in range(160 if small else 10000)] + ["It'S we'LL they'ſ I'M 'K \u212a", "", " ", "a\n\n b  \n", "1234567 ٣٤٥", "ǅ Ⅷ ªº"]

PATTERNS = {
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
             r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
             r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "deepseek3": r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "cjk": r"[一-龥぀-ゟ゠-ヿ]+",
    "bloom": r" ?[^(\s|[.,!?…。，、।۔،])]+",
    "clip": r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    "digits": r"\d{1,3}", "words": r"\w+|[^\w\s]+", "white": r"\s+", "lines": r"^.|.$", "lazy": r"a.*?e|\S{2,4}?", "until": r"[^ ]+(?= )",
    "scripts": r"\p{Han}+|\p{Hiragana}+|\p{Katakana}+|\p{Hangul}+|\P{L}", "fold": r"(?i)the|k[a-m]\w|[^a-z\s]", "empty": r"(a|b*)*c|x*",
    "case": r"\p{Lu}\p{Ll}*|\p{Lt}|\p{Sc}|\p{Nd}+|[\p{^L}&[^a-z]]",
}
del PATTERNS["case"]
out = os.path.join("." if small else sys.argv[1], "patterns.json.gz")
rows = []
for name, p in PATTERNS.items():
    for behavior in ["isolated", "removed", "contiguous"]:
        split = pre_tokenizers.Split(Regex(p), behavior)
        rows.append({"name": name, "pattern": p, "behavior": behavior.title(), "pieces": [[t for t, _ in split.pre_tokenize_str(s)] for s in texts]})
        if not small:
            break
with gzip.GzipFile(out, "wb", mtime=0) as f:
    f.write(json.dumps({"texts": texts, "rows": rows}).encode())
