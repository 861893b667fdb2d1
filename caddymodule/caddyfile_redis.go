package caddymodule

// readRedis reads `redis URL`, `redis sentinel MASTER ADDR…` and `redis cluster ADDR…`, each with a block or without.
func (a *App) readRedis(r *reader) func(string, option) {
	return func(path string, o option) {
		read := new(Redis)
		switch {
		case len(o.args) == 0:
			r.faultf(path, o, "takes an address; %s", redisForms)
		case o.args[0].Text == "sentinel":
			read.Sentinel = &RedisSentinel{Addresses: o.texts(2)}
			if len(o.args) > 1 {
				read.Sentinel.Master = o.args[1].Text
			}
		case o.args[0].Text == "cluster":
			read.Cluster = &RedisCluster{Addresses: o.texts(1)}
		case len(o.args) > 1:
			r.faultf(path, o, "takes one address, or sentinel or cluster first; %s", redisForms)
		default:
			read.URL = Secret(o.args[0].Text)
		}
		r.block(path, o, []rule{
			{word: "nodes", read: r.integer(&read.Nodes)},
			{word: "username", read: r.identifier(&read.Username)},
			{word: "password", read: r.secret(&read.Password, referenceForms)},
			{word: "sentinel_password", read: r.secret(&read.SentinelPassword, referenceForms)},
			{word: "tls", read: readRedisTLS(r, read)},
		})
		set(r, path, o, &a.Redis, read)
	}
}

func readRedisTLS(r *reader, redis *Redis) func(string, option) {
	return func(path string, o option) {
		if len(o.args) > 1 {
			r.faultf(path, o, "takes at most one value: the PEM file of an authority")
			return
		}
		read := new(RedisTLS)
		if len(o.args) == 1 {
			read.CAFile = o.args[0].Text
		}
		set(r, path, o, &redis.TLS, read)
	}
}

// texts are the arguments from the first on.
func (o option) texts(first int) []string {
	var texts []string
	for i := first; i < len(o.args); i++ {
		texts = append(texts, o.args[i].Text)
	}
	return texts
}
