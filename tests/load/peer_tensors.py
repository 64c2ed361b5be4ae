# SPDX-License-Identifier: Apache-2.0
"""NumPy as the peer of the npy and npz readers and writers.

peer_tensors.py make DIR: writes K.npy for every case, its elements as little-endian C-order bytes
in K.bin (strings: UTF-8, one per line), its dtype and shape in K.txt, and all of them in
stored.npz and deflated.npz.
peer_tensors.py check DIR: K.out.npy and out.npz must hold exactly what K.npy holds."""
import sys

import numpy as np


def cases():
    rng = np.random.default_rng(1)
    yield "f32", rng.standard_normal((3, 4)).astype("<f4")
    yield "f32", rng.standard_normal((3, 4, 5)).astype(">f4")
    yield "f32", np.asfortranarray(rng.standard_normal((3, 4, 5)).astype("<f4"))
    yield "f64", np.asfortranarray(rng.standard_normal((2, 7)).astype(">f8"))
    yield "f16", rng.standard_normal(9).astype("<f2")
    yield "bool", rng.integers(0, 2, (2, 3)).astype(bool)
    yield "f32", np.float32(2.5).reshape(())
    yield "f32", np.zeros((0, 3), "<f4")
    yield "c64", (rng.standard_normal(4) + 1j * rng.standard_normal(4)).astype(">c8")
    yield "c128", (rng.standard_normal(4) + 1j * rng.standard_normal(4)).astype("<c16")
    for size in (1, 2, 4, 8):
        for kind in "iu":
            for order in "<>":
                yield f"{kind}{8 * size}", rng.integers(0, 100, (2, 2)).astype(f"{order}{kind}{size}")
    yield "string", np.array(["", "a", "grüße", "🙂 x"]).reshape(2, 2)


def make(folder):
    arrays = []
    for k, (dtype, array) in enumerate(cases()):
        np.save(f"{folder}/{k}.npy", array)
        arrays.append(array)
        with open(f"{folder}/{k}.txt", "w", encoding="utf-8") as f:
            f.write(" ".join([dtype, *map(str, array.shape)]))
        with open(f"{folder}/{k}.bin", "wb") as f:
            if dtype == "string":
                f.write("".join(s + "\n" for s in array.ravel()).encode())
            else:
                f.write(array.astype(array.dtype.newbyteorder("<")).tobytes("C"))
    named = {f"t{k}": a for k, a in enumerate(arrays)}
    np.savez(f"{folder}/stored.npz", **named)
    np.savez_compressed(f"{folder}/deflated.npz", **named)


def check(folder):
    archive = np.load(f"{folder}/out.npz")
    for k, (dtype, array) in enumerate(cases()):
        for got in (np.load(f"{folder}/{k}.out.npy"), archive[f"t{k}"]):
            assert got.shape == array.shape, (k, got.shape)
            assert got.dtype == array.dtype.newbyteorder("<"), (k, got.dtype)
            np.testing.assert_array_equal(got, array)
    assert len(archive.files) == k + 1


if __name__ == "__main__":
    {"make": make, "check": check}[sys.argv[1]](sys.argv[2])
