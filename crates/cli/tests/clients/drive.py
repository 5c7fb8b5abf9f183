"""Drives a Terrace server with redis-py: drive.py PORT PASSWORD INDEX. Fails at the first wrong reply."""

import sys
import threading

import redis


def strings(client):
    assert client.set("py:key", "Ada") is True
    assert client.get("py:key") == b"Ada"
    assert client.set("py:key", "Bob", nx=True) is None
    assert client.set("py:key", "Bob", get=True) == b"Ada"
    assert client.append("py:key", "by") == 5
    assert client.getrange("py:key", 0, 2) == b"Bob"
    assert client.incr("py:n", 5) == 5
    assert client.incrbyfloat("py:f", 1.5) == 1.5
    assert client.mset({"py:a": "1", "py:b": b"\x00\xff"}) is True
    assert client.mget("py:a", "py:absent", "py:b") == [b"1", None, b"\x00\xff"]
    assert client.delete("py:a", "py:b", "py:absent") == 2


def expiry(client):
    client.set("py:short", "x", ex=1000)
    assert 900 <= client.ttl("py:short") <= 1000
    assert client.persist("py:short") is True
    assert client.ttl("py:short") == -1
    assert client.pexpireat("py:short", 1) is True
    assert client.get("py:short") is None


def pipelines(client):
    pipe = client.pipeline(transaction=False)
    for n in range(10000):
        pipe.set(f"py:pipe:{n}", n)
    assert all(pipe.execute())
    assert client.mget(f"py:pipe:{n}" for n in (0, 9999)) == [b"0", b"9999"]
    assert len(set(client.scan_iter("py:pipe:*", count=500))) == 10000
    with client.pipeline(transaction=True) as pipe:
        pipe.incr("py:multi").get("py:multi").strlen("py:key")
        assert pipe.execute() == [1, b"1", 5]


def scanning(client):
    client.mset({f"py:scan:{n}": n for n in range(3000)})
    found, cursor = set(), 0
    while True:
        cursor, keys = client.scan(cursor, match="py:scan:*", count=10)
        found.update(keys)
        # Clients in other languages keep cursors in a double.
        assert int(float(cursor)) == cursor < 2**53
        if cursor == 0:
            break
    assert len(found) == 3000
    assert client.delete(*found) == 3000


def watching(client):
    def count():
        for _ in range(50):
            client.transaction(lambda pipe: (pipe.multi(), pipe.incr("py:watched")) if pipe.get("py:watched") or True else None, "py:watched")

    threads = [threading.Thread(target=count) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert client.get("py:watched") == b"200"


def pairs(reply):
    """Entries of X.RANGE or X.PREFIX: a flat list in RESP2, a dictionary in RESP3."""
    return list(reply.items()) if isinstance(reply, dict) else list(zip(reply[::2], reply[1::2]))


def ranges(client):
    ask = client.execute_command
    client.mset({f"py:range:{n:03}": n for n in range(300)})
    keys = [b"py:range:%03d" % n for n in range(300)]
    assert ask("X.PREFIX", "py:range:") == keys
    assert ask("X.RANGE", "[py:range:010", "(py:range:020") == keys[10:20]
    assert ask("X.RANGE", "(py:range:020", "[py:range:010", "REV", "LIMIT", 1, 3) == keys[18:15:-1]
    entries = ask("X.PREFIX", "py:range:", "REV", "LIMIT", 0, 2, "WITHVALUES")
    assert pairs(entries) == [(keys[299], b"299"), (keys[298], b"298")]
    assert ask("X.COUNT", "[py:range:", "+", "LIMIT", 200) == 200
    assert ask("X.NEXT", "py:range:000") == [keys[1], b"1"]
    assert ask("X.PREV", "py:range:000x") == [keys[0], b"0"]
    assert ask("X.NEXT", b"\xff") is None
    start, found = "[py:range:", []
    while part := ask("X.RANGE", start, "(py:range;", "LIMIT", 0, 70):
        found += part
        start = b"(" + part[-1]
    assert found == keys
    with client.pipeline(transaction=True) as pipe:
        pipe.set("py:range:0005", "new").delete("py:range:299").execute_command("X.NEXT", "py:range:000")
        pipe.execute_command("X.DELRANGE", "[py:range:1", "(py:range;", "LIMIT", 150)
        assert pipe.execute() == [True, 1, [b"py:range:0005", b"new"], [150, b"[py:range:250"]]
    assert ask("X.DELRANGE", b"[py:range:250", "(py:range;") == [49, None]
    assert ask("X.DELPREFIX", "py:range:", "LIMIT", 100) == [100, b"[py:range:099"]
    assert ask("X.DELPREFIX", "py:range:") == [1, None]


def unordered(client):
    try:
        client.execute_command("X.RANGE", "-", "+")
    except redis.ResponseError as error:
        assert "--index ordered" in str(error), error
    else:
        raise AssertionError("a range without order")


def errors(client):
    for call in (lambda: client.lpush("py:list", 1), lambda: client.incr("py:key"), lambda: client.execute_command("SET", "one")):
        try:
            call()
        except redis.ResponseError:
            continue
        raise AssertionError("a refused command raised nothing")


def main():
    port, password, index = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    for protocol in (2, 3):
        client = redis.Redis(port=port, password=password, protocol=protocol, client_name="drive")
        client.flushall()
        ordered = unordered if index == "clht" else ranges
        for part in (strings, expiry, pipelines, scanning, watching, ordered, errors):
            part(client)
        assert client.info("keyspace")["db0"]["keys"] == client.dbsize()
        assert client.config_get("tcp-keepalive") == {"tcp-keepalive": "300"}
    print("redis-py", redis.__version__, "passed")


main()
