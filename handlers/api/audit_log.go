package api

import (
	"context"
	"strings"

	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// AuditObject is an entry of the audit log as the API shows it.
type AuditObject struct {
	ID     string `json:"id"`
	At     string `json:"at"     format:"date-time"`
	Actor  string `json:"actor"  doc:"The id of a member or of an API key, operator, or a part of the service"`
	Action string `json:"action" doc:"What was done, as in api_key.revoke"`
	Target string `json:"target" doc:"The id, or name, of what it was done to"`
	Detail string `json:"detail"`
}

func showAudit(entry *store.AuditEntry) AuditObject {
	return AuditObject{
		ID: entry.ID, At: endpoint.Timestamp(entry.At), Actor: shownActor(entry.Actor), Action: entry.Action,
		Target: entry.Target, Detail: entry.Detail,
	}
}

// shownActor returns the actor as organizations see it, without the account on the operator's machine.
func shownActor(actor string) string {
	if strings.HasPrefix(actor, "cli") {
		return "operator"
	}
	return actor
}

// The operation on the audit log.
var (
	ListAuditLog = operation(administrators("listAuditLog", "GET /audit-log", noScope,
		"List who changed what, newest first"), (*Deps).listAuditLog)
)

var auditOperations = []Operation{ListAuditLog}

func (d *Deps) listAuditLog(ctx context.Context, principal *identity.Principal, in *pageInput) (*pageOf[AuditObject], error) {
	return listRows(ctx, principal, in, d.DB.AuditLog.List, func(row *store.AuditEntry) string { return row.ID }, showAudit)
}
