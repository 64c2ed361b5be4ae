# SPDX-License-Identifier: Apache-2.0
"""The networks of bench_train in PyTorch. Says "ready NET" for each network named, then answers
every line "NET N" with the milliseconds of N training steps (AdamW, batch 32), one number a line.
Usage: train_torch.py THREADS NET..."""
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

BATCH, TOKENS, WIDTH, HEADS, WORDS = 32, 64, 256, 4, 64


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        y = self.norm1(x)
        q, k, v = (p(y).view(BATCH, TOKENS, HEADS, WIDTH // HEADS).transpose(1, 2) for p in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(BATCH, TOKENS, WIDTH)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.Sequential(Block(), Block())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, x):
        return self.head(self.norm(self.layers(self.patch(x)))).reshape(BATCH * TOKENS, WORDS)


def convnet():
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(384, 64), nn.ReLU(), nn.Linear(64, 10))


def make(name):
    torch.manual_seed(1)
    if name == "convnet":
        net, x, y = convnet(), torch.randn(BATCH, 1, 16, 16), torch.randint(10, (BATCH,))
    else:
        net, x, y = Transformer(), torch.randn(BATCH, TOKENS, WIDTH), torch.randint(WORDS, (BATCH * TOKENS,))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def main():
    torch.set_num_threads(int(sys.argv[1]))
    steps = {}
    for name in sys.argv[2:]:
        steps[name] = make(name)
        for _ in range(3):
            steps[name]()
        print("ready", name, flush=True)
    for line in sys.stdin:
        name, count = line.split()
        start = time.perf_counter()
        for _ in range(int(count)):
            steps[name]()
        print((time.perf_counter() - start) * 1e3, flush=True)


main()
