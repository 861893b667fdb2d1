package api

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/conditions"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// TestConditionsAndDoctor: the operator reads the conditions with their advice, and the doctor's last result, and starts it unless it runs.
func TestConditionsAndDoctor(t *testing.T) {
	t.Parallel()
	o := newFixture(t)
	operator, err := o.Operator(t.Context(), identity.CommandLine("cli:lan"), "")
	require.NoError(t, err)
	run := func(operation Operation, values endpoint.Values) string {
		t.Helper()
		body, err := operation.Run(t.Context(), o.Deps, operator, values)
		require.NoError(t, err)
		return string(handlers.Marshal(body))
	}
	refused := func(code errcode.Code) {
		t.Helper()
		_, err := RunDoctor.Run(t.Context(), o.Deps, operator, endpoint.Values{"all": true})
		refusal, ok := errors.AsType[*handlers.Error](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, code, refusal.Code)
	}
	require.JSONEq(t, `{"data":[],"nextCursor":null}`, run(ListConditions, nil))
	require.JSONEq(t, `{"runningSince":null,"state":null,"startedAt":null,"endedAt":null,"startedBy":null,"node":null,"invariants":[]}`, run(GetDoctor, nil))
	write := func(text string) {
		t.Helper()
		require.NoError(t, o.DB.Exec(t.Context(), func(_ context.Context, tx store.Tx) error {
			tx.Queue(1, text)
			return nil
		}))
	}
	write(`INSERT INTO conditions (kind, subject, node, since, text) VALUES ('turns_dead', '', '', 1, 'Answers that were given up: 1.')`)
	require.JSONEq(t, `{"data":[{"kind":"turns_dead","subject":"","node":"","severity":"critical","since":"1970-01-01T00:00:00.001Z",
		"text":"Answers that were given up: 1.","action":"`+"`caddy svc queue dead` shows why, and `caddy svc queue retry` tries again."+`"}],"nextCursor":null}`,
		run(ListConditions, nil))
	write(`INSERT INTO doctor_runs (id, node, started_by, started_at, ended_at, state, report) VALUES
		('doc_1', 'a', '', 1, 2, 'findings', '{"invariants":[{"id":"L1","text":"t","advice":"a","findings":null,"more":false}]}')`)
	require.JSONEq(t, `{"runningSince":null,"state":"findings","startedAt":"1970-01-01T00:00:00.001Z","endedAt":"1970-01-01T00:00:00.002Z","startedBy":null,
		"node":"a","invariants":[{"id":"L1","text":"t","advice":"a","findings":[],"more":false}]}`, run(GetDoctor, nil))

	refused(errcode.InvalidRequest) // a command's process ends before the run
	var asked []any
	fails := error(nil)
	o.StartDoctor = func(_ context.Context, actor string, all bool) error {
		asked = append(asked, actor, all)
		return fails
	}
	require.JSONEq(t, `{"started":true}`, run(RunDoctor, nil))
	fails = conditions.ErrRunning
	refused(errcode.Conflict)
	fails = store.ErrBusy
	refused(errcode.InternalError)
	require.Equal(t, []any{"cli:lan", false, "cli:lan", true, "cli:lan", true}, asked)
}
