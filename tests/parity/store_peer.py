"""PyTorch's own store, to be talked to: `store_peer.py client|server PORT USE_LIBUV`.

As a client it makes each call of the protocol once and compares the answers. As a server it prints
its port, and ends when its standard input does.
"""

import sys
import threading
from datetime import timedelta

import torch.distributed as dist


def serve(use_libuv):
    store = dist.TCPStore(
        "127.0.0.1", 0, None, True, use_libuv=use_libuv, wait_for_workers=False
    )
    print(store.port, flush=True)
    sys.stdin.read()


def connect(port):
    return dist.TCPStore("127.0.0.1", port, None, False, timedelta(seconds=20))


def expect(found, expected):
    if found != expected:
        raise AssertionError(f"expected {expected!r}, found {found!r}")


def times_out(call):
    try:
        call()
    except dist.DistStoreError:
        return
    raise AssertionError("expected a time-out")


def use(port):
    store = connect(port)
    store.set("k", "v")
    expect(store.get("k"), b"v")
    expect(store.compare_set("c", "", "a"), b"a")
    expect(store.compare_set("c", "b", "d"), b"a")
    expect(store.compare_set("c", "a", "d"), b"d")
    expect(store.compare_set("absent", "a", "d"), b"a")
    expect(store.add("n", -5), -5)
    store.wait(["k", "n"])
    times_out(lambda: store.wait(["k", "late"], timedelta(milliseconds=50)))
    expect((store.check(["k"]), store.check(["k", "late"])), (True, False))
    expect((store.delete_key("k"), store.delete_key("k")), (True, False))
    store.append("a", "x")
    store.append("a", "y")
    expect(store.get("a"), b"xy")
    store.multi_set(["m1", "m2"], ["1", "22"])
    expect(store.multi_get(["m1", "m2"]), [b"1", b"22"])
    expect(store.num_keys(), 5)
    expect(sorted(store.list_keys()), ["a", "c", "m1", "m2", "n"])
    store.queue_push("q", "1")
    expect(store.queue_len("q"), 1)
    expect(store.queue_pop("q"), b"1")
    expect(store.queue_len("q"), 0)
    store.barrier("alone", 1, timedelta(seconds=20))
    times_out(lambda: store.barrier("two", 2, timedelta(milliseconds=50)))
    big = "x" * 5_000_000
    store.set("big", big)
    expect(store.get("big"), big.encode())
    # A value that comes while another client waits for it.
    waiting = connect(port)
    found = []
    thread = threading.Thread(target=lambda: found.append(waiting.get("soon")))
    thread.start()
    store.set("soon", "now")
    thread.join()
    expect(found, [b"now"])
    prefixed = dist.PrefixStore("run", store)
    prefixed.set("k", "v")
    expect(store.get("run/k"), b"v")
    print("CLIENT OK")


if __name__ == "__main__":
    mode, port, use_libuv = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "1"
    serve(use_libuv) if mode == "server" else use(port)
