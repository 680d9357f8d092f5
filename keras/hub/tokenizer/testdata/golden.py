"""Trains small tokenizers, and writes what the package tokenizers makes of texts.

python golden.py DIR [LINES]

For each tokenizer NAME: DIR/NAME.json, its tokenizer.json, and DIR/NAME.golden.gz, a line of JSON for each text. Of the
committed ones LINES is 60; with 10000 the texts have all of the kinds below many times.
"""
import gzip
import json
import os
import pydoc_data.topics
import random
import sys

from tokenizers import (AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers)

out, lines = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 60
small = lines < 1000
random.seed(3)

SENTENCES = """The quick brown fox jumps over the lazy dog, doesn't it? I'd say they've won; we'll see.
Der Übermut tut selten gut: Äpfel, Öl und Straßenfußball für 3,50 €!
Où est passé l'été ? Ça va très bien, merci — « voilà » !
El niño comió mañana una piña en el año 2024. ¿Qué tal?
Ελληνικά γράμματα με τόνους: άέήίόύώ ΐΰ. Καλημέρα!
Съешь же ещё этих мягких французских булок, да выпей чаю. Йод, ёж.
人工智能正在改变世界。我喜欢学习中文!
これは日本語のテストです。カタカナ、ひらがな、漢字。ガギグゲゴ パピプ
한국어 문장을 토큰으로 나눕니다. 안녕하세요!
مرحبا بالعالم، كيف حالك؟ العَرَبِيَّة
שלום עולם, מה שלומך? עִבְרִית
नमस्ते दुनिया, आप कैसे हैं? क़ख़ग़
สวัสดีชาวโลก ภาษาไทยไม่มีวรรค
Tiếng Việt có nhiều dấu: ắ ằ ẳ ẵ ặ ế ề ể ễ ệ.
Zażółć gęślą jaźń. Příliš žluťoučký kůň. İstanbul'da ılık Iğdır
def f(x): return {"a": [1, 2.5e-3], 'b': x**2}  # code\t\tand tabs
https://example.com/path?q=1&r=%20#top user@example.org C:\\Temp\\x.txt
١٢٣ ४५६ ⅷ ½ ² ₃ ① 3.14159 1,000,000 0x1F
😀😃🤣 👩‍👩‍👧‍👦 🇩🇪🇫🇷 👍🏽 ❤️ ✨ ☎️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿
ﬁ ﬂ Å Ω ㎏ ｆｕｌｌ　ｗｉｄｔｈ ㋿ ꟲ ẛ̣ ǆ ℌ ①②""".split("\n")
DOCS = [l.strip() for t in pydoc_data.topics.topics.values() for l in t.split("\n") if l.strip()]
RANGES = [(0, 0x20), (0x20, 0x7F), (0x7F, 0xA0), (0xA0, 0x250), (0x250, 0x370), (0x370, 0x530), (0x530, 0x800), (0x800, 0xE00), (0xE00, 0x1200),
          (0x1200, 0x2000), (0x2000, 0x2070), (0x2070, 0x2E80), (0x2E80, 0x3100), (0x3100, 0x4E00), (0x4E00, 0xA000), (0xA000, 0xAC00),
          (0xAC00, 0xD800), (0xE000, 0xF900), (0xF900, 0x10000), (0x10000, 0x11000), (0x11000, 0x12000), (0x16000, 0x17000), (0x1D000, 0x1F000),
          (0x1F000, 0x1FB00), (0x20000, 0x2A6E0), (0x2A6E0, 0x2FA20), (0xE0000, 0xE01F0)]
MARKS = [0x300, 0x301, 0x302, 0x308, 0x30A, 0x323, 0x327, 0x328, 0x345, 0x5B4, 0x64E, 0x93C, 0x94D, 0x3099, 0x20E3, 0xFE0F, 0x200D]
SPACES = [" ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u2003", "\u3000", "\u200b", "\u2028", "\x85", "\x1c", "   "]
SPECIAL = ["[MASK]", "[SEP]", "[CLS]", "<|endoftext|>", "<mask>", "<s>", "</s>", "<unk>", "new_word", "New_Word", " <mask> ", "[UNK]", "▁", "##s"]


def character():
    while True:
        low, high = random.choice(RANGES)
        c = random.randrange(low, high)
        if not 0xD800 <= c <= 0xDFFF:
            return chr(c)


def line(i):
    kind = i % 8
    if kind == 0:
        return SENTENCES[i // 8 % len(SENTENCES)]
    if kind == 1:
        return random.choice(DOCS)
    if kind == 2:
        return "".join(character() for _ in range(random.randrange(1, 40)))
    if kind == 3:
        return random.choice(["", " "]).join(random.choice(random.choice(SENTENCES).split(" ")) for _ in range(random.randrange(1, 20)))
    if kind == 4:
        return "".join(random.choice([character(), chr(random.choice(MARKS)), random.choice("aeiouAEIOU가かハ")]) for _ in range(random.randrange(1, 30)))
    if kind == 5:
        return "".join(random.choice(random.choice(SENTENCES).split(" ")) + random.choice(SPACES) for _ in range(random.randrange(1, 12)))
    if kind == 6:
        return "".join(random.choice([random.choice(SPECIAL), random.choice(random.choice(SENTENCES).split(" ")), random.choice(SPACES)])
                       for _ in range(random.randrange(1, 10)))
    words = random.choice(DOCS).split(" ")
    random.shuffle(words)
    return random.choice([str.upper, str.title, str, str.swapcase])(" ".join(words)) + random.choice(["", "!", "'s", "...", " \n", "'LL"])


random.seed(1)
corpus = SENTENCES * 3 + random.sample(DOCS, 3000)
sizes = (180, 400, 700) if small else (4000, 4000, 3000)


def bert(lower):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=lower)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(corpus, trainers.WordPieceTrainer(vocab_size=sizes[0] + 200 * small, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
                                                            limit_alphabet=150 if small else 600, show_progress=False))
    c, s = t.token_to_id("[CLS]"), t.token_to_id("[SEP]")
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", c), ("[SEP]", s)])
    t.decoder = decoders.WordPiece()
    return t


def byte_bpe(prefix, trim):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    special = ["<s>", "<pad>", "</s>", "<unk>"] if trim else ["<|endoftext|>"]
    t.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=sizes[1], special_tokens=special, show_progress=False,
                                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.decoder = decoders.ByteLevel()
    if trim:
        t.add_special_tokens([AddedToken("<mask>", lstrip=True)])
        t.post_processor = processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")), trim_offsets=True, add_prefix_space=prefix)
    else:
        t.post_processor = processors.ByteLevel(trim_offsets=False)
    return t


def unigram(normalizer, scheme="always"):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    t.train_from_iterator(corpus[:1200], trainers.UnigramTrainer(vocab_size=sizes[2], special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>",
                                                          show_progress=False))
    t.add_tokens([AddedToken("New_Word", normalized=True), AddedToken("<mask>", rstrip=True, single_word=True, normalized=False)])
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", t.token_to_id("</s>"))])
    t.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return t


def sentencepiece():
    """A model of SentencePiece, whose normalizer is a precompiled charsmap."""
    import io

    import sentencepiece as spm
    from sentencepiece import sentencepiece_model_pb2 as pb
    b = io.BytesIO()
    spm.SentencePieceTrainer.train(sentence_iterator=iter(corpus[:1200]), model_writer=b, vocab_size=2000, model_type="unigram", minloglevel=2)
    m = pb.ModelProto()
    m.ParseFromString(b.getvalue())
    t = Tokenizer(models.Unigram([(p.piece, p.score) for p in m.pieces], 0))
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(m.normalizer_spec.precompiled_charsmap), normalizers.Replace(" ", "▁")])
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    return t


all = {"bert": lambda: bert(True), "gpt2": lambda: byte_bpe(False, False), "unigram": lambda: unigram(normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]))}
if not small:
    all |= {"bert-cased": lambda: bert(False), "roberta": lambda: byte_bpe(True, True), "sentencepiece": sentencepiece,
            "unigram-nfd": lambda: unigram(normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]), "first"),
            "unigram-nfc": lambda: unigram(normalizers.Sequence([normalizers.NFC(), normalizers.Strip(), normalizers.Replace("..", "…")]), "never"),
            "unigram-nfkd": lambda: unigram(normalizers.NFKD())}
os.makedirs(out, exist_ok=True)
random.seed(2)
texts = [line(i) for i in range(lines)]
for name, make in all.items():
    t = make()
    t.save(os.path.join(out, name + ".json"), pretty=False)
    with gzip.GzipFile(os.path.join(out, name + ".golden.gz"), "wb", mtime=0) as f:
        for i, s in enumerate(texts):
            pair = texts[(i * 7 + 1) % lines] if i % 5 == 4 else None
            e = t.encode(s) if pair is None else t.encode(s, pair)
            row = {"text": s, "ids": e.ids, "types": e.type_ids, "offsets": e.offsets, "decoded": t.decode(e.ids), "all": t.decode(e.ids, skip_special_tokens=False)}
            if pair is not None:
                row["pair"] = pair
            if i % 7 == 3:
                n = 3 + i % 11
                t.enable_truncation(n + t.num_special_tokens_to_add(pair is not None), strategy="longest_first", direction="left" if i % 2 else "right")
                e = t.encode(s) if pair is None else t.encode(s, pair)
                row["max"], row["cut"], row["left"] = n + t.num_special_tokens_to_add(pair is not None), e.ids, i % 2 == 1
                t.no_truncation()
            f.write((json.dumps(row) + "\n").encode())
