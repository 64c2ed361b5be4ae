# SPDX-License-Identifier: Apache-2.0
"""PyTorch behind the protocol of `tacit bench --serve`: the architecture NAME with key=value sizes
and random weights. Eager mode under inference_mode, oneDNN as built in, SDPA for attention, images
in channels_last: what its documentation recommends for a CPU. Usage: NAME THREADS [KEY=VALUE …]"""
import json
import resource
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

    def forward(self, x):
        x = F.relu(self.layers[0](x))
        x = F.relu(self.layers[1](x))
        return self.layers[2](x)


class Block(nn.Module):
    def __init__(self, width, heads, ffn, causal=True, post=False):
        super().__init__()
        self.heads, self.causal, self.post = heads, causal, post
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, ffn), nn.Linear(ffn, width)

    def mix(self, x):
        b, s, w = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(b, s, w))

    def forward(self, x):
        gelu = lambda v: F.gelu(v, approximate="none" if self.post else "tanh")
        if self.post:
            x = self.norm1(x + self.mix(x))
            return self.norm2(x + self.down(gelu(self.up(x))))
        x = x + self.mix(self.norm1(x))
        return x + self.down(gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, vocab, width, layers, heads, ffn, seq, post):
        super().__init__()
        self.token, self.position = nn.Embedding(vocab, width), nn.Embedding(seq, width)
        self.blocks = nn.Sequential(*(Block(width, heads, ffn, not post, post)
                                      for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = None if post else nn.Linear(width, vocab, bias=False)
        self.register_buffer("at", torch.arange(seq))

    def forward(self, ids):
        x = self.token(ids) + self.position(self.at[: ids.shape[1]])
        if self.head is None:
            return self.blocks(self.norm(x))
        return self.head(self.norm(self.blocks(x)))


def conv(i, o, k, s=1, groups=1, act=None):
    parts = [nn.Conv2d(i, o, k, s, k // 2, groups=groups)]  # the norm is folded: best case
    return nn.Sequential(*(parts + ([act] if act else [])))


class Bottleneck(nn.Module):
    def __init__(self, i, m, s):
        super().__init__()
        relu = nn.ReLU(inplace=True)
        self.body = nn.Sequential(conv(i, m, 1, act=relu), conv(m, m, 3, s, act=relu),
                                  conv(m, 4 * m, 1))
        self.side = conv(i, 4 * m, 1, s) if i != 4 * m else nn.Identity()

    def forward(self, x):
        return F.relu_(self.body(x) + self.side(x))


def resnet50():
    layers, i = [conv(3, 64, 7, 2, act=nn.ReLU(inplace=True)), nn.MaxPool2d(3, 2, 1)], 64
    for stage, depth in enumerate((3, 4, 6, 3)):
        for k in range(depth):
            layers.append(Bottleneck(i, 64 << stage, 2 if stage and k == 0 else 1))
            i = 256 << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class Inverted(nn.Module):
    def __init__(self, i, o, s, e):
        super().__init__()
        w, act = i * e, nn.ReLU6(inplace=True)
        parts = [conv(i, w, 1, act=act)] if e != 1 else []
        self.body = nn.Sequential(*parts, conv(w, w, 3, s, w, act), conv(w, o, 1))
        self.add = s == 1 and i == o

    def forward(self, x):
        return x + self.body(x) if self.add else self.body(x)


def mobilenetv2():
    layers, i = [conv(3, 32, 3, 2, act=nn.ReLU6(inplace=True))], 32
    for e, o, n, s in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                       (6, 160, 3, 2), (6, 320, 1, 1)):
        for k in range(n):
            layers.append(Inverted(i, o, 1 if k else s, e))
            i = o
    return nn.Sequential(*layers, conv(320, 1280, 1, act=nn.ReLU6(inplace=True)),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000))


def build(name, size):
    """The module's call and its arguments."""
    get = lambda key, default: int(size.get(key, default))
    if name == "mlp":
        return Mlp(get("width", 512)), (torch.randn(get("batch", 1), get("width", 512)),)
    if name == "block":
        w = get("hidden", 256)
        return (Block(w, get("heads", 4), 4 * w),
                (torch.randn(get("batch", 1), get("seq", 128), w),))
    if name.startswith("attention"):
        causal = name.endswith("causal")
        shape = (get("batch", 1), get("heads", 4), get("seq", 64), 64)
        return (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
                tuple(torch.randn(shape) for _ in range(3)))
    sizes = {"gpt2": (50257, 768, 12, 12, 3072, False), "bert": (30522, 768, 12, 12, 3072, True),
             "minilm": (30522, 384, 6, 12, 1536, True)}
    if name in sizes:
        vocab, w, layers, heads, ffn, post = sizes[name]
        seq = get("seq", 128)
        return (Transformer(vocab, w, layers, heads, ffn, seq, post),
                (torch.randint(0, 1000, (get("batch", 1), seq)),))
    nets = {"resnet50": resnet50, "mobilenetv2": mobilenetv2}
    image = torch.randn(1, 3, 224, 224).to(memory_format=torch.channels_last)
    return nets[name]().to(memory_format=torch.channels_last), (image,)


def main():
    torch.set_num_threads(int(sys.argv[2]))
    torch.manual_seed(1)
    call, args = build(sys.argv[1], dict(a.split("=") for a in sys.argv[3:]))
    if isinstance(call, nn.Module):
        call.eval()
    with torch.inference_mode():
        call(*args)
        print(json.dumps({"version": "torch " + torch.__version__.split("+")[0]}), flush=True)
        for line in sys.stdin:
            runs, times, clock = int(line.split()[1]), [], time.perf_counter_ns
            used = resource.getrusage(resource.RUSAGE_SELF)
            for _ in range(runs):
                start = clock()
                call(*args)
                times.append(clock() - start)
            now = resource.getrusage(resource.RUSAGE_SELF)
            cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
            print(json.dumps({"ns": times, "cpu_ns": cpu * 1e9}), flush=True)


main()
