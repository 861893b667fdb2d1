package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/media"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// filesAtOnce is how many files a worker has in memory at a time.
const filesAtOnce = 4

// sendFile sends a file. What fails before the platform is called is tried again, unless the file can't be read for good.
func (p *pass) sendFile(ctx context.Context, row *inbox.Outbound, out *platforms.Outgoing) (id string, err error) {
	select {
	case p.files <- struct{}{}:
	case <-ctx.Done():
		return "", platforms.RetryLater(0, context.Cause(ctx))
	}
	defer func() { <-p.files }()
	bounded, cancel := storing(ctx)
	file, err := media.ToSend(bounded, p.DB, p.Ring, p.lease.OrgID, row.FileID)
	cancel()
	switch {
	case errors.Is(err, store.ErrNotFound):
		return "", platforms.Fail(platforms.Refused, fmt.Errorf("reading a file to send: %w", err))
	case err != nil:
		return "", platforms.RetryLater(0, fmt.Errorf("reading a file to send: %w", err))
	}
	return p.Platforms.SendFile(ctx, *out, file)
}
