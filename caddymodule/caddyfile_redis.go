package caddymodule

import (
	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
	"github.com/caddy-svc/caddy-svc/caddymodule/config"
)

// readRedis reads `redis URL`, `redis sentinel MASTER ADDR…` and `redis cluster ADDR…`, each with a block or without.
func (a *App) readRedis(r *caddyfile.Reader) caddyfile.Read {
	return func(path string, o caddyfile.Option) {
		read := new(Redis)
		switch {
		case len(o.Args) == 0:
			r.Unreadf(path, o, "takes an address; %s", redisForms)
		case o.Args[0].Text == "sentinel":
			read.Sentinel = &RedisSentinel{Addresses: o.Texts(2)}
			if len(o.Args) > 1 {
				read.Sentinel.Master = o.Args[1].Text
			}
		case o.Args[0].Text == "cluster":
			read.Cluster = &RedisCluster{Addresses: o.Texts(1)}
		case len(o.Args) > 1:
			r.Unreadf(path, o, "takes one address, or sentinel or cluster first; %s", redisForms)
		default:
			read.URL = config.Secret(o.Args[0].Text)
		}
		r.Block(path, o, []caddyfile.Rule{
			{Word: "nodes", Read: r.Integer(&read.Nodes)},
			{Word: "username", Read: r.Identifier(&read.Username)},
			{Word: "password", Read: r.Secret(&read.Password, config.ReferenceForms)},
			{Word: "sentinel_password", Read: r.Secret(&read.SentinelPassword, config.ReferenceForms)},
			{Word: "tls", Read: readRedisTLS(r, read)},
		})
		caddyfile.Set(r, path, o, &a.Redis, read)
	}
}

func readRedisTLS(r *caddyfile.Reader, redis *Redis) caddyfile.Read {
	return func(path string, o caddyfile.Option) {
		if len(o.Args) > 1 {
			r.Unreadf(path, o, "takes at most one value: the PEM file of an authority")
			return
		}
		read := new(RedisTLS)
		if len(o.Args) == 1 {
			read.CAFile = o.Args[0].Text
		}
		caddyfile.Set(r, path, o, &redis.TLS, read)
	}
}
