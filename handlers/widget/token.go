package widget

import (
	"encoding/base64"
	"errors"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
)

const (
	// visitLife is how long a visitor's token opens the conversation.
	visitLife = 12 * time.Hour
	// visitReturn is how long after its end a page of an allowed origin can still exchange it for a new one, so that the
	// visitor finds the conversation again. It then opens nothing by itself.
	visitReturn = 30 * 24 * time.Hour
	// maxVisitToken bounds a token's text.
	maxVisitToken = 2048
)

var (
	errNoVisit    = errors.New("the token is none of this widget's")
	errVisitEnded = errors.New("the visit has ended")
)

// visit is the content of a visitor's token. The token is the visit, sealed for its channel under the master key: it can't be
// read or changed, every node opens it, and nothing of it is stored.
type visit struct {
	Visitor string `json:"v"`
	// Origin is the page's origin. When the channel no longer allows it, its tokens are useless.
	Origin string `json:"o"`
	// Ends is in Unix seconds.
	Ends int64 `json:"e"`
}

// newVisit begins a visit, or goes on with the visitor of an earlier one.
func newVisit(origin string, earlier *visit, now time.Time) visit {
	v := visit{Visitor: store.NewID("vis"), Origin: origin, Ends: now.Add(visitLife).Unix()}
	if earlier != nil {
		v.Visitor = earlier.Visitor
	}
	return v
}

func (v visit) ended(now time.Time) bool { return now.Unix() >= v.Ends }

// returnable reports whether the visitor may come back.
func (v visit) returnable(now time.Time) bool {
	return now.Before(time.Unix(v.Ends, 0).Add(visitReturn))
}

func (v visit) token(ring *vault.Ring, widget *store.Widget) string {
	sealed := ring.Seal(handlers.Marshal(v), vault.WidgetVisit(widget.OrgID, widget.ChannelID))
	return base64.RawURLEncoding.EncodeToString(sealed)
}

// openVisit reads a token of the widget, whether or not it has ended; else errNoVisit.
func openVisit(ring *vault.Ring, widget *store.Widget, token string) (visit, error) {
	if token == "" || len(token) > maxVisitToken {
		return visit{}, errNoVisit
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil {
		return visit{}, errNoVisit
	}
	plain, err := ring.Open(sealed, vault.WidgetVisit(widget.OrgID, widget.ChannelID))
	if err != nil { // another channel's, an old key's, or made up
		return visit{}, errNoVisit
	}
	var v visit
	if err := json.Unmarshal(plain, &v); err != nil || v.Visitor == "" {
		return visit{}, errNoVisit
	}
	return v, nil
}
