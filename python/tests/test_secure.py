# SPDX-License-Identifier: Apache-2.0
"""Private inference from Python: the cleartext twin, and two parties over a socket."""

import socket
import threading

import numpy as np
import pytest

import tacit
import tacit.secure


@pytest.fixture
def network(rng):
    w = rng.standard_normal((4, 3)).astype(np.float32)
    g = tacit.Graph("private")
    g.output("y", g.Relu(g.input("x", "f32", (2, 4)) @ w))
    return g.model(), lambda x: np.maximum(x @ w, 0)


def test_plan_and_twin(network, rng):
    model, expected = network
    private = tacit.secure.compile(model, weights="public")
    x = rng.standard_normal((2, 4)).astype(np.float32)
    np.testing.assert_allclose(private.sim(x), expected(x), atol=0.02)
    assert private.plan() and "rounds" in str(private)
    with pytest.raises(tacit.Error):
        private.sim(x[:1])
    with pytest.raises(tacit.Error):
        private.sim()


def test_two_parties(network, rng, tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_STATE_HOME", str(tmp_path))  # marks of used keys
    model, expected = network
    x = rng.standard_normal((2, 4)).astype(np.float32)
    server = tacit.secure.compile(model)
    server.strip(tmp_path / "public.tacit")
    client = tacit.secure.load(tmp_path / "public.tacit")
    client.deal(tmp_path / "server.key", tmp_path / "client.key")
    folder = tmp_path / "certificates"
    tacit.secure.certificates(folder)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{s.getsockname()[1]}"
    failures = []

    def serve():
        try:
            server.serve(tmp_path / "server.key", address, folder, timeout=20)
        except tacit.Error as e:
            failures.append(e)

    thread = threading.Thread(target=serve)
    thread.start()
    y = client.query(tmp_path / "client.key", address, folder, x, timeout=20)
    thread.join()
    assert not failures
    np.testing.assert_allclose(y, expected(x), atol=0.02)
    assert client.report["rounds"] > 0 and client.report["sent"] > 0


def test_one_step_functions(network, rng, tmp_path):
    model, expected = network
    x = rng.standard_normal((2, 4)).astype(np.float32)
    assert tacit.secure.plan(model) == tacit.secure.compile(model).plan()
    np.testing.assert_allclose(tacit.secure.sim(model, x), expected(x), atol=0.02)
    public, keys = tmp_path / "public.tacit", (tmp_path / "server.key", tmp_path / "client.key")
    tacit.secure.compile(model).strip(public)
    tacit.secure.deal(public, *keys)
    folder = tmp_path / "certificates"
    tacit.secure.certificates(folder)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{s.getsockname()[1]}"
    reports = []
    thread = threading.Thread(
        target=lambda: reports.append(
            tacit.secure.serve(model, keys[0], address, folder, timeout=60)
        )
    )
    thread.start()
    y = tacit.secure.query(public, keys[1], address, folder, x, timeout=60)
    thread.join()
    assert reports and reports[0]["rounds"] > 0
    np.testing.assert_allclose(y, expected(x), atol=0.02)
    with pytest.raises(tacit.Error):  # the keys were for one run
        tacit.secure.query(public, keys[1], address, folder, x, timeout=1)


def test_bad_arguments(network, tmp_path):
    with pytest.raises(ValueError, match="weights must be"):
        tacit.secure.compile(network[0], weights="hidden")
    with pytest.raises(tacit.Error):
        tacit.secure.load(tmp_path / "none.tacit")
    with pytest.raises(tacit.Error):
        tacit.secure.compile(network[0]).serve(tmp_path / "no.key", "127.0.0.1:1", tmp_path)
