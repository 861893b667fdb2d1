// Package platformtest checks an adapter to a messaging platform against the contract of package platforms.
package platformtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms"
)

// Deliveries are bodies by the name of the case, with what they contain; nothing where Want is nil.
type Deliveries map[string]struct {
	Body string
	Want []platforms.Inbound
}

// RequireDeliveries extracts every body and compares.
func RequireDeliveries(t *testing.T, platform platforms.Platform, cases Deliveries) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := platform.Extract([]byte(c.Body))
			require.NoError(t, err)
			require.Equal(t, c.Want, got)
		})
	}
}

// New returns the platform of a driver for the options, whose client is closed at the end of the test.
func New(t testing.TB, driver platforms.Driver, options map[string]string) platforms.Platform {
	t.Helper()
	client := platforms.NewClient(platforms.ClientConfig{})
	t.Cleanup(client.Close)
	platform, err := driver.New(&platforms.Config{Options: options, Client: client, Now: time.Now})
	require.NoError(t, err)
	return platform
}

// Unix is a time as Extract returns it, from milliseconds since 1970.
func Unix(milliseconds int64) time.Time { return time.UnixMilli(milliseconds).UTC() }
