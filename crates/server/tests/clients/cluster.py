"""Drives a cluster of two nodes with redis-py: cluster.py PORT PORT. Fails at the first wrong reply.

Prints what it has done, and then waits for a line: the slots have moved meanwhile.
"""

import sys

from redis.cluster import ClusterNode, RedisCluster

ports = [int(port) for port in sys.argv[1:]]
KEYS = [f"py:{n}" for n in range(300)]


def check(client, value):
    for key in KEYS:
        assert client.get(key) == value.encode(), key
    pipe = client.pipeline()
    for key in KEYS:
        pipe.get(key)
    assert pipe.execute() == [value.encode()] * len(KEYS)
    assert client.mget_nonatomic(KEYS) == [value.encode()] * len(KEYS)


def change(client, value):
    pipe = client.pipeline()
    for key in KEYS[::2]:
        pipe.set(key, value)
    assert all(pipe.execute())
    for key in KEYS[1::2]:
        assert client.set(key, value) is True


def step(done):
    print(done, flush=True)
    assert sys.stdin.readline() == "moved\n"


clients = [
    RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", port)], protocol=protocol)
    for port, protocol in zip(ports, (2, 3))
]
one, two = clients
assert {node.port for node in one.get_primaries()} == set(ports)
assert one.keyslot("foo") == one.cluster_keyslot("foo") == 12182
change(one, "first")
check(one, "first")
check(two, "first")
step("settled")
# Both still know the former owners.
check(one, "first")
change(two, "second")
check(one, "second")
assert one.incrby("{tag}n", 5) == 5 and two.get("{tag}n") == b"5"
step("followed")
# One node has all slots, and the other has none.
change(one, "third")
check(two, "third")
assert one.delete(*["{tag}n", "{tag}none"]) == 1
print("passed")
