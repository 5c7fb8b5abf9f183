"""Libraries that use Lua scripts, against a server at the port that is the first argument."""

import sys
import threading

import redis

client = redis.Redis(port=int(sys.argv[1]), decode_responses=True)

# redis-py: scripts by name, with a flushed cache in between.
add = client.register_script("return redis.call('INCRBY', KEYS[1], ARGV[1])")
assert add(keys=["n"], args=[2]) == 2
client.script_flush()
assert add(keys=["n"], args=[3]) == 5
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
    own = redis.Redis(port=int(sys.argv[1]))
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
storage = limits.storage.RedisStorage(f"redis://127.0.0.1:{sys.argv[1]}")
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
