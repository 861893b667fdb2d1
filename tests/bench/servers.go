package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// ticksPerSecond is the unit of /proc/PID/stat, fixed by the kernel's interface on Linux.
const ticksPerSecond = 100

// processStat is a part of a process's /proc/PID/stat.
type processStat struct {
	name          string
	parent        int
	own, children time.Duration // processor time; children's counts once they have ended
}

func readStat(pid int) (processStat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return processStat{}, fmt.Errorf("reading the processor time: %w", err)
	}
	// The second field is the command in parentheses and may hold spaces.
	opening, closing := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	fields := strings.Fields(string(text[closing+1:]))
	stat := processStat{name: string(text[opening+1 : closing])}
	if stat.parent, err = strconv.Atoi(fields[1]); err != nil {
		return stat, fmt.Errorf("reading the parent: %w", err)
	}
	var ticks [4]int64
	for i := range ticks {
		if ticks[i], err = strconv.ParseInt(fields[11+i], 10, 64); err != nil {
			return stat, fmt.Errorf("reading the processor time: %w", err)
		}
	}
	stat.own = time.Duration(ticks[0]+ticks[1]) * time.Second / ticksPerSecond
	stat.children = time.Duration(ticks[2]+ticks[3]) * time.Second / ticksPerSecond
	return stat, nil
}

// servers are those that a product's place is on. Their processor time is known while they run on this machine.
type servers struct {
	postmaster int // 0: none here
	redis      *redis.Client
}

// serversOf finds the servers of a place.
func serversOf(ctx context.Context, at *place) (*servers, error) {
	s := &servers{}
	if at.redis != "" {
		options, err := redis.ParseURL(at.redis)
		if err != nil {
			return nil, errors.New(redisVariable + " is no URL of a Redis")
		}
		s.redis = redis.NewClient(options)
	}
	if at.location.Engine != store.Postgres {
		return s, nil
	}
	db, err := store.Open(ctx, at.location, store.Options{})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connecting to PostgreSQL: %w", err), s.close())
	}
	defer db.Close(ctx) //nolint:errcheck // it only read
	var backend int
	if err := db.Reader().QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&backend); err != nil {
		return nil, errors.Join(fmt.Errorf("asking for a process: %w", err), s.close())
	}
	stat, err := readStat(backend)
	if err == nil && strings.HasPrefix(stat.name, "postgres") { // else it runs on another machine
		s.postmaster = stat.parent
	}
	return s, nil
}

func (s *servers) close() error {
	if s.redis == nil {
		return nil
	}
	return s.redis.Close()
}

// cpu is the processor time that the servers have taken so far, for all clients: only the bench should use them.
func (s *servers) cpu(ctx context.Context) (total time.Duration, err error) {
	if s.redis != nil {
		if total, err = s.redisCPU(ctx); err != nil {
			return 0, err
		}
	}
	if s.postmaster == 0 {
		return total, nil
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, fmt.Errorf("listing processes: %w", err)
	}
	for _, path := range all {
		pid, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			continue
		}
		stat, err := readStat(pid)
		switch {
		case errors.Is(err, fs.ErrNotExist), err != nil && pid != s.postmaster: // it has just ended
		case err != nil:
			return 0, err
		case pid == s.postmaster:
			total += stat.own + stat.children
		case stat.parent == s.postmaster:
			total += stat.own
		}
	}
	return total, nil
}

func (s *servers) redisCPU(ctx context.Context) (total time.Duration, err error) {
	text, err := s.redis.Info(ctx, "cpu").Result()
	if err != nil {
		return 0, fmt.Errorf("asking Redis for its processor time: %w", err)
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "used_cpu_user" && name != "used_cpu_sys" {
			continue
		}
		seconds, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the processor time of Redis: %w", err)
		}
		total += time.Duration(seconds * float64(time.Second))
	}
	return total, nil
}
