package store

import (
	"context"
	"slices"
)

// lockKnowledgeBases keeps an organization's knowledge bases from being deleted until the transaction ends, or returns
// [ErrKnowledgeBaseNotFound] when one isn't there.
func lockKnowledgeBases(ctx context.Context, tx Tx, orgID string, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	arguments := []any{orgID}
	list := in(&arguments, ids)
	found, err := QueryValues[string](ctx, tx,
		`SELECT id FROM knowledge_bases WHERE org_id = $1 AND id IN `+list+` ORDER BY id`+tx.LockRows(), arguments...)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if !slices.Contains(found, id) {
			return ErrKnowledgeBaseNotFound
		}
	}
	return nil
}

// agentKnowledge reads, in a transaction, which knowledge bases an agent has.
func agentKnowledge(ctx context.Context, tx Tx, orgID, agentID string) ([]string, error) {
	return QueryValues[string](ctx, tx, `SELECT knowledge_base_id FROM agent_knowledge_bases
		WHERE org_id = $1 AND agent_id = $2 ORDER BY knowledge_base_id`, orgID, agentID)
}

// changeAgentKnowledge replaces the knowledge bases of an agent.
func changeAgentKnowledge(ctx context.Context, tx Tx, orgID, agentID string, known, baseIDs []string) error {
	if slices.Equal(sortedSet(baseIDs), known) {
		return nil
	}
	if err := lockKnowledgeBases(ctx, tx, orgID, baseIDs); err != nil {
		return err
	}
	tx.Queue(AnyRows, `DELETE FROM agent_knowledge_bases WHERE org_id = $1 AND agent_id = $2`, orgID, agentID)
	queueAgentKnowledge(tx, orgID, agentID, baseIDs)
	return nil
}

// queueAgentKnowledge writes the knowledge bases of an agent that has none.
func queueAgentKnowledge(tx Tx, orgID, agentID string, baseIDs []string) {
	for _, id := range sortedSet(baseIDs) {
		tx.Queue(1, `INSERT INTO agent_knowledge_bases (org_id, agent_id, knowledge_base_id) VALUES ($1, $2, $3)`,
			orgID, agentID, id)
	}
}

// readKnowledge fills in the knowledge bases of the agents of a page.
func (a Agents) readKnowledge(ctx context.Context, orgID string, agents []Agent) error {
	if len(agents) == 0 {
		return nil
	}
	type known struct{ agentID, baseID string }
	rows, err := ReadRows(ctx, a.db, "read the knowledge bases of agents", func(row Row) (k known, err error) {
		err = row.Scan(&k.agentID, &k.baseID)
		return k, err
	}, `SELECT agent_id, knowledge_base_id FROM agent_knowledge_bases
		WHERE org_id = $1 AND agent_id >= $2 AND agent_id <= $3 ORDER BY agent_id, knowledge_base_id`,
		orgID, agents[0].ID, agents[len(agents)-1].ID)
	if err != nil {
		return err
	}
	place := make(map[string]int, len(agents))
	for i := range agents {
		place[agents[i].ID] = i
	}
	for _, row := range rows {
		if i, ok := place[row.agentID]; ok {
			agents[i].KnowledgeBaseIDs = append(agents[i].KnowledgeBaseIDs, row.baseID)
		}
	}
	return nil
}

func sortedSet(ids []string) []string {
	set := slices.Clone(ids)
	slices.Sort(set)
	return slices.Compact(set)
}
