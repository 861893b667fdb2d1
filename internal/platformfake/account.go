package platformfake

import (
	"strconv"

	"github.com/caddy-svc/caddy-svc/platforms"
	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/localchat"
	"github.com/caddy-svc/caddy-svc/platforms/marketa"
	"github.com/caddy-svc/caddy-svc/platforms/marketb"
)

// account is the owner of a token.
type account struct {
	platform      platforms.Type
	externalID    string
	access, fresh string // its tokens now
	expired       bool   // the access token
	revoked       bool
}

// bad reports whether the server refuses the token. It accepts tokens of no account.
func (a *account) bad() bool { return a != nil && (a.expired || a.revoked) }

// Account makes an account with fresh credentials, which [platforms.Platform.Identify] finds to be externalID. For the bot
// platform externalID is a number, the id of the bot.
func (s *Server) Account(t platforms.Type, externalID string) platforms.Credentials {
	s.mu.Lock()
	defer s.mu.Unlock()
	owner := &account{platform: t, externalID: externalID}
	s.issue(owner)
	if t == bot.Type {
		return platforms.Credentials{"botToken": owner.access, "secretToken": "delivery-secret-" + externalID}
	}
	credentials := platforms.Credentials{platforms.AccessToken: owner.access}
	if owner.fresh != "" {
		credentials[platforms.RefreshToken] = owner.fresh
	}
	return credentials
}

// issue gives an account new tokens. The caller holds the mutex.
func (s *Server) issue(owner *account) {
	s.numbers++
	number := strconv.Itoa(s.numbers)
	if owner.access != "" {
		s.accounts[owner.access] = &account{platform: owner.platform, externalID: owner.externalID, expired: true}
	}
	owner.access = "access-" + string(owner.platform) + "-" + number
	if owner.platform == bot.Type {
		owner.access = owner.externalID + ":bot-token-" + number
	}
	s.accounts[owner.access] = owner
	if refreshable(owner.platform) {
		owner.fresh = "refresh-" + number
		s.refresh[owner.fresh] = owner
	}
	owner.expired = false
}

func refreshable(t platforms.Type) bool {
	return t == localchat.Type || t == marketa.Type || t == marketb.Type
}

// Expire ends an access token; the refresh token stays good. A token that the server didn't make is then known and bad.
func (s *Server) Expire(accessToken string) {
	s.change(accessToken, func(a *account) { a.expired = true })
}

// Revoke ends an access token and all refresh tokens of its account.
func (s *Server) Revoke(accessToken string) {
	s.change(accessToken, func(a *account) { a.revoked = true })
}

func (s *Server) change(accessToken string, change func(*account)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	owner := s.accounts[accessToken]
	if owner == nil {
		owner = &account{access: accessToken}
		s.accounts[accessToken] = owner
	}
	change(owner)
}

// exchangeToken gives the account of a good access token a new one, and keeps the old one good, as the photo service does.
func (s *Server) exchangeToken(t platforms.Type, accessToken string) (access string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	owner := s.accounts[accessToken]
	if owner == nil || owner.bad() || owner.platform != t {
		return "", false
	}
	s.issue(owner)
	s.accounts[accessToken] = &account{platform: t, externalID: owner.externalID}
	return owner.access, true
}

// rotate is a refresh: the token is used up, whatever becomes of the answer.
func (s *Server) rotate(t platforms.Type, refreshToken string) (access, fresh string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	owner := s.refresh[refreshToken]
	delete(s.refresh, refreshToken)
	if owner == nil || owner.platform != t || owner.revoked {
		return "", "", false
	}
	s.issue(owner)
	return owner.access, owner.fresh, true
}

// whose returns the account of a token, if it is good.
func (s *Server) whose(t platforms.Type, accessToken string) (externalID string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	owner := s.accounts[accessToken]
	if owner == nil || owner.bad() || owner.platform != t {
		return "", false
	}
	return owner.externalID, true
}
