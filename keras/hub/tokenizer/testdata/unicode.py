"""Writes ../unicode_tables.go and ../category_tables.go: which characters the package tokenizers takes for what.

It asks the installed version about every character. Its libraries have tables of
different versions of Unicode, and Go's package unicode has another one.
"""
import tokenizers
from tokenizers import normalizers as N, pre_tokenizers as P

bert = lambda **k: N.BertNormalizer(**(dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False) | k))
clean, cjk, strip = bert(clean_text=True), bert(handle_chinese_chars=True), bert(strip_accents=True)
accents, lower = N.StripAccents(), N.Lowercase()
words, byte_level, space, punct, digits, word = (P.BertPreTokenizer(), P.ByteLevel(add_prefix_space=False), P.WhitespaceSplit(), P.Punctuation(),
                                                 P.Digits(individual_digits=True), P.Whitespace())
pieces = lambda p, s: [t for t, _ in p.pre_tokenize_str(s)]

sets = {
    "control": ("BertNormalizer removes", lambda c: clean.normalize_str(f"a{c}b") == "ab"),
    "chinese": ("BertNormalizer puts between spaces", lambda c: cjk.normalize_str(c) != c),
    "nonspacing": ("BertNormalizer takes for accents", lambda c: strip.normalize_str("a" + c) == "a"),
    "mark": ("StripAccents takes for accents", lambda c: accents.normalize_str("a" + c) == "a"),
    "punctuation": ("BertPreTokenizer and Punctuation take for punctuation", lambda c: len(pieces(punct, f"a{c}b")) == 3),
    "white": ("all take for white space", lambda c: len(pieces(space, f"a{c}b")) == 2),
    "letter": ("ByteLevel takes for letters", lambda c: pieces(byte_level, f"a{c}1") == ["a" + byte_level_text(c), "1"]),
    "number": ("ByteLevel takes for numbers", lambda c: c != " " and len(pieces(byte_level, f"a{c}1")) == 2 and pieces(byte_level, f"a{c}1")[0] == "a"),
    "numeric": ("Digits takes for digits", lambda c: len(pieces(digits, f"a{c}b")) == 3),
    "wordLike": ("Whitespace takes for parts of words", lambda c: len(pieces(word, f"a{c}b")) == 1),
}


def byte_level_text(c):
    return "".join(pieces(byte_level, c))


def in_base_36(n):
    digits = ""
    while n or not digits:
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[n % 36] + digits
        n //= 36
    return digits


characters = [chr(i) for i in range(0x110000) if not 0xD800 <= i <= 0xDFFF]
with open("../unicode_tables.go", "w") as f:
    f.write(f"// Written by testdata/unicode.py with tokenizers {tokenizers.__version__}. DO NOT EDIT.\n\npackage tokenizer\n\n")
    f.write("// Sets of characters as ranges: the distances between first, last + 1, first …, in base 36.\nconst (\n")
    for name, (what, member) in sets.items():
        edges, inside = [], False
        for c in characters + [None]:
            now = c is not None and member(c)
            if now != inside:
                edges.append(ord(c) if c else 0x110000)
                inside = now
        text, at = [], 0
        for e in edges:
            n, digits36 = e - at, ""
            while n or not digits36:
                digits36 = "0123456789abcdefghijklmnopqrstuvwxyz"[n % 36] + digits36
                n //= 36
            text.append(digits36)
            at = e
        f.write(f"\n\t// {name}Set are the characters that {what}.\n\t{name}Set = \"\" +\n")
        lines, line = [], ""
        for t in text:
            if len(line) + len(t) > 115:
                lines.append(line)
                line = ""
            line += t + " "
        lines.append(line)
        f.write(" +\n".join(f'\t\t"{l}"' for l in lines) + "\n")
    f.write(")\n\n// lowerPairs are capital letters that Go's package unicode may not know, each with its small letter.\nconst lowerPairs = \"\" +\n")
    pairs = [c + lower.normalize_str(c) for c in characters if ord(c) > 0x1C88 and len(lower.normalize_str(c)) == 1 and lower.normalize_str(c) != c
             and (0x1C89 == ord(c) or 0xA7CB <= ord(c) <= 0xA7DC or 0x10D50 <= ord(c) <= 0x10D65 or 0x16EA0 <= ord(c) <= 0x16EB8)]
    f.write('\t"' + "".join("\\U%08x\\U%08x" % tuple(map(ord, p)) for p in pairs) + '"\n')


# Classes of regular expressions: general categories, \\s, \\d, \\w, and \\w between brackets, which has no ² ³ ¹.
names = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Han Hiragana Katakana Hangul Thai".split() + ["s", "d", "w", "[w]"]
with open("../category_tables.go", "w") as f:
    f.write(f"// Written by testdata/unicode.py with tokenizers {tokenizers.__version__}. DO NOT EDIT.\n\npackage tokenizer\n\n")
    f.write("// categorySets are classes of characters in regular expressions, as ranges like those of unicode_tables.go.\nvar categorySets = map[string]string{\n")
    for name in names:
        text = "[\\w_]" if name == "[w]" else "\\" + name if len(name) == 1 else "\\p{" + name + "}"
        split = P.Split(tokenizers.Regex(text), "removed")
        edges, inside = [], False
        for c in characters + [None]:
            now = c is not None and not split.pre_tokenize_str(c)
            if now != inside:
                edges.append(ord(c) if c else 0x110000)
                inside = now
        lines, line, at = [], "", 0
        for e in edges:
            t = in_base_36(e - at)
            at = e
            if len(line) + len(t) > 115:
                lines.append(line)
                line = ""
            line += t + " "
        lines.append(line)
        f.write(f'\t"{name}": "" +\n' + " +\n".join(f'\t\t"{l}"' for l in lines) + ",\n")
    f.write("}\n")
