package sqlite

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPositionalParameters(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                   "",
		"SELECT 1":                           "SELECT 1",
		"SELECT a FROM b WHERE c = $1":       "SELECT a FROM b WHERE c = ?",
		"VALUES ($1,$2,$3),($4,$5,$6)":       "VALUES (?,?,?),(?,?,?)",
		"($1,$2,$3,$4,$5,$6,$7,$8,$9,$10)":   "(?,?,?,?,?,?,?,?,?,?)",
		"SELECT $2, $1":                      "SELECT $2, $1",
		"SELECT $1, $1":                      "SELECT $1, $1",
		"SELECT $1, $3":                      "SELECT $1, $3",
		"SELECT $10":                         "SELECT $10",
		"SELECT '$1', $1":                    "SELECT '$1', $1",
		"SELECT x ->> '$.a' FROM y WHERE $1": "SELECT x ->> '$.a' FROM y WHERE $1",
		"SELECT 'it''s', $1":                 "SELECT 'it''s', ?",
	} {
		require.Equal(t, want, positional(text), text)
	}
}

func TestSteadyTexts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"SELECT a FROM b WHERE c = $1 ORDER BY a LIMIT $2": "SELECT a FROM b WHERE c = ? ORDER BY a LIMIT +?",
		"SELECT a FROM b WHERE c = $2 LIMIT $1":            "SELECT a FROM b WHERE c = $2 LIMIT +$1",
		"SELECT a FROM b LIMIT CAST($1 AS BIGINT)":         "SELECT a FROM b LIMIT CAST(? AS BIGINT)",
		"SELECT a FROM b LIMIT 1":                          "SELECT a FROM b LIMIT 1",
	} {
		require.Equal(t, want, steady(text), text)
	}
}
