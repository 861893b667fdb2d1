package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/platformfake"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
	"github.com/caddy-svc/caddy-svc/platforms"
)

// upgradeFolder has a folder for each build whose databases are kept; testdata/upgrade/README.md says how they are written.
const upgradeFolder = "testdata/upgrade"

// upgradeMasterKey is the master key of all kept databases.
const upgradeMasterKey = "dGhlLW1hc3Rlci1rZXktb2Yta2VwdC1kYXRhYmFzZXM="

// upgradeFixture has the keys, tokens and answers that the clients, people and platforms of a kept database remember, as JSON
// beside it.
type upgradeFixture struct {
	// OrgID is an organization with everything: its assistant, the mark of the assistant's script, its keys and what is
	// left in its wallets.
	OrgID, AgentID, Mark                      string
	Key, TestKey, RevokedKey, ExpiredKey      string
	Balance, TestBalance                      int64
	Calls                                     []keptCall
	Cut                                       keptCall // under way when the process was killed, so without an answer
	Lines                                     []keptLine
	Widget                                    string
	KnowledgeBase                             string
	Email, Password, Cookie, Invited, LinkOfA string
	// Asked was delivered after the last worker had ended, Written by a person then; both on the first line.
	Asked, Written string
	// Poor is an organization without funds, whose customer has asked PoorAsked.
	Poor               keptLine
	PoorOrgID, PoorKey string
	PoorAsked          string
}

// keptCall is a call with an Idempotency-Key and its first answer.
type keptCall struct {
	Key, Model, Body string
	Stream, BYOK     bool
	Answer           completed
}

func (k keptCall) keyed() *keyedCall {
	return &keyedCall{key: k.Key, model: k.Model, body: k.Body, stream: k.Stream, byok: k.BYOK, first: k.Answer}
}

// keptLine is a channel with a customer that was answered. Account is the platform's id of it.
type keptLine struct {
	Type                                 platforms.Type
	ID, Account, External, Secret, Token string
	Number                               int64
}

// line is the line of a product that runs on the kept database. The scripted platforms number the tokens that they issue,
// so lines come back in the order in which they were made, and get tokens until theirs comes.
func (k keptLine) line(t testing.TB, p *product) *line {
	t.Helper()
	for range 100 {
		credentials := p.Platform.Account(k.Type, k.Account)
		if k.Token == credentials[platforms.AccessToken] || k.Token == credentials["botToken"] {
			return &line{Type: k.Type, ID: k.ID, External: k.External, Secret: k.Secret, Token: k.Token, baseURL: p.BaseURL, number: k.Number}
		}
	}
	require.Fail(t, "the scripted platforms don't issue such tokens any more", "%s", k.Token)
	return nil
}

// upgradable is the deployment of a kept database: everything is mounted, and the master key is known.
func upgradable(t testing.TB, engine store.Engine, up *upstream, platform *platformfake.Server) *deployment {
	t.Helper()
	d := deploy(t, engine, up).describing().receiving(t, platform)
	d.masterKey = upgradeMasterKey
	d.env = append(d.env, "SVC_MASTER_KEY="+d.masterKey) // the last one counts
	return d
}

// keptFile is the database in a folder for an engine, keptFacts its upgradeFixture.
func keptFile(folder string, engine store.Engine) string {
	name := "sqlite.db"
	if engine == store.Postgres {
		name = "postgres.sql"
	}
	return filepath.Join(folder, name)
}

func keptFacts(folder string, engine store.Engine) string {
	return filepath.Join(folder, string(engine)+".json")
}

// restore puts a copy of a kept database in an empty place and returns its upgradeFixture. Its times are moved to those of
// processes that were killed so long ago that the last of their holds has run out just now; nothing else is changed.
func restore(t testing.TB, folder string, location store.Location) *upgradeFixture {
	t.Helper()
	text, err := os.ReadFile(keptFacts(folder, location.Engine))
	require.NoError(t, err)
	kept := new(upgradeFixture)
	require.NoError(t, json.Unmarshal(text, kept))
	database, err := os.ReadFile(keptFile(folder, location.Engine))
	require.NoError(t, err)
	if location.Engine == store.SQLite {
		require.NoError(t, os.WriteFile(location.DSN, database, 0o600))
	} else {
		runDump(t, location, string(database))
	}
	moveTimes(t, location)
	return kept
}

// moveTimes adds the age of the last hold's end to every time in a database. What can't be changed in it keeps its times.
func moveTimes(t testing.TB, location store.Location) {
	t.Helper()
	conn, disconnect := connectShortly(t, location)
	defer disconnect()
	var ran int64
	require.NoError(t, conn.QueryRowContext(t.Context(), `SELECT max(ends) FROM (SELECT expires_at AS ends FROM holds
		UNION ALL SELECT expires_at FROM running_keys) AS holds`).Scan(&ran))
	age := time.Now().UnixMilli() - ran
	for table, columns := range storetest.Columns(t, conn, location.Engine) {
		var moved []string
		for _, column := range columns {
			if strings.HasSuffix(column, "_at") || strings.HasSuffix(column, "_until") || strings.HasSuffix(column, "_since") || column == "until" {
				moved = append(moved, fmt.Sprintf("%s = CASE WHEN %[1]s > 0 THEN %[1]s + %d ELSE %[1]s END", column, age))
			}
		}
		if len(moved) > 0 {
			_, err := conn.ExecContext(t.Context(), "UPDATE "+table+" SET "+strings.Join(moved, ", "))
			if err != nil {
				require.ErrorContains(t, err, "append-only", table)
			}
		}
	}
}

// runDump runs a plain dump with INSERTs. Lines with a backslash are for psql.
func runDump(t testing.TB, location store.Location, dump string) {
	t.Helper()
	var statements strings.Builder
	for text := range strings.Lines(dump) {
		if !strings.HasPrefix(text, `\`) {
			statements.WriteString(text)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, location.DSN)
	require.NoError(t, err)
	defer conn.Close(ctx) // each statement's own result counts
	_, err = conn.PgConn().Exec(ctx, statements.String()).ReadAll()
	require.NoError(t, err)
}
