// Command crossing passes every failpoint twice and prints that it did. Its builds with and without the flag are what the tests of
// package failpoint run.
package main

import (
	"fmt"

	"github.com/caddy-svc/caddy-svc/internal/failpoint"
)

func main() {
	defer fmt.Println("deferred")
	failpoint.SlowCommit()
	for range 2 {
		for _, point := range failpoint.Points() {
			failpoint.Hit(point)
			fmt.Println(point)
		}
	}
}
