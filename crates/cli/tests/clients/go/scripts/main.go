// Locks of redsync, which use Lua scripts: main PORT server|cluster. Exits at the first wrong reply.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func check(name string, is bool, err error) {
	if !is || err != nil {
		fmt.Fprintln(os.Stderr, name+":", is, err)
		os.Exit(1)
	}
}

func connect(port, kind string) redis.UniversalClient {
	address := []string{"127.0.0.1:" + port}
	return redis.NewUniversalClient(&redis.UniversalOptions{Addrs: address, IsClusterMode: kind == "cluster"})
}

// Takes a lock, extends it and releases it, which scripts do.
func one(client redis.UniversalClient, locks *redsync.Redsync) {
	lock := locks.NewMutex("go:lock", redsync.WithExpiry(100*time.Second))
	check("lock", true, lock.Lock())
	other := locks.NewMutex("go:lock", redsync.WithTries(1))
	check("a lock that is held", other.TryLock() != nil, nil)
	_, err := other.Unlock()
	check("unlock by another", err != nil, nil)
	is, err := lock.Extend()
	check("extend", is, err)
	is, err = lock.Unlock()
	check("unlock", is, err)
	left, err := client.Exists(ctx, "go:lock").Result()
	check("a lock that is released", left == 0, err)
}

// Each increment happens under the lock: none is lost.
func many(client redis.UniversalClient, locks *redsync.Redsync) {
	const threads, rounds = 4, 25
	check("set", true, client.Set(ctx, "go:count", 0, 0).Err())
	var all sync.WaitGroup
	for range [threads]struct{}{} {
		all.Add(1)
		go func() {
			defer all.Done()
			for range [rounds]struct{}{} {
				lock := locks.NewMutex("go:turn", redsync.WithExpiry(100*time.Second),
					redsync.WithTries(1_000_000), redsync.WithRetryDelay(time.Millisecond))
				check("lock", true, lock.Lock())
				text, err := client.Get(ctx, "go:count").Result()
				check("get", true, err)
				count, err := strconv.Atoi(text)
				check("count", true, err)
				check("set", true, client.Set(ctx, "go:count", count+1, 0).Err())
				is, err := lock.Unlock()
				check("unlock", is, err)
			}
		}()
	}
	all.Wait()
	count, err := client.Get(ctx, "go:count").Int()
	check("count", count == threads*rounds, err)
}

func main() {
	client := connect(os.Args[1], os.Args[2])
	locks := redsync.New(goredis.NewPool(client))
	one(client, locks)
	many(client, locks)
	fmt.Println("passed")
}
