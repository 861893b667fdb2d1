package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// keyAnswer is an API key in a result, without the key itself, which the store doesn't have.
type keyAnswer struct {
	ID          string   `json:"id"`
	OrgID       string   `json:"orgId"`
	Name        string   `json:"name"`
	Environment string   `json:"environment"`
	Scopes      []string `json:"scopes"`
	Hint        string   `json:"hint"`
	CreatedAt   string   `json:"createdAt"`
	ExpiresAt   *string  `json:"expiresAt"`
	RevokedAt   *string  `json:"revokedAt"`
}

func newKeyAnswer(k store.APIKey) keyAnswer {
	return keyAnswer{
		ID: k.ID, OrgID: k.OrgID, Name: k.Name, Environment: string(k.Env), Scopes: k.Scopes, Hint: k.Hint,
		CreatedAt: moment(k.CreatedAt), ExpiresAt: nullableMoment(k.ExpiresAt), RevokedAt: nullableMoment(k.RevokedAt),
	}
}

// issuedKeyAnswer is a new API key with the key itself, which is shown only once.
type issuedKeyAnswer struct {
	keyAnswer
	Key string `json:"key"`
}

func (k issuedKeyAnswer) text(w *strings.Builder) {
	fmt.Fprintf(w, "key\t%s\nid\t%s\norganization\t%s\nenvironment\t%s\nscopes\t%s\nexpires\t%s\n",
		k.Key, k.ID, k.OrgID, k.Environment, strings.Join(k.Scopes, ", "), orDash(k.ExpiresAt))
	fmt.Fprintln(w, "Keep the key now: it is not stored and can't be shown again.")
}

func (k keyAnswer) cells() []string {
	return []string{k.ID, k.Hint, k.Name, strings.Join(k.Scopes, ","), k.CreatedAt, orDash(k.ExpiresAt), orDash(k.RevokedAt)}
}

type keyRevokedAnswer struct {
	ID      string `json:"id"`
	OrgID   string `json:"orgId"`
	Revoked bool   `json:"revoked"`
}

func (k keyRevokedAnswer) text(w *strings.Builder) {
	fmt.Fprintf(w, "API key %s of organization %s is revoked.\n", k.ID, k.OrgID)
}

func keyCommand(f *commandFlags) *cobra.Command {
	return noun(&cobra.Command{
		Use:   "key",
		Short: "Creates, lists and revokes the API keys of an organization",
	}, f.keyCreate(), f.keyList(), f.keyRevoke())
}

func (f *commandFlags) keyCreate() *cobra.Command {
	var request identity.KeyRequest
	var days int64
	var at string
	command := &cobra.Command{
		Use:   "create --org ORG_ID [flags]",
		Short: "Creates an API key and shows it, only this once",
		Long: "Creates an API key and shows it, only this once: the store has its SHA-256 hash.\n\nScopes: " +
			identity.JoinScopes(identity.AllScopes(), ", ") + ".",
		Example: `  $ caddy svc key create --org org_… --name "web shop" --json
  $ caddy svc key create --org org_… --env test --scopes models:read,chat:write,wallet:read --expires-in-days 90`,
	}
	env := envFlag(command)
	flags := command.Flags()
	flags.StringVar(&request.Name, "name", "", "a `name`, unique among the organization's keys in use")
	flags.StringSliceVar(&request.Scopes, "scopes", nil,
		"`scopes`, with commas between (default "+identity.JoinScopes(identity.DefaultScopes(), ",")+")")
	flags.Int64Var(&days, "expires-in-days", 0,
		fmt.Sprintf("the key expires after `N` days, %d to %d", identity.MinExpiryDays, identity.MaxExpiryDays))
	flags.StringVar(&at, "expires-at", "", "the key expires at this RFC 3339 `time`, which may lie in the past")
	command.MarkFlagsMutuallyExclusive("expires-in-days", "expires-at")
	return f.orgVerb(command, func(ctx context.Context, e *commandEnv, orgID string) (answer, error) {
		request.OrgID, request.Env = orgID, store.Env(*env)
		var err error
		if request.ExpiresAt, err = expiry(command, days, at); err != nil {
			return nil, err
		}
		key, err := identity.CreateAPIKey(ctx, e.db, e.actor, request)
		if errors.Is(err, store.ErrConflict) {
			return nil, fmt.Errorf("organization %s already has an API key with the name %q; revoke that one or choose another name",
				orgID, request.Name)
		}
		if err != nil {
			return nil, err
		}
		return issuedKeyAnswer{keyAnswer: newKeyAnswer(key.APIKey), Key: key.Raw}, nil
	})
}

// expiry returns the moment that one of the two flags gives, nil without them.
func expiry(command *cobra.Command, days int64, at string) (*time.Time, error) {
	var moment time.Time
	var err error
	switch {
	case command.Flags().Changed("expires-in-days"):
		moment, err = identity.ExpiryInDays(time.Now(), days)
	case command.Flags().Changed("expires-at"):
		moment, err = identity.ExpiryAt(at)
	default:
		return nil, nil //nolint:nilnil // a key without expiry is the ordinary case
	}
	if err != nil {
		return nil, err
	}
	return &moment, nil
}

func (f *commandFlags) keyList() *cobra.Command {
	command := &cobra.Command{Use: "list --org ORG_ID", Short: "Lists the API keys of an organization, revoked ones too"}
	return f.orgVerb(command, func(ctx context.Context, e *commandEnv, orgID string) (answer, error) {
		keys, err := e.db.APIKeys.All(ctx, orgID)
		if err != nil {
			return nil, err
		}
		return newList("ID\tHINT\tNAME\tSCOPES\tCREATED\tEXPIRES\tREVOKED", keys, newKeyAnswer), nil
	})
}

func (f *commandFlags) keyRevoke() *cobra.Command {
	command := &cobra.Command{
		Use:     "revoke KEY_ID",
		Short:   "Revokes an API key for good, from the next request on",
		Example: "  $ caddy svc key revoke key_…",
		Args:    exactly("the key's id"),
	}
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		id := e.args[0]
		if strings.HasPrefix(id, "ck_") {
			return nil, errors.New("that is an API key, not the id of one (key_…); " +
				"`caddy svc key list` shows the ids beside the keys' first characters")
		}
		orgID, err := e.db.OwnerOf(ctx, store.OwnedAPIKeys, id)
		if errors.Is(err, store.ErrNotFound) {
			return nil, fmt.Errorf("there is no API key with the id %q; `caddy svc key list --org ORG_ID` shows them", id)
		}
		if err != nil {
			return nil, err
		}
		if err := e.db.APIKeys.Revoke(ctx, e.actor, orgID, id); err != nil {
			return nil, err
		}
		return keyRevokedAnswer{ID: id, OrgID: orgID, Revoked: true}, nil
	})
}
