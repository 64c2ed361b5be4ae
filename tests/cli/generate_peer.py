# SPDX-License-Identifier: Apache-2.0
"""For test-generate: small GGUF language models, and what they say by the plainest of loops. Python
alone, without packages.

    make FILE [KEY=JSON]...       a llama of random weights over a vocabulary of bytes; a KEY is
                                  metadata, null leaves it out
    greedy TACIT FILE N ID...     the N likeliest tokens behind these, each by a run over all before
    memory LIMIT COMMAND...       fails if the command's peak of memory is more KiB; prints it
    blocked COMMAND...            Ctrl-C once its output waits for a reader; its exit code and messages
"""
import array
import fcntl
import json
import os
import pathlib
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

WIDTH, HEADS, KV, FFN, LAYERS = 32, 2, 1, 64, 2
U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5


def text(s):
    raw = s.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(v):
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
    return struct.pack(f"<IIQ{len(v)}i", ARRAY, I32, len(v), *v)


def vocabulary():
    shown = [b for b in range(256) if 33 <= b <= 126 or b >= 161 and b != 173]
    hidden = [b for b in range(256) if b not in shown]
    names = {b: chr(b) for b in shown} | {b: chr(256 + i) for i, b in enumerate(hidden)}
    tokens = [names[b] for b in range(256)] + ["th", "the", "Ġthe", "<|end|>", "<|user|>"]
    return {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [1] * 259 + [3, 3], "tokenizer.ggml.merges": ["t h", "th e", "Ġ the"],
            "tokenizer.ggml.eos_token_id": 259}


def make(path, changes):
    pairs = {"general.architecture": "llama", "llama.block_count": LAYERS, "llama.embedding_length": WIDTH,
             "llama.feed_forward_length": FFN, "llama.context_length": 64, "llama.attention.head_count": HEADS,
             "llama.attention.head_count_kv": KV, "llama.attention.layer_norm_rms_epsilon": 1e-5,
             "llama.rope.freq_base": 10000.0, **vocabulary()}
    for change in changes:
        key, _, v = change.partition("=")
        pairs[key] = json.loads(v)
    pairs = {k: v for k, v in pairs.items() if v is not None}
    words = pairs.pop("words", 261)
    depth = WIDTH // HEADS
    shapes = {"token_embd": (words, WIDTH), "output_norm": (WIDTH,), "output": (words, WIDTH)}
    for i in range(LAYERS):
        shapes.update({f"blk.{i}.{k}": v for k, v in {
            "attn_norm": (WIDTH,), "attn_q": (HEADS * depth, WIDTH), "attn_k": (KV * depth, WIDTH),
            "attn_v": (KV * depth, WIDTH), "attn_output": (WIDTH, HEADS * depth), "ffn_norm": (WIDTH,),
            "ffn_gate": (FFN, WIDTH), "ffn_up": (FFN, WIDTH), "ffn_down": (WIDTH, FFN)}.items()})
    r = random.Random(4)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(shapes), len(pairs))
    head += b"".join(text(k) + value(v) for k, v in pairs.items())
    data = b""
    for name, shape in shapes.items():
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        a = array.array("f", (r.gauss(0, 0.4) if len(shape) > 1 else r.uniform(0.8, 1.2) for _ in range(n)))
        head += text(name + ".weight") + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], 0, len(data))
        data += a.tobytes() + b"\0" * (-len(a.tobytes()) % 32)
    pathlib.Path(path).write_bytes(head + b"\0" * (-len(head) % 32) + data)


def npy(path, ids):
    head = f"{{'descr': '<i8', 'fortran_order': False, 'shape': (1, {len(ids)}), }}".ljust(117) + "\n"
    path.write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() +
                     array.array("q", ids).tobytes())


def greedy(tacit, model, n, ids):
    first = len(ids)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for _ in range(n):
            npy(folder / "ids.npy", ids)
            npy(folder / "at.npy", range(len(ids)))
            subprocess.run([tacit, "run", model, "--dim", "past=0", "--input", f"input_ids={folder}/ids.npy",
                            "--input", f"position_ids={folder}/at.npy", "--output", name],
                           check=True, stdout=subprocess.DEVNULL)
            raw = (folder / "logits.npy").read_bytes()
            logits = array.array("f", raw[10 + struct.unpack_from("<H", raw, 8)[0]:])
            last = logits[-(len(logits) // len(ids)):]
            ids = ids + [max(range(len(last)), key=lambda i: last[i])]
    print(",".join(map(str, ids[first:])))


def memory(limit, command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(peak)
    sys.exit(peak > limit)


def blocked(command):
    out, end = os.pipe()
    fcntl.fcntl(end, 1031, 4096)  # F_SETPIPE_SZ: a page, which is soon full
    process = subprocess.Popen(command, stdout=end, stderr=subprocess.PIPE, text=True)
    os.close(end)

    def waiting():
        return struct.unpack("i", fcntl.ioctl(out, termios.FIONREAD, b"    "))[0]

    while process.poll() is None and waiting() < 4000:
        time.sleep(0.05)
    time.sleep(0.5)  # so that it is waiting
    process.send_signal(signal.SIGINT)
    try:
        print(process.communicate(timeout=60)[1])
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        print("it goes on waiting")
    sys.exit(process.returncode)


what, arguments = sys.argv[1], sys.argv[2:]
if what == "make":
    make(arguments[0], arguments[1:])
elif what == "greedy":
    greedy(arguments[0], arguments[1], int(arguments[2]), [int(v) for v in arguments[3:]])
elif what == "blocked":
    blocked(arguments)
else:
    memory(int(arguments[0]), arguments[1:])
