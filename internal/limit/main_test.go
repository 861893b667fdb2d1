package limit

import (
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	logging.Disable() // the client would tell standard error of every connection that tests break
	goleak.VerifyTestMain(m)
}
