package knowledge

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/internal/dispatch"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/store/storetest"
)

// gone is a context whose caller has left. With it a free place is used, and a wait ends.
func gone(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// TestDocumentsTakeTurns guarantees that the documents of one organization, which are made to keep us busy, don't hold up another's.
func TestDocumentsTakeTurns(t *testing.T) {
	t.Parallel()
	l := library(t, storetest.Open(t, store.SQLite))
	l.readers = dispatch.NewTurns(dispatch.Bounds{Places: 1, Each: 1, Line: 8, Lines: 9})
	require.NoError(t, l.readers.Enter(t.Context(), acme))
	read := func(ctx context.Context, org, content string) error {
		_, err := l.read(ctx, &Upload{OrgID: org, KnowledgeBaseID: shop, MediaType: PlainText, Content: content})
		return err
	}
	var done atomic.Int64
	ended := make(chan error)
	start := func(org, content string) (before chan int64) {
		before = make(chan int64, 1)
		go func() {
			err := read(t.Context(), org, content)
			for errors.Is(err, ErrBusy) { // in place of a look from below
				err = read(t.Context(), org, content)
			}
			before <- done.Add(1) - 1
			ended <- err
		}()
		return before
	}
	full := func(org string) func() bool {
		return func() bool { return errors.Is(read(gone(t), org, "x"), ErrBusy) }
	}
	for range 8 {
		start(acme, "a."+strings.Repeat(")", 32<<10))
	}
	require.Eventually(t, full(acme), time.Minute, time.Millisecond, "all 8 wait")
	before := start(other, "Sencha is green.")
	require.Eventually(t, full("org_third"), time.Minute, time.Millisecond, "and so does the other one")
	l.readers.Leave(acme)
	require.Less(t, <-before, int64(8))
	for range 9 {
		require.NoError(t, <-ended)
	}
}

// TestOneDocumentOfAnOrganizationIsRead guarantees that one organization has one place, however many there are.
func TestOneDocumentOfAnOrganizationIsRead(t *testing.T) {
	t.Parallel()
	l := library(t, storetest.Open(t, store.SQLite))
	l.readers = dispatch.NewTurns(readerBounds(3)) // of a machine with six processors
	read := func(org string) error {
		_, err := l.read(gone(t), &Upload{OrgID: org, KnowledgeBaseID: shop, MediaType: PlainText, Content: "x"})
		return err
	}
	require.NoError(t, read(acme))
	require.NoError(t, l.readers.Enter(t.Context(), acme))
	require.ErrorIs(t, read(acme), context.Canceled, "it waits")
	require.NoError(t, read(other))
	l.readers.Leave(acme)
	add(t, l, acme, shop, "a", PlainText, "x")
}

// TestReadingEnds guarantees that a document is read no longer than its client waits, and no longer than it may take, and that its place is
// free then.
func TestReadingEnds(t *testing.T) {
	t.Parallel()
	l := library(t, storetest.Open(t, store.SQLite))
	large := upload("large", strings.Repeat(long(63), 64))
	passes := 0
	errEnough := errors.New("enough")
	_, err := large.chunks(func() error {
		if passes++; passes == 3 {
			return errEnough
		}
		return nil
	})
	require.ErrorIs(t, err, errEnough)
	require.Equal(t, 3, passes, "nothing is read behind the error")
	passes = 0
	_, err = large.chunks(func() error { passes++; return nil })
	require.NoError(t, err)
	require.Greater(t, passes, len(large.Content)/(8<<10), "every few KB")

	// One tag, which is all markup.
	tag := Upload{OrgID: acme, KnowledgeBaseID: shop, MediaType: HTML, Content: strings.Repeat("<x y=z ", 64<<10)}
	passes = 0
	_, err = tag.chunks(func() error { passes++; return nil })
	require.ErrorIs(t, err, ErrNoText)
	require.GreaterOrEqual(t, passes, len(tag.Content)/passBytes)
	passes = 0
	_, err = tag.chunks(func() error {
		if passes++; passes == 3 {
			return errEnough
		}
		return nil
	})
	require.ErrorIs(t, err, errEnough)
	require.Equal(t, 3, passes)

	_, err = l.read(gone(t), &large)
	require.ErrorIs(t, err, context.Canceled)
	allowed := l.readTime
	require.Equal(t, 5*time.Second, allowed)
	l.readTime = 0
	_, err = l.Ingest(t.Context(), "test", large, -1)
	require.ErrorIs(t, err, ErrSlow)
	l.readTime = allowed
	add(t, l, acme, shop, "small", PlainText, "x")
	require.Equal(t, 1, stored(t, l))
}

// TestSearchesTakeTurns guarantees that one organization's requests search twice at a time, while others and workers search.
func TestSearchesTakeTurns(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, l *Library) {
		add(t, l, acme, shop, "tea", PlainText, "Sencha is green.")
		search := func(ctx context.Context, org string) error {
			_, err := l.SearchInTurn(ctx, org, []string{shop}, "sencha", 1)
			return err
		}
		require.NoError(t, l.searchers.Enter(t.Context(), acme))
		require.NoError(t, search(t.Context(), acme), "the second")
		require.NoError(t, l.searchers.Enter(t.Context(), acme))
		require.ErrorIs(t, search(gone(t), acme), context.Canceled, "the third waits")
		require.ErrorIs(t, search(t.Context(), acme), ErrBusy, "not for long")
		require.NoError(t, search(t.Context(), other))
		snippets, err := l.Search(t.Context(), acme, []string{shop}, "sencha", 1)
		require.NoError(t, err, "a worker's")
		require.Len(t, snippets, 1)
		l.searchers.Leave(acme)
		require.NoError(t, search(t.Context(), acme))

		full := searchBounds
		full.Line = 0
		l.searchers = dispatch.NewTurns(full)
		require.NoError(t, l.searchers.Enter(t.Context(), acme))
		require.NoError(t, l.searchers.Enter(t.Context(), acme))
		require.ErrorIs(t, search(t.Context(), acme), ErrBusy, "the line is full")
	})
}
