package providers

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"
)

// ErrNoList is returned by [Lister] if the protocol has no list of models.
var ErrNoList = errors.New("the protocol has no list of models")

// ListedModel is a model in a vendor's list.
type ListedModel struct {
	// Name is the vendor's name of the model, and Aliases are other names for it.
	Name    string
	Aliases []string
	// Shutdown is the time from which the vendor no longer serves the model. Zero means that the vendor names none.
	Shutdown time.Time
}

// Lister is an optional interface of a [Provider] whose vendor lists its models. The operator's checks use it, model calls never do.
type Lister interface {
	// ListModels requests the vendor's list once, with apiKey or without credentials if it is empty. It returns [ErrNoList] if there is
	// no list. Other errors are *[Error].
	ListModels(ctx context.Context, apiKey string) ([]ListedModel, error)
}

// ListDialect is an optional interface of a [Dialect] whose vendor lists its models.
type ListDialect interface {
	// ListEndpoint returns the address of the list. It is read with GET and the headers of [Dialect.Header].
	ListEndpoint() *url.URL
	// ReadList reads the body of the list. An error that isn't an *[Error] counts as FailureRefused.
	ReadList(body []byte) ([]ListedModel, error)
}

var _ Lister = (*HTTP)(nil)

const (
	// listWait limits the request of a list.
	listWait = 30 * time.Second
	// maxListBytes limits a list. OpenRouter's has 1 MB.
	maxListBytes = 16 << 20
)

var errListTimeout = &timeoutError{"no list of models", listWait}

// ListModels implements [Lister].
func (p *HTTP) ListModels(ctx context.Context, apiKey string) ([]ListedModel, error) {
	dialect, ok := p.dialect.(ListDialect)
	if !ok {
		return nil, ErrNoList
	}
	ctx, cancel := context.WithTimeoutCause(ctx, listWait, errListTimeout)
	defer cancel()
	c := &call{ctx: ctx}
	req := blank.WithContext(ctx)
	req.Method, req.URL, req.Header = http.MethodGet, dialect.ListEndpoint(), p.requestHeader(&Request{APIKey: apiKey})
	req.Host = req.URL.Host
	req.Header.Del("Content-Type")
	resp, err := p.transport.RoundTrip(req)
	if err != nil {
		return nil, c.failure(err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	body, err := decodedBody(resp)
	if err != nil {
		return nil, c.unreadable(err)
	}
	raw, err := io.ReadAll(&cappedReader{body, maxListBytes})
	switch {
	case errors.Is(err, errAnswerTooLarge):
		return nil, &Error{Failure: FailureRefused, Elsewhere: true, Status: resp.StatusCode, Cause: err}
	case err != nil:
		return nil, c.failure(err)
	case resp.StatusCode != http.StatusOK:
		return nil, tidy(p.dialect.Fault(resp.StatusCode, resp.Header, raw[:min(len(raw), maxErrorBytes)]), resp.StatusCode, apiKey)
	}
	models, err := dialect.ReadList(raw)
	if err != nil {
		return nil, asError(err, resp.StatusCode, apiKey)
	}
	return models, nil
}
