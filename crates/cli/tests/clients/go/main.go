// Drives a Terrace server with go-redis: main PORT PASSWORD. Exits at the first wrong reply.
package main

import (
	"context"
	"fmt"
	"os"
	"sync"
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

func strings(client *redis.Client) {
	set, err := client.Set(ctx, "go:key", "Ada", 0).Result()
	check("set", err, set, "OK")
	got, err := client.Get(ctx, "go:key").Result()
	check("get", err, got, "Ada")
	if _, err := client.Get(ctx, "go:absent").Result(); err != redis.Nil {
		fail("get of an absent key", err)
	}
	exclusive, err := client.SetNX(ctx, "go:key", "Bob", time.Minute).Result()
	check("setnx", err, exclusive, false)
	n, err := client.IncrBy(ctx, "go:n", 41).Result()
	check("incrby", err, n, 41)
	check("mset", client.MSet(ctx, "go:a", 1, "go:b", 2).Err(), 0, 0)
	values, err := client.MGet(ctx, "go:a", "go:absent", "go:b").Result()
	check("mget", err, values, []any{"1", nil, "2"})
	if _, err := client.LPush(ctx, "go:list", 1).Result(); err == nil {
		fail("lpush", "was not refused")
	}
}

func expiry(client *redis.Client) {
	check("set", client.Set(ctx, "go:short", "x", time.Hour).Err(), 0, 0)
	left, err := client.TTL(ctx, "go:short").Result()
	check("ttl", err, left > 59*time.Minute, true)
	gone, err := client.PExpireAt(ctx, "go:short", time.UnixMilli(1)).Result()
	check("pexpireat", err, gone, true)
	there, err := client.Exists(ctx, "go:short").Result()
	check("exists", err, there, 0)
}

func pipelines(client *redis.Client) {
	_, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for n := range [5000]struct{}{} {
			pipe.Set(ctx, fmt.Sprint("go:pipe:", n), n, 0)
		}
		return nil
	})
	check("pipeline", err, 0, 0)
	seen := map[string]bool{}
	iterator := client.Scan(ctx, 0, "go:pipe:*", 300).Iterator()
	for iterator.Next(ctx) {
		seen[iterator.Val()] = true
	}
	check("scan", iterator.Err(), len(seen), 5000)
}

// Optimistic transactions from several connections; no increment may be lost.
func watching(client *redis.Client) {
	var group sync.WaitGroup
	for range [4]struct{}{} {
		group.Add(1)
		go func() {
			defer group.Done()
			for done := 0; done < 25; {
				err := client.Watch(ctx, func(tx *redis.Tx) error {
					n, err := tx.Get(ctx, "go:watched").Int()
					if err != nil && err != redis.Nil {
						return err
					}
					_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
						pipe.Set(ctx, "go:watched", n+1, 0)
						return nil
					})
					return err
				}, "go:watched")
				if err == nil {
					done++
				} else if err != redis.TxFailedErr {
					fail("watch", err)
				}
			}
		}()
	}
	group.Wait()
	n, err := client.Get(ctx, "go:watched").Int()
	check("watched", err, n, 100)
}

func main() {
	for _, protocol := range []int{2, 3} {
		client := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:" + os.Args[1], Password: os.Args[2], Protocol: protocol, ClientName: "drive",
		})
		check("flushall", client.FlushAll(ctx).Err(), 0, 0)
		strings(client)
		expiry(client)
		pipelines(client)
		watching(client)
		check("close", client.Close(), 0, 0)
	}
	fmt.Println("go-redis passed")
}
