package store

import (
	"context"
	"database/sql"
	"slices"
)

// Agent is an assistant: the instructions of its model and the settings of its answers. The store checks only the constraints of the
// tables; its callers check the lengths of texts and the ranges of numbers.
type Agent struct {
	ID, OrgID string
	Name      string // unique within the organization
	// Model is a model's id. The model may no longer exist.
	Model        string
	Instructions string
	UseBYOK      bool  // ask with the organization's own provider key
	MaxTokens    int64 // of an answer; 0 leaves it to the model
	// TemperatureMilli is the temperature in thousandths, 0 to 2,000; absent leaves it to the model.
	TemperatureMilli sql.NullInt64
	// DebounceMS is the time without a new message after which the answer is made. DebounceMaxMS bounds that delay from the first message
	// on. Both are milliseconds. 0 means immediately, and the queue's default.
	DebounceMS, DebounceMaxMS int64
	Supersede                 bool // a newer message discards the unsent answer and asks once more
	// PauseMS is the time in milliseconds during which the agent doesn't answer after a human wrote. 0 means the queue's default, [NoPause]
	// none.
	PauseMS int64
	// Handover allows the agent to hand conversations over to people. A message with one of HandoverWords always causes a handover.
	// HandoverReply is sent if the model has written nothing; empty means that nothing is sent.
	Handover      bool
	HandoverWords []string `db:"lines"`
	HandoverReply string
	// Typing shows customers that their messages were read and that an answer is being written.
	Typing bool
	// KnowledgeBaseIDs are the organization's knowledge bases that the agent searches, in order of id.
	KnowledgeBaseIDs []string `db:"-"`
	// CreatedAt and UpdatedAt are epoch milliseconds. A CreatedAt of 0 becomes the transaction's clock.
	CreatedAt, UpdatedAt int64
}

var agents = newTable[Agent]("agents", nil)

var listedAgents = `SELECT ` + agents.list("", map[string]string{"instructions": "''"}) + ` FROM agents`

// NoPause is the [Agent].PauseMS of an agent that continues to answer after a human wrote: the shortest pause, because 0 means the default.
const NoPause = 1

// Agents reads and writes agents.
type Agents struct{ db *DB }

// Create adds an agent. It returns [ErrConflict] if the organization has an agent with this name, [ErrNotFound] for an unknown
// organization, [ErrLimit] if the organization has [MaxAgents], and [ErrKnowledgeBaseNotFound] for a knowledge base of another
// organization. UpdatedAt becomes CreatedAt.
func (a Agents) Create(ctx context.Context, actor string, agent Agent) error {
	return a.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		if err := checkRoom(ctx, tx, agent.OrgID, MaxAgents, `SELECT count(*) FROM agents WHERE org_id = $1`); err != nil {
			return err
		}
		if err := lockKnowledgeBases(ctx, tx, agent.OrgID, agent.KnowledgeBaseIDs); err != nil {
			return err
		}
		agent.CreatedAt = orNow(tx, agent.CreatedAt)
		agent.UpdatedAt = agent.CreatedAt
		agents.queueInsert(tx, &agent)
		queueAgentKnowledge(tx, agent.OrgID, agent.ID, agent.KnowledgeBaseIDs)
		audit(tx, actor, "agent.create", agent.ID, agent.OrgID, agent.Name)
		return nil
	})
}

// Update changes an agent. edit changes the agent as the transaction has read it, so that two concurrent changes don't undo each other. All
// fields except id, organization and CreatedAt are written, with the transaction's clock as UpdatedAt. edit may run more than once and must
// not wait; Update returns its error. Update returns [ErrNotFound] if the organization has no such agent, [ErrConflict] if another agent
// has the name, and [ErrKnowledgeBaseNotFound] for a knowledge base of another organization.
func (a Agents) Update(ctx context.Context, actor, orgID, id string, edit func(*Agent) error) error {
	return a.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		agent, err := agents.lock(ctx, tx, orgID, id)
		if err != nil {
			return err
		}
		agent.KnowledgeBaseIDs, err = QueryValues[string](ctx, tx, `SELECT knowledge_base_id FROM agent_knowledge_bases
			WHERE org_id = $1 AND agent_id = $2 ORDER BY knowledge_base_id`, orgID, id)
		if err != nil {
			return err
		}
		known := slices.Clone(agent.KnowledgeBaseIDs)
		if err := edit(&agent); err != nil {
			return err
		}
		if !slices.Equal(sortedSet(agent.KnowledgeBaseIDs), known) {
			if err := lockKnowledgeBases(ctx, tx, orgID, agent.KnowledgeBaseIDs); err != nil {
				return err
			}
			tx.Queue(AnyRows, `DELETE FROM agent_knowledge_bases WHERE org_id = $1 AND agent_id = $2`, orgID, id)
			queueAgentKnowledge(tx, orgID, id, agent.KnowledgeBaseIDs)
		}
		agent.UpdatedAt = tx.Now()
		agents.queueUpdate(tx, &agent, orgID, id)
		audit(tx, actor, "agent.update", id, orgID, agent.Name)
		return nil
	})
}

// Delete removes an organization's agent. It returns [ErrNotFound] if there is none. Its channels have no agent from then on.
func (a Agents) Delete(ctx context.Context, actor, orgID, id string) error {
	return a.db.Exec(ctx, func(ctx context.Context, tx Tx) error {
		// The agent goes first: a transaction that gives it to a channel holds its row, and is waited for here.
		if err := change(ctx, tx, `DELETE FROM agents WHERE id = $1 AND org_id = $2 RETURNING id`, id, orgID); err != nil {
			return err
		}
		tx.Queue(AnyRows, `UPDATE channels SET agent_id = NULL, updated_at = $3 WHERE agent_id = $1 AND org_id = $2`,
			id, orgID, tx.Now())
		audit(tx, actor, "agent.delete", id, orgID, "")
		return nil
	})
}

// ByID reads an organization's agent. It returns [ErrNotFound] if there is none.
func (a Agents) ByID(ctx context.Context, orgID, id string) (Agent, error) {
	agent, err := ReadRow(ctx, a.db, "read an agent", agents.scan, agents.selected+` WHERE id = $1 AND org_id = $2`, id, orgID)
	if err != nil {
		return Agent{}, err
	}
	read := []Agent{agent}
	err = a.readKnowledge(ctx, orgID, read)
	return read[0], err
}

// List reads a page of an organization's agents, oldest first, without their Instructions, because the instructions of a page may have 40
// MB.
func (a Agents) List(ctx context.Context, orgID string, page Page) ([]Agent, error) {
	list, err := readPage(ctx, a.db, "list agents", agents.scan, listedAgents+` WHERE org_id = $1`, "id", page, orgID)
	if err == nil {
		err = a.readKnowledge(ctx, orgID, list)
	}
	return list, err
}

// lockAgent keeps an organization's agent from being deleted until the transaction ends, or returns [ErrAgentNotFound].
func lockAgent(ctx context.Context, tx Tx, orgID, id string) error {
	found, err := Changed(ctx, tx, `SELECT id FROM agents WHERE id = $1 AND org_id = $2`+tx.LockRows(), id, orgID)
	if err == nil && !found {
		err = ErrAgentNotFound
	}
	return err
}

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
	bases := map[string][]string{}
	err := EachRow(ctx, a.db, "read the knowledge bases of agents", func(row Row) error {
		var agent, base string
		err := row.Scan(&agent, &base)
		bases[agent] = append(bases[agent], base)
		return err
	}, `SELECT agent_id, knowledge_base_id FROM agent_knowledge_bases
		WHERE org_id = $1 AND agent_id >= $2 AND agent_id <= $3 ORDER BY agent_id, knowledge_base_id`,
		orgID, agents[0].ID, agents[len(agents)-1].ID)
	for i := range agents {
		agents[i].KnowledgeBaseIDs = bases[agents[i].ID]
	}
	return err
}

func sortedSet(ids []string) []string {
	set := slices.Clone(ids)
	slices.Sort(set)
	return slices.Compact(set)
}
