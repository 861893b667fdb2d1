package inbox

import (
	"context"

	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TurnPlace is where a turn belongs.
type TurnPlace struct {
	AgentID        string // the one that answered; it may have been deleted
	ConversationID string
}

// selectTurnPlaces is written without the list's other lengths: a list is cut into them.
var selectTurnPlaces = listStatement(`SELECT id, agent_id, conversation_id FROM turns WHERE org_id = $1 AND id IN {list}`, 1, 1)

// TurnPlaces tells where turns of an organization belong. Ids that are no turn's, or another organization's, are left out.
func (q *Queue) TurnPlaces(ctx context.Context, orgID string, turnIDs []string) (map[string]TurnPlace, error) {
	places := make(map[string]TurnPlace, len(turnIDs))
	err := eachPadded(turnIDs, func(size int, piece []string) error {
		_, err := store.ReadRows(ctx, q.db, "find turns", func(row store.Row) (struct{}, error) {
			var id string
			var place TurnPlace
			err := row.Scan(&id, &place.AgentID, &place.ConversationID)
			places[id] = place
			return struct{}{}, err
		}, selectTurnPlaces[size], anys(piece, any(orgID))...)
		return err
	})
	return places, err
}
