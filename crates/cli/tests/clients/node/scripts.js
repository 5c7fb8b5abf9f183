// Libraries that use Lua scripts: scripts.js PORT server|cluster. Fails at the first wrong reply.

const assert = require("node:assert");
const Redis = require("ioredis");
const { RateLimiterRedis } = require("rate-limiter-flexible");
const { default: Redlock } = require("redlock");

const [port, kind] = [Number(process.argv[2]), process.argv[3]];

function connect() {
  if (kind === "cluster") return new Redis.Cluster([{ host: "127.0.0.1", port }]);
  return new Redis({ port });
}

// Takes five points, then refuses, each by a script.
async function limit(client) {
  const limiter = new RateLimiterRedis({
    storeClient: client,
    keyPrefix: "node:limit",
    points: 5,
    duration: 1000,
  });
  for (const left of [4, 3, 2, 1, 0]) {
    assert.equal((await limiter.consume("user")).remainingPoints, left);
  }
  const refused = await limiter.consume("user").catch((error) => error);
  assert.equal(refused.consumedPoints, 6);
  assert.equal((await limiter.get("user")).remainingPoints, 0);
  await limiter.penalty("user", 2);
  assert.equal((await limiter.get("user")).consumedPoints, 8);
  await limiter.delete("user");
  assert.equal(await limiter.get("user"), null);
  const many = await Promise.allSettled(Array.from({ length: 40 }, () => limiter.consume("all")));
  assert.equal(many.filter((one) => one.status === "fulfilled").length, 5);
}

// Takes, extends and releases locks of several keys, which scripts do.
async function lock(client) {
  const redlock = new Redlock([client], { retryCount: 0 });
  const held = await redlock.acquire(["{node}a", "{node}b"], 100000);
  await assert.rejects(redlock.acquire(["{node}b"], 100000));
  const extended = await held.extend(200000);
  await extended.release();
  assert.equal(await client.exists("{node}a", "{node}b"), 0);
  // Each increment happens under the lock: none is lost.
  const patient = new Redlock([client], { retryCount: -1, retryDelay: 2, retryJitter: 2 });
  await client.set("node:count", 0);
  const add = async () => client.set("node:count", Number(await client.get("node:count")) + 1);
  await Promise.all(Array.from({ length: 30 }, () => patient.using(["node:turn"], 100000, add)));
  assert.equal(await client.get("node:count"), "30");
}

// A script by its name, and once more after the server has forgotten it.
async function command(client) {
  client.defineCommand("sum", {
    numberOfKeys: 2,
    lua: "return redis.call('get', KEYS[1]) + redis.call('get', KEYS[2])",
  });
  await client.mset("{node}1", 1, "{node}2", 2);
  assert.equal(await client.sum("{node}1", "{node}2"), 3);
  const nodes = kind === "cluster" ? client.nodes("master") : [client];
  await Promise.all(nodes.map((node) => node.script("FLUSH")));
  assert.equal(await client.sum("{node}1", "{node}2"), 3);
}

async function main() {
  const client = connect();
  await limit(client);
  await lock(client);
  await command(client);
  client.disconnect();
  console.log("passed");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
