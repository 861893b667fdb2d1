package tests

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

const (
	// clusterNodes is how many Caddy nodes a cluster has.
	clusterNodes = 3
	// shutdownDelay is shutdown_delay of nodes behind a balancer: time to see that they are no longer ready, on a machine
	// that is busy with other tests, too.
	shutdownDelay = 2 * time.Second
)

// cluster is several nodes and workers of one deployment, in processes of their own, on one PostgreSQL and maybe one
// Redis. Clients and platforms know the balancer's address only.
type cluster struct {
	nodes    []*product
	workers  []*worker
	balancer *balancer

	http *http.Client
}

// startCluster runs nodes and workers of d, which all start at the same moment on the same, mostly empty database. It
// returns when all are ready. At the test's end all are stopped, as startProduct says.
func startCluster(t testing.TB, d *deployment, nodes, workers int) *cluster {
	t.Helper()
	require.Equal(t, store.Postgres, d.location.Engine, "nodes on several machines need a PostgreSQL")
	c := &cluster{
		balancer: startBalancer(t),
		http:     &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 300, DisableCompression: true}},
	}
	t.Cleanup(c.http.CloseIdleConnections)
	d.PublicURL = c.balancer.URL
	for range nodes {
		node := prepareProduct(t, d.beside())
		node.start()
		c.nodes = append(c.nodes, node)
	}
	for _, node := range c.nodes {
		node.awaitReady()
		c.balancer.add(node)
	}
	for i := range workers {
		c.workers = append(c.workers, c.nodes[i%nodes].startWorker())
	}
	t.Cleanup(c.end)
	return c
}

// end asks all nodes to end: one after the other each would wait for its own shutdown_delay.
func (c *cluster) end() {
	for _, node := range c.nodes {
		if !node.killed {
			node.terminate()
		}
	}
}

// operator returns the cluster's store, opened by this process.
func (c *cluster) operator() *operatorStore { return c.nodes[0].operator() }

// node is one of the nodes, counted round.
func (c *cluster) node(i int) *product { return c.nodes[i%len(c.nodes)] }

// as is a client of the customer that calls through the balancer.
func (c *cluster) as(customer *customer) *client {
	return &client{http: c.http, base: c.balancer.URL, key: customer.Key}
}

// balanced is the whole cluster in the place of a product: what is sent to it goes through the balancer. Its process is
// the first node's.
func (c *cluster) balanced() *product {
	c.operator() // shared, and closed with the node
	whole := *c.nodes[0]
	whole.BaseURL, whole.clear = c.balancer.URL, c.http
	return &whole
}
