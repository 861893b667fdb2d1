package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// The environment of the bench, and of what it starts.
const (
	postgresVariable  = "SVC_TEST_POSTGRES" // as scripts/services.sh sets it, like the next one
	redisVariable     = "SVC_TEST_REDIS"
	masterKeyVariable = "BENCH_MASTER_KEY"
)

// place is where a product keeps its state: a fresh database, and a Redis for the windows.
type place struct {
	location store.Location
	redis    string // its URL, "" for none
	drop     func() error
}

// newPlace makes a file, or a database on the server of the environment, and the way to drop it.
func newPlace(ctx context.Context, engine store.Engine, redis string) (*place, error) {
	if engine == store.SQLite {
		dir, err := os.MkdirTemp("", "svc-bench-")
		if err != nil {
			return nil, fmt.Errorf("making a folder: %w", err)
		}
		location, err := store.ParseLocation(engine, filepath.Join(dir, "svc.db"))
		return &place{location: location, redis: redis, drop: func() error { return os.RemoveAll(dir) }}, err
	}
	server, err := store.ParseLocation(engine, os.Getenv(postgresVariable))
	if err != nil {
		return nil, err
	}
	name := "svc_bench_" + strings.ToLower(rand.Text())
	if err := administer(ctx, server, "CREATE DATABASE "+name+" TEMPLATE template0 ENCODING 'UTF8'"); err != nil {
		return nil, err
	}
	location, err := store.ParseLocation(engine, server.DSN+" dbname="+name)
	return &place{location: location, redis: redis, drop: func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return administer(ctx, server, "DROP DATABASE "+name+" WITH (FORCE)")
	}}, err
}

func administer(ctx context.Context, server store.Location, statement string) error {
	db, err := store.Open(ctx, server, store.Options{})
	if err != nil {
		return fmt.Errorf("connecting to PostgreSQL: %w", err)
	}
	_, err = db.Reader().ExecContext(ctx, statement)
	return errors.Join(err, db.Close(ctx))
}

// options are the place's lines in the svc block; the product gets what they name in its environment.
func (at *place) options() string {
	line := "store sqlite " + at.location.DSN
	if at.location.Engine == store.Postgres {
		line = "store postgres {env.BENCH_DSN}"
	}
	if at.redis != "" {
		line += "\n\t\tredis {env.BENCH_REDIS}"
	}
	return line
}
