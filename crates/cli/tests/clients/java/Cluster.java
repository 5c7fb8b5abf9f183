// Drives a cluster with Jedis: java -cp JARS Cluster.java PORT. Fails at the first wrong reply.
//
// Prints `ready` once each kind of command has worked. Then it increments counters until its standard
// input ends, whatever happens to the cluster meanwhile, and looks whether an increment is lost.

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import redis.clients.jedis.ClusterPipeline;
import redis.clients.jedis.Connection;
import redis.clients.jedis.ConnectionPool;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisCluster;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.resps.ScanResult;
import redis.clients.jedis.util.JedisClusterCRC16;

public class Cluster {
  static void check(String name, Object found, Object expected) {
    if (!expected.equals(found)) {
      throw new IllegalStateException(name + ": found " + found + ", expected " + expected);
    }
  }

  static Connection connection(JedisCluster client, String key) {
    return client.getConnectionFromSlot(JedisClusterCRC16.getSlot(key));
  }

  static void commands(JedisCluster client) {
    check("set", client.set("java:key", "Ada"), "OK");
    check("get", client.get("java:key"), "Ada");
    check("incr", client.incr("java:n"), 1L);
    check("expire", client.expire("java:key", 1000), 1L);
    check("ttl", client.ttl("java:key") > 900, true);
    check("del", client.del("java:key"), 1L);
    check("mset", client.mset("{java}a", "1", "{java}b", "2"), "OK");
    try (Connection connection = connection(client, "{java}a");
        Transaction multi = new Transaction(connection)) {
      multi.incr("{java}a");
      multi.incr("{java}b");
      check("multi", multi.exec(), List.of(2L, 3L));
    }
    try (Connection connection = connection(client, "java:1"); Jedis jedis = new Jedis(connection)) {
      jedis.mset("java:1", "1", "java:2", "2");
      throw new IllegalStateException("keys of two slots were set at one instant");
    } catch (JedisException error) {
      check("CROSSSLOT", error.getMessage().contains("CROSSSLOT"), true);
    }
  }

  static void pipelines(JedisCluster client) {
    List<Response<String>> replies = new ArrayList<>();
    try (ClusterPipeline pipe = client.pipelined()) {
      for (int n = 0; n < 300; n++) {
        replies.add(pipe.set("java:pipe:" + n, "" + n));
      }
    }
    replies.forEach(reply -> check("pipeline", reply.get(), "OK"));
    Set<String> seen = new HashSet<>();
    int nodes = 0;
    for (ConnectionPool pool : client.getClusterNodes().values()) {
      nodes++;
      try (Connection connection = pool.getResource(); Jedis jedis = new Jedis(connection)) {
        ScanResult<String> page = new ScanResult<>(ScanParams.SCAN_POINTER_START, List.of());
        do {
          page = jedis.scan(page.getCursor(), new ScanParams().match("java:pipe:*").count(100));
          seen.addAll(page.getResult());
        } while (!page.isCompleteIteration());
      }
    }
    check("nodes", nodes, 3);
    check("scan", seen.size(), 300);
  }

  static void watching(JedisCluster client) {
    try (Connection connection = connection(client, "{java}w");
        Transaction multi = new Transaction(connection, false)) {
      multi.watch("{java}w");
      client.set("{java}w", "another");
      multi.multi();
      multi.set("{java}w", "mine");
      check("watch", multi.exec() == null, true);
    }
    check("watched", client.get("{java}w"), "another");
  }

  // Increments one counter until the end. Returns how often that was acknowledged, and was not.
  static long[] count(JedisCluster client, String key, AtomicBoolean isOver) {
    long acknowledged = 0, failed = 0, last = 0;
    while (!isOver.get()) {
      try {
        long value = client.incr(key);
        acknowledged++;
        check(key + " grows from " + last + " to " + value, last < value, true);
        last = value;
      } catch (JedisException error) {
        failed++;
      }
    }
    String found = client.get(key);
    long value = found == null ? 0 : Long.parseLong(found);
    check(key + " has " + value + " of " + acknowledged, acknowledged <= value, true);
    return new long[] {acknowledged, failed};
  }

  public static void main(String[] arguments) throws Exception {
    int port = Integer.parseInt(arguments[0]);
    long acknowledged = 0, failed = 0;
    try (JedisCluster client = new JedisCluster(new HostAndPort("127.0.0.1", port))) {
      commands(client);
      pipelines(client);
      watching(client);
      AtomicBoolean isOver = new AtomicBoolean();
      ExecutorService threads = Executors.newFixedThreadPool(6);
      List<Future<long[]>> counts = new ArrayList<>();
      for (int nth = 0; nth < 6; nth++) {
        String key = "java:counter:" + nth;
        counts.add(threads.submit(() -> count(client, key, isOver)));
      }
      System.out.println("ready");
      System.in.readAllBytes();
      isOver.set(true);
      for (Future<long[]> count : counts) {
        acknowledged += count.get()[0];
        failed += count.get()[1];
      }
      threads.shutdown();
    }
    System.out.println("Jedis: " + acknowledged + " increments, " + failed + " without an answer");
    System.out.println("passed");
  }
}
