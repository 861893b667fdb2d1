package widget

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
)

// TestDecodersAreFrugal bounds what a decoder of foreign bytes allocates for each byte.
func TestDecodersAreFrugal(t *testing.T) { //nolint:paralleltest // it measures what the process allocates
	handlertest.RequireFrugalDecoders(t, visitorDecoders(t))
}

func visitorDecoders(t *testing.T) []handlertest.ForeignDecoder {
	s := openSite(t)
	token := s.begin(t, `{}`)
	serve := func(path, origin, token string) func(t *testing.T, body string) {
		return func(t *testing.T, body string) {
			w := handlertest.Served(s.Serve, visitorRequest(http.MethodPost, path, origin, token, body))
			require.NotContains(t, []int{http.StatusForbidden, http.StatusNotFound}, w.Code, w.Body.String())
		}
	}
	return []handlertest.ForeignDecoder{
		{Name: "a visitor's session", Most: endpoint.MaxPublicBody, Bodies: handlertest.Within(`{"token":%}`, `{"x":%}`), Decode: serve("/widget/chn_1/session", shop, "")},
		{Name: "a visitor's message", Most: maxVisitorBody, Bodies: handlertest.Within(`{"id":%}`, `{"text":%}`, `{"id":"m","x":%}`), Decode: serve("/widget/chn_1/messages", "", token)},
	}
}
