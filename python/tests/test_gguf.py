# SPDX-License-Identifier: Apache-2.0
"""Language models as GGUF files: one small file for each architecture, written here, against its
formulas in numpy (double), and against llama.cpp where its package (llama_cpp) is installed."""
import struct

import numpy as np
import pytest

import tacit

try:
    import llama_cpp
except ImportError:
    llama_cpp = None

WIDTH, HEADS, KV, DEPTH, FFN, WORDS, TOKENS, CONTEXT = 64, 4, 2, 16, 96, 40, 12, 64
U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5

# By architecture: `turn` is how pairs lie, `order` where norms are, the rest as named. `meta` is
# written below the architecture's name.
GEMMA = dict(turn="halves", act="gelu", root_width=True, order="both")
CASES = {
    "llama": dict(turn="pairs"),
    "llama with factors": dict(arch="llama", turn="pairs", factors=True, untied=False),
    "llama stretched": dict(arch="llama", turn="pairs", linear=4.0),
    "llama with yarn": dict(arch="llama", turn="pairs", yarn=(4.0, 16)),
    "llama in 16 bits": dict(arch="llama", turn="pairs", half=True),
    "arcee": dict(turn="pairs", act="relu2", gate=False),
    "chatglm": dict(turn="pairs", joined=True, qkv=True, bias=("attn_qkv",), rotated=8),
    "cohere2": dict(turn="pairs", layer=True, order="parallel", window=5, period=4, still=4, layers=5,
                    meta={"logit_scale": 0.25}, logits=0.25, untied=False),
    "command-r": dict(turn="pairs", layer=True, order="parallel", meta={"logit_scale": 0.0625},
                      logits=0.0625, untied=False),
    "ernie4_5": dict(turn="pairs"),
    "exaone": dict(turn="halves", factors=True),
    "falcon": dict(turn="halves", layer=True, norm_bias=True, act="gelu", gate=False, qkv=True, order="parallel"),
    "falcon with two norms": dict(arch="falcon", turn="halves", layer=True, norm_bias=True, act="gelu",
                                  gate=False, qkv=True, order="parallel", own_norm=True),
    "gemma": dict(turn="halves", act="gelu", root_width=True, untied=False, depth=24),
    "gemma2": dict(GEMMA, untied=False, depth=24, window=5, period=2, softcap=2.0, final=3.0,
                   meta={"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}),
    "gemma3": dict(GEMMA, untied=False, qk="head", window=5, period=6, layers=7, linear=8.0,
                   local_base=10000.0, base=1000000.0),
    "glm4": dict(turn="pairs", order="both", joined=True, rotated=8, bias=("attn_q", "attn_k", "attn_v")),
    "gpt2": dict(turn=None, layer=True, norm_bias=True, act="gelu", gate=False, qkv=True, kv=HEADS, untied=False,
                 bias=("attn_qkv", "attn_output", "ffn_up", "ffn_down")),
    "gptneox": dict(turn="halves", layer=True, norm_bias=True, act="gelu", gate=False, qkv=True, kv=HEADS,
                    rotated=4, order="parallel", second_norm=True, meta={"use_parallel_residual": True},
                    bias=("attn_qkv", "attn_output", "ffn_up", "ffn_down")),
    "gptneox in turn": dict(arch="gptneox", turn="halves", layer=True, norm_bias=True, act="gelu", gate=False,
                            qkv=True, kv=HEADS, rotated=4, meta={"use_parallel_residual": False},
                            bias=("attn_qkv", "attn_output", "ffn_up", "ffn_down")),
    "granite": dict(turn="pairs", embedding=12.0, residual=0.22, scores=0.015625, logits=1 / 8,
                    meta={"embedding_scale": 12.0, "residual_scale": 0.22, "attention.scale": 0.015625,
                          "logit_scale": 8.0}),
    "internlm2": dict(turn="pairs"),
    "minicpm": dict(turn="pairs", embedding=12.0, residual=0.25, logits=1 / 4,
                    meta={"embedding_scale": 12.0, "residual_scale": 0.25, "logit_scale": 4.0}),
    "nemotron": dict(turn="halves", layer=True, norm_bias=True, act="relu2", gate=False, rotated=8),
    "olmo2": dict(turn="halves", order="post", qk="all", kv=HEADS),
    "orion": dict(turn="halves", layer=True, norm_bias=True),
    "phi2": dict(turn="halves", layer=True, norm_bias=True, act="gelu", gate=False, rotated=8, order="parallel",
                 output_bias=True,
                 bias=("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down")),
    "phi3": dict(turn="halves", qkv=True, joined=True),
    "phi3 with two sets of factors": dict(arch="phi3", turn="halves", qkv=True, joined=True, short_factors=True,
                                          magnitude=1.19),
    "qwen2": dict(turn="halves", bias=("attn_q", "attn_k", "attn_v"), untied=False),
    "qwen3": dict(turn="halves", qk="head", depth=24),
    "smollm3": dict(turn="pairs", still=4, layers=4, untied=False),
    "stablelm": dict(turn="halves", layer=True, norm_bias=True, rotated=4, bias=("attn_q", "attn_k", "attn_v")),
    "starcoder": dict(turn=None, layer=True, norm_bias=True, act="gelu", gate=False, qkv=True, kv=1,
                      bias=("attn_qkv", "attn_output", "ffn_up", "ffn_down")),
    "starcoder2": dict(turn="halves", layer=True, norm_bias=True, act="gelu", gate=False,
                       bias=("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down")),
    "xverse": dict(turn="pairs"),
}
DEFAULTS = dict(act="silu", order="pre", gate=True, layers=2, kv=KV, depth=DEPTH, base=10000.0, embedding=1.0,
                residual=1.0, logits=1.0, untied=True, bias=(), meta={}, magnitude=1.0)


class Case:
    def __init__(self, name):
        self.__dict__.update(DEFAULTS, name=name, arch=name)
        self.__dict__.update(CASES[name])
        self.rotated = self.__dict__.get("rotated", self.depth)

    def __getattr__(self, name):  # what a case does not name it does not have
        return None


# --- files ---------------------------------------------------------------------------------------


def text(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(v):
    """A metadata value with its type: by what it is in Python."""
    if isinstance(v, bool):
        return struct.pack("<IB", BOOL, v)
    if isinstance(v, int):
        return struct.pack("<II", U32, v)
    if isinstance(v, float):
        return struct.pack("<If", F32, v)
    if isinstance(v, str):
        return struct.pack("<I", STRING) + text(v)
    if isinstance(v[0], str):
        return struct.pack("<IIQ", ARRAY, STRING, len(v)) + b"".join(map(text, v))
    kind, code = (I32, "i") if isinstance(v[0], int) else (F32, "f")
    return struct.pack(f"<IIQ{len(v)}{code}", ARRAY, kind, len(v), *v)


def write(path, pairs, tensors):
    """`tensors`: arrays of f32 or f16, whose axes a file counts from the last."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(pairs))
    head += b"".join(text(k) + value(v) for k, v in pairs.items())
    data = b""
    for name, a in tensors.items():
        head += text(name) + struct.pack(f"<I{a.ndim}Q", a.ndim, *a.shape[::-1])
        head += struct.pack("<IQ", int(a.dtype == np.float16), len(data))
        data += a.tobytes() + b"\0" * (-a.nbytes % 32)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)


def metadata(c):
    a = c.arch
    pairs = {"general.architecture": a, f"{a}.block_count": c.layers, f"{a}.embedding_length": WIDTH,
             f"{a}.feed_forward_length": FFN, f"{a}.context_length": CONTEXT, f"{a}.vocab_size": WORDS,
             f"{a}.attention.head_count": HEADS, f"{a}.attention.head_count_kv": c.kv,
             f"{a}.attention.key_length": c.depth, f"{a}.attention.value_length": c.depth,
             f"{a}.rope.dimension_count": c.rotated, f"{a}.rope.freq_base": c.base,
             f"{a}.attention.layer_norm_epsilon" if c.layer else
             f"{a}.attention.layer_norm_rms_epsilon": 1e-5,
             "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": [f"w{i}" for i in range(WORDS)],
             "tokenizer.ggml.scores": [0.0] * WORDS, "tokenizer.ggml.token_type": [1] * WORDS,
             "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
             "tokenizer.ggml.unknown_token_id": 0}
    if c.window:
        pairs[f"{a}.attention.sliding_window"] = c.window
    if c.linear:
        pairs.update({f"{a}.rope.scaling.type": "linear", f"{a}.rope.scaling.factor": c.linear})
    if c.yarn:
        pairs.update({f"{a}.rope.scaling.type": "yarn", f"{a}.rope.scaling.factor": c.yarn[0],
                      f"{a}.rope.scaling.original_context_length": c.yarn[1]})
    if c.short_factors:
        pairs.update({f"{a}.rope.scaling.attn_factor": c.magnitude,
                      f"{a}.rope.scaling.original_context_length": 256})
    pairs.update({f"{a}.{k}": v for k, v in c.meta.items()})
    return pairs


def weights(c):
    r = np.random.default_rng(7)
    t = {}

    def matrix(name, rows, columns):
        t[name + ".weight"] = r.normal(0, 0.8 / np.sqrt(columns), (rows, columns))
        if name.split(".")[-1] in c.bias:
            t[name + ".bias"] = r.normal(0, 0.3, rows)

    def norm(name, n=WIDTH, bias=None):
        t[name + ".weight"] = r.uniform(0.7, 1.3, n)
        if c.norm_bias if bias is None else bias:
            t[name + ".bias"] = r.normal(0, 0.3, n)

    t["token_embd.weight"] = r.normal(0, 1, (WORDS, WIDTH))
    if c.turn is None:
        t["position_embd.weight"] = r.normal(0, 1, (CONTEXT, WIDTH))
    wide, narrow = HEADS * c.depth, c.kv * c.depth
    for i in range(c.layers):
        b = f"blk.{i}."
        if c.order != "post":
            norm(b + "attn_norm")
        if c.own_norm:
            norm(b + "attn_norm_2")
        if c.order in ("pre", "both") or c.second_norm:
            norm(b + "ffn_norm")
        if c.order in ("both", "post"):
            norm(b + "post_attention_norm")
            norm(b + "post_ffw_norm")
        if c.qkv:
            matrix(b + "attn_qkv", wide + 2 * narrow, WIDTH)
        else:
            matrix(b + "attn_q", wide, WIDTH)
            matrix(b + "attn_k", narrow, WIDTH)
            matrix(b + "attn_v", narrow, WIDTH)
        if c.qk:
            norm(b + "attn_q_norm", c.depth if c.qk == "head" else wide, False)
            norm(b + "attn_k_norm", c.depth if c.qk == "head" else narrow, False)
        matrix(b + "attn_output", WIDTH, wide)
        if c.gate and not c.joined:
            matrix(b + "ffn_gate", FFN, WIDTH)
        matrix(b + "ffn_up", FFN * 2 if c.joined else FFN, WIDTH)
        matrix(b + "ffn_down", WIDTH, FFN)
    norm("output_norm")
    if c.untied:
        matrix("output", WORDS, WIDTH)
    if c.output_bias:
        t["output.bias"] = r.normal(0, 0.3, WORDS)
    if c.factors:
        t["rope_freqs.weight"] = np.linspace(1, 8, c.rotated // 2)
    if c.short_factors:
        t["rope_factors_short.weight"] = np.linspace(1, 2, c.rotated // 2)
        t["rope_factors_long.weight"] = np.linspace(1, 30, c.rotated // 2)
    return {k: v.astype(np.float16 if c.half and v.ndim == 2 else np.float32) for k, v in t.items()}


# --- the formulas --------------------------------------------------------------------------------


def normed(c, x, t, name, n=WIDTH):
    if c.layer:
        x = x - x.mean(-1, keepdims=True)
    y = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * t[name + ".weight"]
    return y + t.get(name + ".bias", 0)


def linear(x, t, name):
    return x @ t[name + ".weight"].T + t.get(name + ".bias", 0)


def speeds(c, t, local):
    pairs = np.arange(c.rotated // 2)
    if local and c.local_base:
        return c.local_base ** (-2 * pairs / c.rotated), 1.0
    s = c.base ** (-2 * pairs / c.rotated)
    s = s / t.get("rope_freqs.weight", t.get("rope_factors_short.weight", 1))
    if c.linear:
        s = s / c.linear
    if not c.yarn:
        return s, c.magnitude
    factor, trained = c.yarn

    def pair_with(turns):
        return c.rotated * np.log(trained / (turns * 2 * np.pi)) / (2 * np.log(c.base))

    low, high = max(0, np.floor(pair_with(32))), min(c.rotated - 1, np.ceil(pair_with(1)))
    slow = np.clip((pairs - low) / max(0.001, high - low), 0, 1)
    return s * (1 - slow) + s / factor * slow, 1 + 0.1 * np.log(factor)


def turned(c, x, t, layer, local):  # [heads, tokens, depth]
    if c.turn is None or (c.still and (layer + 1) % c.still == 0):
        return x
    s, magnitude = speeds(c, t, local)
    a = np.arange(x.shape[1])[:, None] * s
    cos, sin = np.cos(a) * magnitude, np.sin(a) * magnitude
    y, n = x.copy(), c.rotated
    first = np.s_[..., 0:n:2] if c.turn == "pairs" else np.s_[..., : n // 2]
    second = np.s_[..., 1:n:2] if c.turn == "pairs" else np.s_[..., n // 2 : n]
    y[first] = x[first] * cos - x[second] * sin
    y[second] = x[first] * sin + x[second] * cos
    return y


def by_heads(x, heads):
    return x.reshape(len(x), heads, -1).swapaxes(0, 1)


def attend(c, h, t, i):
    b, wide, narrow = f"blk.{i}.", HEADS * c.depth, c.kv * c.depth
    if c.qkv:
        q, k, v = np.split(linear(h, t, b + "attn_qkv"), [wide, wide + narrow], -1)
    else:
        q, k, v = (linear(h, t, b + "attn_" + s) for s in "qkv")
    if c.qk == "all":
        q, k = normed(c, q, t, b + "attn_q_norm"), normed(c, k, t, b + "attn_k_norm")
    q, k, v = by_heads(q, HEADS), by_heads(k, c.kv), by_heads(v, c.kv)
    if c.qk == "head":
        q, k = normed(c, q, t, b + "attn_q_norm"), normed(c, k, t, b + "attn_k_norm")
    local = bool(c.window) and (i + 1) % c.period != 0
    q, k = turned(c, q, t, i, local), turned(c, k, t, i, local)
    k, v = np.repeat(k, HEADS // c.kv, 0), np.repeat(v, HEADS // c.kv, 0)
    s = q @ k.swapaxes(1, 2) * (c.scores or c.depth**-0.5)
    if c.softcap:
        s = c.softcap * np.tanh(s / c.softcap)
    at = np.arange(len(h))
    seen = at[None] <= at[:, None]
    if local:
        seen &= at[None] > at[:, None] - c.window
    s = np.where(seen, s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    y = p / p.sum(-1, keepdims=True) @ v
    return linear(y.swapaxes(0, 1).reshape(len(h), wide), t, b + "attn_output")


def act(c, x):
    if c.act == "silu":
        return x / (1 + np.exp(-x))
    if c.act == "relu2":
        return np.maximum(x, 0) ** 2
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def feed(c, h, t, i):
    up = linear(h, t, f"blk.{i}.ffn_up")
    if c.joined:
        gate, up = np.split(up, 2, -1)
    elif c.gate:
        gate = linear(h, t, f"blk.{i}.ffn_gate")
    hidden = act(c, gate) * up if c.joined or c.gate else act(c, up)
    return linear(hidden, t, f"blk.{i}.ffn_down")


def expected(c, t, tokens):
    t = {k: v.astype(float) for k, v in t.items()}
    x = t["token_embd.weight"][tokens] * (np.sqrt(WIDTH) if c.root_width else c.embedding)
    if c.turn is None:
        x = x + t["position_embd.weight"][: len(tokens)]
    for i in range(c.layers):
        b = f"blk.{i}."
        if c.order == "parallel":
            h = normed(c, x, t, b + "attn_norm")
            own = normed(c, x, t, b + "attn_norm_2") if c.own_norm else h
            fed = normed(c, x, t, b + "ffn_norm") if c.second_norm else h
            x = x + attend(c, own, t, i) + feed(c, fed, t, i)
            continue
        y = attend(c, x if c.order == "post" else normed(c, x, t, b + "attn_norm"), t, i)
        x = x + c.residual * (y if c.order == "pre" else normed(c, y, t, b + "post_attention_norm"))
        y = feed(c, x if c.order == "post" else normed(c, x, t, b + "ffn_norm"), t, i)
        x = x + c.residual * (y if c.order == "pre" else normed(c, y, t, b + "post_ffw_norm"))
    head = t["output.weight" if c.untied else "token_embd.weight"]
    y = (normed(c, x, t, "output_norm") @ head.T + t.get("output.bias", 0)) * c.logits
    return c.final * np.tanh(y / c.final) if c.final else y


# --- tests ---------------------------------------------------------------------------------------


def file_of(c, tmp_path, **changes):
    path, t = tmp_path / "model.gguf", weights(c)
    pairs = metadata(c)
    for key, v in changes.items():
        pairs[f"{c.arch}.{key}"] = v
    write(path, pairs, t)
    return path, t


def logits(path, tokens):
    session = tacit.load(path).compile(dims={"seq": len(tokens), "past": 0})
    feeds = {"input_ids": tokens[None], "position_ids": np.arange(len(tokens))[None]}
    for spec in session.inputs:
        if spec.name not in feeds:
            feeds[spec.name] = np.zeros(spec.shape, np.float32)
    outputs = session(feeds)
    return outputs[[spec.name for spec in session.outputs].index("logits")][0]


TEXT = np.random.default_rng(3).integers(3, WORDS, TOKENS)


@pytest.mark.parametrize("name", CASES)
def test_architecture(name, tmp_path):
    c = Case(name)
    path, t = file_of(c, tmp_path)
    want = expected(c, t, TEXT)
    np.testing.assert_allclose(logits(path, TEXT), want, atol=2e-4 * np.abs(want).max())


@pytest.mark.skipif(llama_cpp is None, reason="llama_cpp is not installed")
@pytest.mark.parametrize("name", CASES)
def test_formulas_are_those_of_llama_cpp(name, tmp_path):
    c = Case(name)
    path, t = file_of(c, tmp_path)
    peer = llama_cpp.Llama(str(path), n_ctx=CONTEXT, logits_all=True, verbose=False, type_k=0, type_v=0,
                           swa_full=True)
    peer.eval(TEXT.tolist())
    want = expected(c, t, TEXT)
    got = np.array(peer.scores[:TOKENS])
    np.testing.assert_allclose(got, want, atol=5e-3 * np.abs(want).max())


def refusal(c, tmp_path, extra=(), **changes):
    path, t = tmp_path / "model.gguf", weights(c)
    t.update(extra)
    write(path, {**metadata(c), **{f"{c.arch}.{k}": v for k, v in changes.items()}}, t)
    with pytest.raises(tacit.Error) as info:
        tacit.load(path)
    return str(info.value)


def test_what_is_not_understood_is_refused(tmp_path):
    c = Case("llama")
    sink = {"blk.0.attn_sinks.weight": np.zeros(HEADS, np.float32)}
    assert "blk.0.attn_sinks.weight" in refusal(c, tmp_path, sink)
    assert "experts" in refusal(c, tmp_path, expert_count=8)
    assert "'dynamic'" in refusal(c, tmp_path, **{"rope.scaling.type": "dynamic"})
    by_layer = refusal(c, tmp_path, **{"attention.head_count_kv": [2, 1]})
    assert "head_count_kv" in by_layer and "differs" in by_layer
    bias = {"blk.1.attn_norm.bias": np.zeros(WIDTH, np.float32)}
    assert "blk.1.attn_norm.bias" in refusal(c, tmp_path, bias)
    assert "logit_scale" not in refusal(c, tmp_path, logit_scale=float("nan"))


def test_counts_by_layer_that_agree(tmp_path):
    c = Case("llama")
    path, t = file_of(c, tmp_path, **{"attention.head_count_kv": [KV, KV]})
    want = expected(c, t, TEXT)
    np.testing.assert_allclose(logits(path, TEXT), want, atol=2e-4 * np.abs(want).max())
