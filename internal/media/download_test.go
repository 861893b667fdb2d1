package media

import (
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/egress"
)

// A name with a private address ends like one that doesn't exist: in the same tries, and with the same code.
func TestPrivateAddressesAreAsNamesOfNothing(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{egress.ErrPrivate, &net.DNSError{Err: "no such host", IsNotFound: true}} {
		var failed *fetchError
		require.ErrorAs(t, networkFailure(fmt.Errorf("dial: %w", cause)), &failed)
		require.Empty(t, failed.code)
		require.Zero(t, failed.wait)
	}
}
