package api_test

import (
	"testing"

	"go.uber.org/goleak"

	_ "github.com/caddy-svc/caddy-svc/handlers/handlertest/described" // every refusal must be described
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
