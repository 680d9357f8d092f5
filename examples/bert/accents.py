"""Writes accents.go: letters with accents, and what is left of them without.

Run: python accents.py > accents.go (Python 3.11 or later; unicodedata is Unicode's data).

A letter is in the table if its canonical decomposition (NFD), without nonspacing marks (Mn), is one other character. Hangul, whose
syllables decompose by arithmetic, is not, nor are the compatibility ideographs.
"""

import sys
import unicodedata as u

pairs = []
for c in map(chr, range(0x80, 0x20000)):
    if "\uac00" <= c <= "\ud7a3" or u.category(c) == "Cs" or "CJK COMPATIBILITY" in u.name(c, ""):
        continue
    rest = "".join(d for d in u.normalize("NFD", c) if u.category(d) != "Mn")
    if rest != c and len(rest) == 1 and u.category(c)[0] in "LN":
        pairs.append(c + rest)
print("// Written by accents.py from Unicode %s. DO NOT EDIT.\n" % u.unidata_version)
print("package main\n")
print("// accented holds pairs: a letter with accents, and the same without.")
print('const accented = "" +')
rows = ["".join(pairs[i:i + 30]) for i in range(0, len(pairs), 30)]
print(" +\n".join('\t"%s"' % r for r in rows))
print(len(pairs), "letters", file=sys.stderr)
