# SPDX-License-Identifier: Apache-2.0
"""torch modules through torch.export, against torch. Architectures are built from their configs,
with seeded weights. Needs torch 2.1 or later; says so where it is not there."""

import warnings

import numpy as np
import pytest

import tacit

torch = pytest.importorskip("torch", reason="NOT TESTED: from_torch (torch is not installed here)")
F = torch.nn.functional
warnings.simplefilter("ignore")


def check(module, inputs, dims=None, others=(), rtol=1e-4, **options):
    """Tacit's results for the example and for other inputs are torch's."""
    torch.manual_seed(0)
    module.eval()
    model = tacit.from_torch(module, inputs, **options)
    for given, sizes in [(inputs, dims), *others]:
        with torch.no_grad():
            expected = module(*given)
        if isinstance(expected, dict):
            expected = [v for v in expected.values() if isinstance(v, torch.Tensor)]
        expected = expected if isinstance(expected, (list, tuple)) else [expected]
        results = tacit.compile(model, dims=sizes)(*given)
        results = results if isinstance(results, tuple) else [results]
        assert len(results) == len(expected)
        for y, e in zip(results, expected):
            e = e.numpy()
            assert y.dtype == e.dtype and y.shape == e.shape
            scale = np.abs(e).max() if e.size else 1
            np.testing.assert_allclose(y, e, rtol=rtol, atol=rtol * scale)
    return model


class Function(torch.nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, *args):
        return self.f(*args)


A = torch.linspace(-2, 3, 24).reshape(2, 3, 4)
P = A.abs() + 0.1
I = torch.tensor([[2, 0, 1], [1, 1, 0]])
FUNCTIONS = {
    "arithmetic": (lambda a, b: (a + 2 * b - 1) / b, A, P),
    "alpha": (lambda a, b: torch.add(a, b, alpha=3) - torch.sub(a, b, alpha=2), A, P),
    "rsub": (lambda a: 1 - a, A),
    "promotion": (lambda a, i: a[:, :, :3] * i.unsqueeze(1) + (i / 2).unsqueeze(1), A, I),
    "floor_divide": (lambda i: (i - 1) // 2, I),
    "division_modes": (lambda a, b: (torch.div(a, b, rounding_mode="floor"), torch.div(a, b, rounding_mode="trunc")), A, P),
    "remainder": (lambda a, i: (a % 2, (i - 1) % 2), A, I),
    "pow": (lambda a: a**2 + a.abs() ** 0.5, A),
    "unary": (lambda a: torch.stack([a.exp(), a.neg(), a.abs(), a.sin(), a.cos(), a.tanh(), a.sigmoid(), a.erf(), a.floor(), a.ceil(), a.sign(), a.round()]), A),
    "positive": (lambda a: torch.stack([a.log(), a.sqrt(), a.rsqrt(), a.reciprocal()], -1), P),
    "activations": (lambda a: torch.cat([F.relu(a), F.gelu(a), F.gelu(a, approximate="tanh"), F.silu(a), F.relu6(a), F.hardtanh(a), F.hardswish(a), F.hardsigmoid(a), F.leaky_relu(a, 0.2), F.elu(a), F.mish(a)]), A),
    "clamp": (lambda a: (a.clamp(-1, 1), a.clamp(min=0), a.clamp(max=0)), A),
    "compare": (lambda a, b: (a < b, a <= 1, a > b, a >= 0, a == b, a != 0), A, P),
    "compare_mixed": (lambda i: (i < 1.5, i == 1), I),
    "logic": (lambda a: ((a > 0) & (a < 2) | ~(a > 1), torch.logical_not(a > 0)), A),
    "where": (lambda a, b: (torch.where(a > 0, a, b), torch.where(a > 0, a, 0.0), a.masked_fill(a > 1, -1.0)), A, P),
    "tri": (lambda a: (a.tril(), a.triu(1)), A),
    "shapes": (lambda a: (a.view(6, 4), a.reshape(-1), a.flatten(1), a.flatten(0, 1), a.unsqueeze(-1), a.unsqueeze(1).squeeze(1), a.unflatten(2, (2, 2))), A),
    "transposes": (lambda a: (a.permute(2, 0, 1), a.transpose(0, -1), a[0].t()), A),
    "expand": (lambda a: (a.unsqueeze(1).expand(-1, 5, -1, -1), a.repeat(2, 1, 3)), A),
    "slices": (lambda a: (a[:, 1:], a[..., ::2], a[1], a[:, -1]), A),
    "joins": (lambda a: (torch.cat([a, a], 1), torch.stack([a, a], -1)), A),
    "splits": (lambda a: (*a.split(2, 2), *a.chunk(3, 1), *a.split([1, 3], -1), *a.unbind(1)), A),
    "indexing": (lambda a, i: (a[i[0]], a[i, i], F.embedding(i, a[0]), a.index_select(1, i[0]), torch.gather(a[:, :, 0], 1, i)), torch.cat([A, A]), I),
    "pad": (lambda a: (F.pad(a, (1, 2)), F.pad(a, (1, 1), value=3.0)), A),
    "making": (lambda a: (a + torch.ones(4) + torch.zeros(2, 1, 1) + torch.full((3, 1), 2.0), torch.arange(5), torch.arange(1, 7, 2), torch.zeros_like(a), torch.full_like(a, 3.0)), A),
    "casts": (lambda a: (a.to(torch.int64), a.double(), (a > 0).float()), A),
    "reduce": (lambda a: (a.sum(), a.sum(1), a.mean(-1, keepdim=True), a.mean((0, 2)), a.amax(1), a.amin(-1), (a > 2).any(), (a > -3).all(1), a.argmax(-1), a.argmin(1)), A),
    "cumulative": (lambda a, i: (a.cumsum(1), i.cumsum(-1), torch.diff(a), (a > 0).cumsum(0)), A, I),
    "softmax": (lambda a: (a.softmax(-1), a.log_softmax(1)), A),
    "matmul": (lambda a, b: (a @ b.transpose(1, 2), torch.bmm(a, b.transpose(1, 2)), a[0] @ b[0].t(), torch.addmm(b[0], b[0][:, :3], b[0], beta=2, alpha=0.5)), A, P),
    "norms": (lambda a: (F.layer_norm(a, (4,)), F.layer_norm(a, (3, 4)), F.group_norm(a, 3), F.rms_norm(a, (4,))), A),
    "pools": (lambda a: (F.max_pool2d(a, 2, 1), F.avg_pool2d(a, 2), F.adaptive_avg_pool2d(a, 1), F.adaptive_avg_pool2d(a, 2)), torch.rand(1, 2, 4, 4)),
    "convolutions": (lambda a: (F.conv2d(a, torch.ones(4, 1, 3, 3), padding=1, groups=2), F.conv2d(a, torch.ones(1, 2, 2, 3), torch.ones(1), stride=2, dilation=1), F.conv2d(a, torch.ones(1, 2, 3, 3), padding="same"), F.conv1d(a[0], torch.ones(3, 4, 2))), torch.rand(1, 2, 4, 4)),
    "in_place": (lambda a: F.relu(a * 2, inplace=True).add_(1).mul_(3), A),
    "variance": (lambda a: (a.var(-1), a.std((0, 1), correction=0), torch.log1p(a.abs())), A),
    "decomposed": (lambda a: (torch.addcmul(a, a, a, value=2), F.logsigmoid(a)), A),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    function, *inputs = FUNCTIONS[name]
    check(Function(function), tuple(inputs))


def heads(*sizes):
    return torch.linspace(-1, 1, int(np.prod(sizes))).reshape(sizes).sin()


def by_softmax(q, k, v, mask):
    return ((q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5 + mask).softmax(-1) @ v


def by_hand(q, k, v, mask):
    scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5 + mask
    e = (scores - scores.amax(-1, keepdim=True)).exp()
    return (e / e.sum(-1, keepdim=True)) @ v


def by_sdpa(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@pytest.mark.parametrize("spelling", [by_sdpa, by_softmax, by_hand])
def test_attention_however_it_is_spelled(spelling):
    q, k, v = heads(2, 3, 5, 8), heads(2, 3, 5, 8).cos(), heads(2, 3, 5, 8) * 2
    mask = torch.full((5, 5), -1e9).triu(1)
    check(Function(spelling), (q, k, v, mask))


def test_attention_forms():
    q, k, v = heads(2, 3, 5, 8), heads(2, 3, 5, 8).cos(), heads(2, 3, 5, 8) * 2
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    sdpa = F.scaled_dot_product_attention
    check(
        Function(
            lambda q, k, v, m: (
                sdpa(q, k, v),
                sdpa(q, k, v, is_causal=True),
                sdpa(q, k, v, attn_mask=m, scale=0.3),
                sdpa(q[0], k[0], v[0]),
            )
        ),
        (q, k, v, mask),
    )


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x).softmax(-1)


def test_dynamic_sizes():
    batch = torch.export.Dim("batch", min=1, max=64)
    model = check(
        Small(), (torch.rand(2, 4),), {"batch": 2}, [((torch.rand(7, 4),), {"batch": 7})],
        dynamic_shapes=({0: batch},),
    )  # fmt: skip
    assert model.symbols == ["batch"]

    def reshaping(x):
        b, s, _ = x.shape
        y = x.view(b, s, 2, 2).transpose(1, 2) + torch.arange(s).view(1, 1, s, 1)
        return y.reshape(b * 2, s, 2).expand(b * 2, s, 2), torch.zeros(b, s + 1)

    seq = torch.export.Dim("seq", min=2, max=64)
    check(
        Function(reshaping), (torch.rand(2, 5, 4),), {"batch": 2, "seq": 5},
        [((torch.rand(3, 7, 4),), {"batch": 3, "seq": 7})],
        dynamic_shapes=(({0: batch, 1: seq},),),
    )  # fmt: skip


def test_parameters_are_shared():
    module = Small()
    model = tacit.from_torch(module, (torch.rand(2, 4),))
    with torch.no_grad():
        module.linear.weight.mul_(-3)
    x = torch.rand(2, 4)
    y = tacit.compile(model)(x)
    del module.linear.weight
    np.testing.assert_allclose(tacit.compile(model)(x), y)
    y2 = tacit.compile(tacit.from_torch(Small(), (x,)))(x)
    assert not np.allclose(y, y2)


def test_shared_parameters_show_in_results():
    module = Small()
    x = torch.rand(2, 4)
    model = tacit.from_torch(module, (x,))
    with torch.no_grad():
        module.linear.weight.mul_(-3)
        expected = module(x).numpy()
    np.testing.assert_allclose(tacit.compile(model)(x), expected, rtol=1e-5)


def test_tensors_are_not_copied():
    """torch tensors in and out: the same memory on both sides."""
    g = tacit.Graph()
    x = g.input("x", "f32", (64, 64))
    g.output("y", x * 2.0)
    session = tacit.compile(g, strict=True)
    t = torch.rand(64, 64)
    assert tacit._arrays.convert(t, "f32", "x", True).ctypes.data == t.data_ptr()
    y = session(t)
    shared = torch.from_dlpack(y)
    assert shared.data_ptr() == y.ctypes.data and torch.equal(shared, t * 2)
    out = torch.zeros(64, 64)
    assert session(t, out=out) is out and torch.equal(out, t * 2)
    with pytest.raises(tacit.Error, match="strict"):
        session(t.t())
    with pytest.raises(tacit.Error, match="not dense"):
        session(t, out=torch.zeros(64, 64).t())
    assert torch.equal(torch.from_dlpack(session(torch.nn.Parameter(t))), t * 2)
    half = torch.rand(4, 4).bfloat16()
    assert tacit._arrays.convert(half, "bf16", "x", True).ctypes.data == half.data_ptr()


def test_coverage_and_refusals():
    exported = torch.export.export(Function(torch.linalg.pinv), (torch.rand(3, 3),))
    rows = tacit.torch.coverage(exported)
    assert rows and all(r.count >= 1 and r.where for r in rows)
    with pytest.raises(tacit.Error, match="no handler for") as caught:
        tacit.from_torch(Function(torch.linalg.pinv), (torch.rand(3, 3),))
    assert caught.value.status == "ERR_UNSUPPORTED"
    assert tacit.torch.coverage(torch.export.export(Small(), (torch.rand(2, 4),))) == []

    def changes_a_view(x):
        y = x * 1
        y[0].add_(1)
        return y

    with pytest.raises(tacit.Error, match="view in place"):
        tacit.from_torch(Function(changes_a_view), (torch.rand(3, 3),))


@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v2"])
def test_torchvision(name):
    models = pytest.importorskip("torchvision", reason="NOT TESTED: torchvision models").models
    torch.manual_seed(0)
    module = getattr(models, name)(weights=None)
    check(module, (torch.rand(1, 3, 64, 64),), rtol=1e-3)


def hugging_face(name):
    t = pytest.importorskip("transformers", reason="NOT TESTED: Hugging Face models")
    torch.manual_seed(0)
    ids = torch.randint(0, 90, (2, 8))
    small = dict(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64,
    )  # fmt: skip
    if name == "gpt2":
        config = t.GPT2Config(vocab_size=100, n_positions=32, n_embd=32, n_layer=2, n_head=4)
        return t.GPT2LMHeadModel(config), ids
    if name == "bert":
        return t.BertModel(t.BertConfig(max_position_embeddings=32, **small)), ids
    if name == "llama":
        config = t.LlamaConfig(max_position_embeddings=32, num_key_value_heads=2, **small)
        return t.LlamaForCausalLM(config), ids
    if name == "t5":
        config = t.T5Config(vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
        return t.T5EncoderModel(config), ids
    del small["vocab_size"]
    config = t.ViTConfig(image_size=32, patch_size=8, **small)
    return t.ViTForImageClassification(config), torch.rand(2, 3, 32, 32)


@pytest.mark.parametrize("name", ["gpt2", "bert", "llama", "t5", "vit"])
def test_transformers(name):
    module, inputs = hugging_face(name)
    if hasattr(module.config, "use_cache"):
        module.config.use_cache = name == "gpt2"  # from_torch leaves the cache out by itself
    model = tacit.from_torch(module, (inputs,))
    module.config.use_cache = False
    with torch.no_grad():
        expected = next(iter(module.eval()(inputs).values())).numpy()
    results = tacit.compile(model)(inputs)
    y = results[0] if isinstance(results, tuple) else results
    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("name", ["gpt2", "bert", "llama"])
def test_transformers_with_dynamic_batch_and_sequence(name):
    module, ids = hugging_face(name)
    module.config.use_cache = False
    batch, seq = torch.export.Dim("batch", min=1, max=16), torch.export.Dim("seq", min=2, max=32)
    model = tacit.from_torch(module, (ids,), dynamic_shapes=({0: batch, 1: seq},))
    for sizes in ((2, 8), (3, 5)):
        ids = torch.randint(0, 90, sizes)
        with torch.no_grad():
            expected = next(iter(module.eval()(ids).values())).numpy()
        results = tacit.compile(model, dims=dict(zip(model.symbols, sizes)))(ids)
        y = results[0] if isinstance(results, tuple) else results
        np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


def test_gpt2_as_it_is_published():
    """The 124M architecture, straight from GPT2LMHeadModel: logits within 1e-3 of torch's."""
    t = pytest.importorskip("transformers", reason="NOT TESTED: Hugging Face models")
    torch.manual_seed(0)
    module = t.GPT2LMHeadModel(t.GPT2Config()).eval()
    ids = torch.randint(0, 50257, (1, 16))
    model = tacit.from_torch(module, (ids,))
    with torch.no_grad():
        expected = module(ids).logits.numpy()
    results = tacit.compile(model, exec="tasks")(ids)
    logits = results[0] if isinstance(results, tuple) else results
    assert logits.shape == (1, 16, 50257)
    assert np.abs(logits - expected).max() <= 1e-3 * np.abs(expected).max()
    np.testing.assert_array_equal(logits.argmax(-1), expected.argmax(-1))
