# SPDX-License-Identifier: Apache-2.0
"""Tokenizers of GGUF files: small vocabularies, written here; against the package `tokenizers` where
it is installed, whose own trainer makes them."""

import json
import pathlib
import random
import threading

import numpy as np
import pytest
from test_gguf import write

import tacit

try:
    import tokenizers
    from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
except ImportError:
    tokenizers = None

NORMAL, UNKNOWN, CONTROL, USER, BYTE = 1, 2, 3, 4, 6
needs_peer = pytest.mark.skipif(
    tokenizers is None, reason="NOT TESTED: against tokenizers (not installed here)"
)


def save(path, model, tokens, kinds, architecture="llama", **more):
    pairs = {"model": model, "tokens": tokens, "token_type": kinds, **more}
    pairs = {f"tokenizer.ggml.{k}": v for k, v in pairs.items()}
    write(path, {"general.architecture": architecture, **pairs}, {})
    return path


@pytest.fixture
def small(tmp_path):
    tokens = ["<unk>", "<s>", "</s>", "▁", "a", "b", "▁a", "<0xC3>", "<0xA9>"]
    kinds = [UNKNOWN, CONTROL, CONTROL, NORMAL, NORMAL, NORMAL, NORMAL, BYTE, BYTE]
    scores = [0.0, 0.0, 0.0, -3.0, -4.0, -5.0, -1.0, 0.0, 0.0]
    return save(tmp_path / "small.gguf", "llama", tokens, kinds, scores=scores)


# --- the class -----------------------------------------------------------------------------------


def test_text_to_tokens_and_back(small):
    t = tacit.Tokenizer(small)
    assert t.size == 9
    assert t.encode("ab") == [1, 6, 5]
    assert t.encode("ab", bare=True) == [6, 5]
    assert t.encode("") == [1] and t.encode("", bare=True) == []
    assert t.encode("aé", bare=True) == [6, 7, 8]
    assert t.encode("</s>", special=True) == [1, 2]
    assert 2 not in t.encode("</s>")
    assert t.encode(text="a", special=True, bare=True) == [6]
    assert t.decode([1, 6, 7, 8, 2]) == " aé"
    assert t.decode([6, 7]) == " a\ufffd"
    assert t.decode(np.array([6, 5])) == " ab" and t.decode([]) == ""
    assert t.decode([-1, 10**6, 5]) == "b"  # what is no token has no text
    assert t.piece(7) == b"\xc3" and t.piece(np.int64(3)) == b" " and t.piece(1) == b""
    assert t.ends(2) is True and t.ends(1) is False and t.ends(-1) is False


def test_texts_that_go_on(tmp_path):
    path = save(tmp_path / "ends.gguf", "llama", ["<unk>", "<s>", "</s>", "a"], [UNKNOWN, CONTROL, CONTROL, NORMAL],
                scores=[0.0] * 4, add_eos_token=True, add_space_prefix=False)  # fmt: skip
    t = tacit.Tokenizer(path)
    assert t.encode("a") == [1, 3, 2] and t.encode("a", open=True) == [1, 3]
    assert t.encode("a", False, True, True) == t.encode("a", bare=True) == [3]
    assert t.encode("a</s>", special=True, open=True) == [1, 3, 2]


def test_more_tokens_than_expected(small):
    t = tacit.Tokenizer(str(small))
    assert t.encode("b" * 5000, bare=True) == [3] + [5] * 5000
    assert t.encode("b\0b", bare=True) == [3, 5, 0, 5]


def test_numbers_that_change(small):
    class Odd:
        asked = 0

        def __index__(self):
            self.asked += 1
            return 5 if self.asked == 1 else 6

    assert tacit.Tokenizer(small).decode([Odd(), Odd()]) == "bb"


def test_errors(small, tmp_path):
    with pytest.raises(tacit.Error, match="cannot open") as e:
        tacit.Tokenizer(tmp_path / "none.gguf")
    assert e.value.status == "ERR_IO"
    with pytest.raises(tacit.Error, match="no tokenizer"):
        write(tmp_path / "none.gguf", {"general.architecture": "llama"}, {})
        tacit.Tokenizer(tmp_path / "none.gguf")
    for bad in ((), (1,), (small, 2)):
        with pytest.raises(TypeError):
            tacit.Tokenizer(*bad)
    t = tacit.Tokenizer(small)
    for use in (lambda: t.encode(b"a"), lambda: t.encode(), lambda: t.decode(3), lambda: t.decode(["a"]),
                lambda: t.decode([1.5]), lambda: t.ends("a"), lambda: t.piece(None)):  # fmt: skip
        with pytest.raises(TypeError):
            use()
    with pytest.raises(UnicodeEncodeError):
        t.encode("\ud800")
    with pytest.raises(OverflowError):
        t.decode([2**70])
    only_a = tacit.Tokenizer(save(tmp_path / "a.gguf", "gpt2", ["a"], [NORMAL], pre="gpt-2", merges=["a a"]))
    with pytest.raises(tacit.Error, match="no token for byte 0x62"):
        only_a.encode("ab")


def test_threads_share_one(small):
    t = tacit.Tokenizer(small)
    want, wrong = t.encode("ab a" * 500), []

    def use():
        for _ in range(20):
            if t.encode("ab a" * 500) != want:
                wrong.append(1)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# --- against tokenizers --------------------------------------------------------------------------

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
WAYS = {"gpt-2": None, "starcoder": None, "llama-bpe": LLAMA3, "qwen2": LLAMA3.replace("{1,3}", "")}
PIECES = [
    " ", " ", " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "'", "'s", "'S", "'ll", "'VE", "'ſ", "'t",
    "the", "The", "cat", "tokens", "él", "naïve", "straße", "Ǆ", "日本", "テキスト", "ไทย", "й", "ア", "e\u0301",
    "1", "23", "4567", "½", "²", "٣", "Ⅷ", "一", ".", ",", "!!", "(", ")", "->", "==", "_", "€", "😀", "👩‍👩‍👧", "\0",
    "\x1c", "\u200b", "\ufeff", "\u2028", "a", "b", "z", "<|end|>", "<user>",
]  # fmt: skip
CORPUS = [
    "the cat sat on the mat, and the cat's tokens were the tokens of the mat",
    "we'll see what they've got: 1234 tokens, 56 cats and 789 mats in 2024",
    "naïve él straße 日本日本 テキスト\n\n    return the_token(cat) == 12345\n",
    "THE CAT'S THE CAT AND WE'LL (they've said) the 'token' is 😀 😀 not € 20.00",
]


def texts(seed, count=400):
    r = random.Random(seed)
    own = pathlib.Path(__file__).read_text(encoding="utf-8")
    for _ in range(count):
        yield "".join(r.choice(PIECES) for _ in range(r.randint(0, 14)))
    for _ in range(20):
        at = r.randrange(len(own) - 300)
        yield own[at : at + r.randint(1, 300)]
    yield from CORPUS


def learnt(peer):
    """The peer's vocabulary by id, and its merges as two texts each."""
    model = json.loads(peer.to_str())["model"]
    merges = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]]
    return [t for t, _ in sorted(model["vocab"].items(), key=lambda p: p[1])], merges


def compare(t, peer, seed, before=""):
    for text in texts(seed):
        want = peer.encode(text, add_special_tokens=False).ids
        got = t.encode(text, special=True, bare=True)
        assert got == want, (text, [t.piece(i) for i in got], peer.encode(text).tokens)
        peer.encode_special_tokens = True
        plain = t.encode(text, bare=True)
        assert plain == peer.encode(text, add_special_tokens=False).ids, text
        peer.encode_special_tokens = False
        # where "▁" stands for a space, it cannot stand for itself
        assert t.decode(plain) == (before + text.replace("▁", " ") if text and before else text)


@needs_peer
@pytest.mark.parametrize("way", WAYS)
def test_bytes_of_words(way, tmp_path):
    peer = tokenizers.Tokenizer(models.BPE(ignore_merges=way == "llama-bpe"))
    regex = WAYS[way]
    steps = [pre_tokenizers.Split(Regex(regex), "isolated")] if regex else []
    if way == "starcoder":
        steps = [pre_tokenizers.Digits(individual_digits=True)]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex is None))
    # learnt without words, so that there are merges across the ends of all kinds of them
    peer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=1500, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=["<|end|>"], show_progress=False,
    )  # fmt: skip
    peer.train_from_iterator((s.replace("<user>", "") for s in texts("learn", 3000)), trainer)
    peer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokens, merges = learnt(peer)
    assert len(merges) > 1000
    kinds = [CONTROL] + [NORMAL] * (len(tokens) - 1)
    peer.add_tokens([tokenizers.AddedToken("<user>", normalized=False)])
    path = save(
        tmp_path / "bytes.gguf", "gpt2", [*tokens, "<user>"], [*kinds, USER], pre=way,
        merges=[" ".join(m) for m in merges],
    )  # fmt: skip
    t = tacit.Tokenizer(path)
    compare(t, peer, way)
    peer.decoder = decoders.ByteLevel()
    for text in CORPUS:
        ids = t.encode(text, bare=True)
        assert t.decode(ids) == peer.decode(ids) == text


@needs_peer
@pytest.mark.parametrize("architecture", ["llama", "phi3"])
def test_characters_by_score(architecture, tmp_path):
    prepared = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    first = tokenizers.Tokenizer(models.BPE())
    first.normalizer = normalizers.Sequence(prepared)
    first.train_from_iterator(CORPUS * 3, trainers.BpeTrainer(vocab_size=300, show_progress=False))
    pieces, _ = learnt(first)
    heads = ["<unk>", "<|end|>", *(f"<0x{b:02X}>" for b in range(256))]
    tokens = heads + pieces
    kinds = [UNKNOWN, CONTROL] + [BYTE] * 256 + [NORMAL] * len(pieces)
    scores = [0.0] * len(heads) + [-float(i) for i in range(len(pieces))]
    # every pair that makes a token may become it, as where a vocabulary has scores instead of rules
    known = set(pieces)
    merges = [(p[:i], p[i:]) for p in pieces for i in range(1, len(p)) if p[:i] in known and p[i:] in known]
    vocabulary = {p: i for i, p in enumerate(tokens)}
    peer = tokenizers.Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    peer.normalizer = normalizers.Sequence(prepared)
    strips = {"<unk>": False, "<|end|>": architecture == "phi3"}
    named = [tokenizers.AddedToken(n, special=True, normalized=False, rstrip=s) for n, s in strips.items()]
    peer.add_special_tokens(named)
    path = save(tmp_path / "scores.gguf", "llama", tokens, kinds, architecture, scores=scores)
    compare(tacit.Tokenizer(path), peer, "scores", before=" ")
