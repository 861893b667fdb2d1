package abuse

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/v1"
	"github.com/caddy-svc/caddy-svc/handlers/webhook"
	"github.com/caddy-svc/caddy-svc/internal/builtin"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// Route is an address that takes a body, and its answer to one that doesn't arrive.
type Route struct {
	Method, Path string
	// Header is the line that a request needs to come that far, "" for none.
	Header string
	Status int
	// Code is that of the error, "" for an answer that isn't JSON or no error.
	Code string
}

func (r Route) String() string { return r.Method + " " + r.Path }

// The headers of attackers.
const (
	formHeader = "Content-Type: application/x-www-form-urlencoded"
	botHeader  = "X-Bot-Api-Secret-Token: "
)

// bodiless are the ends of addresses that take no body.
var bodiless = []string{"verify", "handover", "handback", "block", "unblock", "retry", "dismiss", "rotate-secret", "test"}

var variable = regexp.MustCompile(`\{[^}]+\}`)

// Routes are all addresses of the product that take a body, as its own lists say, and the dashboard's public forms; those
// that need a key come with the attacker's.
func (t *Target) Routes() []Route {
	const origin = "Origin: " + Origin
	key := "Authorization: Bearer " + t.Key
	slow := func(path, header string) Route {
		return Route{http.MethodPost, path, header, http.StatusBadRequest, string(errcode.InvalidRequest)}
	}
	page := func(path string) Route { return Route{http.MethodPost, path, formHeader, http.StatusBadRequest, ""} }
	routes := []Route{
		page("/dashboard/login"), page("/dashboard/welcome"),
		{http.MethodPost, "/dashboard/logout", formHeader, http.StatusSeeOther, ""}, // without a session, to the login
		{http.MethodPost, "/dashboard/keys", formHeader, http.StatusSeeOther, ""},
		{http.MethodPost, "/nowhere", "", http.StatusNotFound, string(errcode.NotFound)},
		// Bots show their secret before their body.
		{http.MethodPost, "/webhooks/bot/" + store.NewID("chn"), botHeader + "wrong", http.StatusOK, ""},
		{http.MethodPost, "/webhooks/bot/" + t.Bot, botHeader + "wrong", http.StatusUnauthorized, string(errcode.Unauthenticated)},
		slow("/webhooks/bot/"+t.Bot, botHeader+t.BotSecret),
		slow("/widget/"+t.Widget+"/session", origin),
		slow("/widget/"+t.Widget+"/messages", origin+"\r\nAuthorization: Bearer "+t.VisitorToken),
	}
	catalog, _ := messaging.NewCatalog(builtin.Platforms()) // the built-in ones have no fault
	for _, r := range slices.Concat(v1.Routes(), webhook.Routes(catalog), api.New(api.Deps{}).Routes()) {
		path := variable.ReplaceAllString(r.Path, store.NewID("zzz"))
		switch {
		case r.Method != http.MethodPost && r.Method != http.MethodPut && r.Method != http.MethodPatch,
			strings.HasPrefix(path, "/widget/"), strings.HasPrefix(path, "/webhooks/bot/"): // these are above
		case r.Public, strings.HasPrefix(path, "/webhooks/"):
			routes = append(routes, slow(path, ""))
		case slices.Contains(bodiless, path[strings.LastIndexByte(path, '/')+1:]):
			routes = append(routes, Route{r.Method, path, key, http.StatusNotFound, string(errcode.NotFound)})
		case r.Scope != "":
			route := slow(path, key)
			route.Method = r.Method
			routes = append(routes, route)
		default: // only for people
			routes = append(routes, Route{r.Method, path, "", http.StatusUnauthorized, string(errcode.Unauthenticated)})
		}
	}
	return routes
}
