"""Libraries that use Lua scripts: scripts.py PORT server|cluster. Fails at the first wrong reply."""

import sys
import threading

import redis
import redis.cluster

port, is_cluster = int(sys.argv[1]), sys.argv[2] == "cluster"


def connect():
    if is_cluster:
        return redis.cluster.RedisCluster(host="127.0.0.1", port=port, decode_responses=True)
    return redis.Redis(port=port, decode_responses=True)


client = connect()

# redis-py: scripts by name, with a flushed cache in between.
add = client.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
assert add(keys=["n"], args=[2]) == 2
client.script_flush()
assert add(keys=["n"], args=[3]) == 5
if not is_cluster:
    with client.pipeline() as pipe:
        add(keys=["n"], args=[1], client=pipe)
        pipe.get("n")
        assert pipe.execute() == [6, "6"]

# redis-py: Lock takes, extends and releases with scripts.
lock = client.lock("lock", timeout=100)
assert lock.acquire()
assert not client.lock("lock", timeout=100).acquire(blocking=False)
assert lock.extend(50) and lock.reacquire() and lock.owned()
lock.release()
assert not client.exists("lock")
with client.lock("lock", timeout=100, blocking_timeout=100):
    pass
try:
    lock.release()
    raise SystemExit("a lock was released twice")
except redis.exceptions.LockError:
    pass

# Threads that hold one lock in turn: no increment is lost.
client.set("count", 0)


def work():
    own = connect()
    for _ in range(25):
        with own.lock("turn", timeout=100, sleep=0.001):
            own.set("count", int(own.get("count")) + 1)


threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert client.get("count") == "100"

# limits: fixed and sliding windows count in scripts.
try:
    import limits
    import limits.storage
    import limits.strategies
except ImportError:
    print("without limits")
    sys.exit()
if is_cluster:
    storage = limits.storage.RedisClusterStorage(f"redis+cluster://127.0.0.1:{port}")
else:
    storage = limits.storage.RedisStorage(f"redis://127.0.0.1:{port}")
rate = limits.parse("5/hour")
for strategy in (
    limits.strategies.FixedWindowRateLimiter,
    getattr(limits.strategies, "SlidingWindowCounterRateLimiter", None),
):
    if strategy is None:
        continue
    limiter = strategy(storage)
    name = strategy.__name__
    assert [limiter.hit(rate, name) for _ in range(7)] == [True] * 5 + [False] * 2, name
    assert not limiter.test(rate, name)
    limiter.clear(rate, name)
    assert limiter.hit(rate, name)
print("with limits")
