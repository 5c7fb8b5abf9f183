"""Drives a cluster with redis-py: cluster.py PORT. Fails at the first wrong reply.

Prints `ready` once each kind of command has worked. Then it increments counters until its standard
input ends, whatever happens to the cluster meanwhile, and looks whether an increment is lost.
"""

import sys
import threading

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.retry import Retry

port = int(sys.argv[1])


def connect(**more):
    return RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", port)], socket_timeout=10, **more)


def commands(client, tag):
    keys = [f"{tag}:{n}" for n in range(300)]
    assert client.set(f"{tag}:key", "Ada") is True and client.get(f"{tag}:key") == b"Ada"
    assert client.incr(f"{tag}:n") == 1 and client.incrby(f"{tag}:n", 4) == 5
    assert client.expire(f"{tag}:key", 1000) and 900 <= client.ttl(f"{tag}:key") <= 1000
    assert client.delete(f"{tag}:key", f"{tag}:n") == 2 and client.get(f"{tag}:key") is None
    pipe = client.pipeline()
    for key in keys:
        pipe.set(key, key)
    assert all(pipe.execute())
    owners = {client.get_node_from_key(key).name for key in keys}
    assert len(owners) == 3, owners
    assert set(client.scan_iter(f"{tag}:*", count=100)) == {key.encode() for key in keys}
    node = client.get_redis_connection(client.get_default_node())
    try:
        node.mset({f"{tag}:1": 1, f"{tag}:2": 2})
        raise AssertionError("keys of two slots were set at one instant")
    except redis.exceptions.ClusterCrossSlotError:
        pass


def transactions(client, tag):
    one, two, watched = ("{%s}%d" % (tag, nth) for nth in range(3))
    assert client.mset({one: 1, two: 2}) and client.mget(one, two) == [b"1", b"2"]
    with client.pipeline(transaction=True) as pipe:
        assert pipe.incr(one).incr(two).get(one).execute() == [2, 3, b"2"]
    with client.pipeline(transaction=True) as pipe:
        pipe.watch(watched)
        seen = pipe.get(watched)
        client.set(watched, "another")
        pipe.multi()
        pipe.set(watched, "mine")
        try:
            pipe.execute()
            raise AssertionError("a change of a watched key was not noticed")
        except redis.WatchError:
            assert seen is None and client.get(watched) == b"another"


class Counters:
    """Counters that one thread increments."""

    def __init__(self, name, client):
        self.name, self.client = name, client
        self.keys = [f"py:{name}:{n}" for n in range(12)]
        self.last = dict.fromkeys(self.keys, 0)
        self.acknowledged = dict.fromkeys(self.keys, 0)
        # Increments without an answer.
        self.unknown = dict.fromkeys(self.keys, 0)

    def answered(self, key, value):
        self.acknowledged[key] += 1
        assert self.last[key] < value, f"{key} was {self.last[key]} and is {value}"
        self.last[key] = value

    def failed(self, key, error):
        # The words of nodes that cannot answer; whatever else is wrong.
        assert not isinstance(error, redis.ResponseError) or is_passing(error), repr(error)
        self.unknown[key] += 1

    def one(self, key):
        try:
            self.answered(key, self.client.incr(key))
        except redis.RedisError as error:
            self.failed(key, error)

    def all(self):
        pipe = self.client.pipeline()
        for key in self.keys:
            pipe.incr(key)
        try:
            values = pipe.execute(raise_on_error=False)
        except redis.RedisError as error:
            values = [error] * len(self.keys)
        for key, value in zip(self.keys, values):
            if isinstance(value, Exception):
                self.failed(key, value)
            else:
                self.answered(key, value)

    def check(self, is_exact):
        for key in self.keys:
            value, least = int(self.client.get(key) or 0), self.acknowledged[key]
            most = least + self.unknown[key] if is_exact else value
            assert least <= value <= most, f"{key} is {value}, {least} were acknowledged, {most} begun"
        counts = sum(self.acknowledged.values()), sum(self.unknown.values())
        print(f"redis-py {self.name}: {counts[0]} increments, {counts[1]} without an answer")


def is_passing(error):
    words = ("UNAVAILABLE", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ERR")
    return str(error).startswith(words) or isinstance(error, redis.exceptions.ClusterError)


for protocol in (2, 3):
    with connect(protocol=protocol) as client:
        commands(client, f"py{protocol}")
        transactions(client, f"py{protocol}")
is_over = threading.Event()
failures = []
# Whoever does not repeat what had no answer knows exactly how often it was done.
exact = Counters("without retries", connect(retry=Retry(NoBackoff(), 0)))
stock = Counters("single", connect())
piped = Counters("pipelined", connect())


def run(work):
    try:
        while not is_over.is_set():
            work()
    except BaseException as error:
        failures.append(error)


works = [
    lambda: [exact.one(key) for key in exact.keys],
    lambda: [stock.one(key) for key in stock.keys],
    piped.all,
]
threads = [threading.Thread(target=run, args=[work]) for work in works]
for thread in threads:
    thread.start()
print("ready", flush=True)
sys.stdin.read()
is_over.set()
for thread in threads:
    thread.join()
for failure in failures:
    raise failure
exact.check(is_exact=True)
stock.check(is_exact=False)
piped.check(is_exact=False)
print("passed")
