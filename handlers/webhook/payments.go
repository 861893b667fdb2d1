package webhook

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/internal/topup"
	"github.com/caddy-svc/caddy-svc/payments"
)

// PaymentsPath is the address of the deliveries of payments, before the provider's name.
const PaymentsPath = "/payments/"

const (
	// maxPayment is the largest delivery of payments that is read, in bytes.
	maxPayment = 64 << 10
	// paymentTime bounds how long a delivery of payments may take to arrive, and how long to be booked. Providers give up after 5 to 30 s.
	paymentTime = 10 * time.Second
)

// Payments receives the deliveries of providers of payments. A delivery is acknowledged when all of its payments are booked in some state; otherwise
// the provider must repeat it.
type Payments struct {
	Payments *topup.Payments
	// Bodies is the budget of all buffered request bodies. nil means unlimited.
	Bodies *handlers.ByteBudget
	Log    *slog.Logger
}

// Serve serves POST /payments/{provider}. Provider is the name of the provider, and empty if the address has no configured one.
func (h *Payments) Serve(w http.ResponseWriter, r *http.Request) (provider string, err error) {
	r, _ = handlers.EnsureRequestID(w, r)
	given, _ := strings.CutPrefix(r.URL.Path, PaymentsPath)
	name := strings.ReplaceAll(given, "-", "_")
	configured, found := h.Payments.Providers[name]
	if !found || strings.Contains(given, "_") || r.Method != http.MethodPost {
		return "", handlers.RouteNotFound(r)
	}
	account := handlers.Account{Share: handlers.ShareDeliveries, Owner: handlers.ClientAddress(r)}
	body, release, err := handlers.ReadPaced(handlers.NewPacedBody(w, r, paymentTime, 0), maxPayment, h.Bodies, account)
	defer release()
	if errors.Is(err, handlers.ErrBudget) {
		return name, handlers.Busy(handlers.BudgetRetryAfter, err)
	}
	if err != nil {
		return name, err
	}
	// The provider may hang up before the payment is booked.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), paymentTime)
	defer cancel()
	switch err = h.Payments.Receive(ctx, name, &payments.Delivery{Header: r.Header, Body: body}); {
	case errors.Is(err, payments.ErrProof):
		return name, errUnproven
	case errors.Is(err, topup.ErrUnread):
		h.Log.ErrorContext(ctx, "a delivery can't be read; look for its payment at the provider", "provider", name, "error", err)
		return name, handlers.InvalidRequest("", "The payment of the delivery can't be read.")
	case err != nil:
		return name, handlers.RetryLater(err, webhookRetryAfter)
	}
	if answer := configured.Description.Answer; answer != "" {
		handlers.WriteJSON(w, http.StatusOK, []byte(answer))
	} else {
		acknowledge(w, true, 0)
	}
	return name, nil
}
