package command

import (
	"context"
	"fmt"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

type auditEntryAnswer struct {
	At     string `json:"at"`
	Actor  string `json:"actor"`
	Action string `json:"action"`
	Target string `json:"target"`
	OrgID  string `json:"orgId"`
	Detail string `json:"detail"`
}

func newAuditEntryAnswer(e store.AuditEntry) auditEntryAnswer {
	return auditEntryAnswer{At: moment(e.At), Actor: e.Actor, Action: e.Action, Target: e.Target, OrgID: e.OrgID, Detail: e.Detail}
}

func (e auditEntryAnswer) cells() []string {
	return []string{e.At, e.Actor, e.Action, e.Target, e.OrgID, oneLine(e.Detail)}
}

// oneLine removes what would break the table or control the terminal from free text, such as the reason of an adjustment.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

const mostAuditRows = 10_000

func auditCommand(f *commandFlags) *cobra.Command {
	var limit int
	var org string
	command := &cobra.Command{
		Use:   "audit [--org ORG_ID] [--limit N]",
		Short: "Shows the audit log: who changed what, the latest first",
	}
	command.Flags().StringVar(&org, "org", "", "only the entries of the organization with this `id`")
	command.Flags().IntVar(&limit, "limit", 100, fmt.Sprintf("how many `rows`, 1 to %d", mostAuditRows))
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		if limit < 1 || limit > mostAuditRows {
			return nil, fmt.Errorf("--limit is %d, want 1 to %d", limit, mostAuditRows)
		}
		read := func() ([]store.AuditEntry, error) { return e.db.AuditLog.Newest(ctx, limit) }
		if org != "" {
			if _, err := e.organization(ctx, org); err != nil {
				return nil, err
			}
			read = func() ([]store.AuditEntry, error) { return e.auditLogOf(ctx, org, limit) }
		}
		entries, err := read()
		if err != nil {
			return nil, fmt.Errorf("reading the audit log: %w", err)
		}
		return newList("AT\tACTOR\tACTION\tTARGET\tORGANIZATION\tDETAIL", entries, newAuditEntryAnswer), nil
	})
}

// auditLogOf returns an organization's newest limit entries.
func (e *commandEnv) auditLogOf(ctx context.Context, org string, limit int) (entries []store.AuditEntry, err error) {
	var after string
	for len(entries) < limit {
		page := store.Page{After: after, Limit: limit - len(entries)}
		rows, err := e.db.AuditLog.List(ctx, org, page)
		if err != nil {
			return nil, err
		}
		entries = append(entries, rows...)
		if len(rows) < page.Rows() {
			break
		}
		after = rows[len(rows)-1].ID
	}
	return entries, nil
}
