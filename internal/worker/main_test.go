package worker

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(botPlatformListener) != "" {
		panic(playBotPlatform())
	}
	goleak.VerifyTestMain(m)
}
