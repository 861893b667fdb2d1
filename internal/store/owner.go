package store

import (
	"context"
	"fmt"
)

// OwnedKind is a sort of resource that belongs to an organization.
type OwnedKind string

// The sorts of resources whose owner can be asked for.
const (
	OwnedAgents        OwnedKind = "agents"
	OwnedChannels      OwnedKind = "channels"
	OwnedConversations OwnedKind = "conversations"
	OwnedAPIKeys       OwnedKind = "api_keys"
	OwnedUsers         OwnedKind = "users"

	OwnedKnowledgeBases OwnedKind = "knowledge_bases"
	OwnedDocuments      OwnedKind = "documents"
)

// OwnerOf is the organization that a resource belongs to, or [ErrNotFound]. It is for the miss path only: an id that an
// organization doesn't have is forbidden when it is another's, and unknown otherwise (design §6).
func (db *DB) OwnerOf(ctx context.Context, kind OwnedKind, id string) (orgID string, err error) {
	switch kind {
	case OwnedAgents, OwnedChannels, OwnedConversations, OwnedAPIKeys, OwnedUsers, OwnedKnowledgeBases, OwnedDocuments:
	default:
		return "", fmt.Errorf("store: find an owner: there is no kind %q", string(kind))
	}
	text := `SELECT org_id FROM ` + string(kind) + ` WHERE id = $1`
	if kind == OwnedUsers {
		text += ` UNION ALL SELECT org_id FROM invitations WHERE id = $1`
	}
	return ReadRow(ctx, db, "find an owner", func(row Row) (orgID string, err error) {
		err = row.Scan(&orgID)
		return orgID, err
	}, text, id)
}
