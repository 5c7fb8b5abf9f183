// Drives a cluster with go-redis: main PORT. Exits at the first wrong reply.
//
// Prints `ready` once each kind of command has worked. Then it increments counters until its
// standard input ends, whatever happens to the cluster meanwhile, and looks whether an increment is
// lost.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func check(name string, err error, found, expected any) {
	if err != nil {
		fail(name, err)
	}
	if fmt.Sprint(found) != fmt.Sprint(expected) {
		fail(name, fmt.Sprintf("found %v, expected %v", found, expected))
	}
}

func fail(name string, why any) {
	fmt.Fprintln(os.Stderr, name+":", why)
	os.Exit(1)
}

func commands(client *redis.ClusterClient) {
	check("set", client.Set(ctx, "go:key", "Ada", 0).Err(), 0, 0)
	got, err := client.Get(ctx, "go:key").Result()
	check("get", err, got, "Ada")
	n, err := client.Incr(ctx, "go:n").Result()
	check("incr", err, n, 1)
	check("expire", client.Expire(ctx, "go:key", time.Hour).Err(), 0, 0)
	left, err := client.TTL(ctx, "go:key").Result()
	check("ttl", err, left > 59*time.Minute, true)
	gone, err := client.Del(ctx, "go:key").Result()
	check("del", err, gone, 1)
	check("mset", client.MSet(ctx, "{go}a", 1, "{go}b", 2).Err(), 0, 0)
	done, err := client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Incr(ctx, "{go}a")
		pipe.Incr(ctx, "{go}b")
		return nil
	})
	check("multi", err, done, "[incr {go}a: 2 incr {go}b: 3]")
	if err := client.MSet(ctx, "go:1", 1, "go:2", 2).Err(); err == nil || !strings.Contains(err.Error(), "CROSSSLOT") {
		fail("keys of two slots", err)
	}
}

func pipelines(client *redis.ClusterClient) {
	_, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for n := range [300]struct{}{} {
			pipe.Set(ctx, fmt.Sprint("go:pipe:", n), n, 0)
		}
		return nil
	})
	check("pipeline", err, 0, 0)
	var lock sync.Mutex
	nodes, seen := 0, map[string]bool{}
	err = client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		iterator := node.Scan(ctx, 0, "go:pipe:*", 100).Iterator()
		lock.Lock()
		defer lock.Unlock()
		nodes++
		for iterator.Next(ctx) {
			seen[iterator.Val()] = true
		}
		return iterator.Err()
	})
	check("scan", err, []int{nodes, len(seen)}, []int{3, 300})
}

func watching(client *redis.ClusterClient) {
	err := client.Watch(ctx, func(tx *redis.Tx) error {
		check("another", client.Set(ctx, "{go}w", "another", 0).Err(), 0, 0)
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "{go}w", "mine", 0)
			return nil
		})
		return err
	}, "{go}w")
	check("watch", nil, err, redis.TxFailedErr)
	got, err := client.Get(ctx, "{go}w").Result()
	check("watched", err, got, "another")
}

// Increments one counter until the end. Returns how often that was acknowledged, and was not.
func count(client *redis.ClusterClient, key string, over *atomic.Bool) (acknowledged, failed int64) {
	last := int64(0)
	for !over.Load() {
		value, err := client.Incr(ctx, key).Result()
		if err != nil {
			failed++
			continue
		}
		acknowledged++
		if value <= last {
			fail(key, fmt.Sprintf("was %v and is %v", last, value))
		}
		last = value
	}
	return
}

func main() {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:" + os.Args[1]}})
	commands(client)
	pipelines(client)
	watching(client)
	var over atomic.Bool
	var all, none atomic.Int64
	var group sync.WaitGroup
	for nth := range [8]struct{}{} {
		group.Add(1)
		go func() {
			defer group.Done()
			key := fmt.Sprint("go:counter:", nth)
			acknowledged, failed := count(client, key, &over)
			value, err := client.Get(ctx, key).Int64()
			if err != nil && err != redis.Nil || value < acknowledged {
				fail(key, fmt.Sprintf("is %v, and %v increments were acknowledged: %v", value, acknowledged, err))
			}
			all.Add(acknowledged)
			none.Add(failed)
		}()
	}
	fmt.Println("ready")
	io.ReadAll(os.Stdin)
	over.Store(true)
	group.Wait()
	fmt.Printf("go-redis: %v increments, %v without an answer\npassed\n", all.Load(), none.Load())
}
