package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/caddy-svc/caddy-svc/billing"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// aloneConnections is how many connections the comparison with one transaction per operation has on PostgreSQL, as a
// usual pool would. On SQLite only one can write.
const aloneConnections = 16

// bank is a fresh store with organizations that have credits, and both ways to its ledger.
type bank struct {
	orgs []bankOrg
	// batched is one book for all callers, as the product has it; alone are those of one operation at a time.
	batched, alone []ledgerBook

	dbs   []*store.DB
	place *place
}

// loneBook is a book of its own connection that lets in one operation at a time, so that none shares a transaction.
type loneBook struct {
	*billing.Book
	turn sync.Mutex
}

func (b *loneBook) Hold(ctx context.Context, hold billing.Hold) (*billing.Replay, error) {
	b.turn.Lock()
	defer b.turn.Unlock()
	return b.Book.Hold(ctx, hold)
}

func (b *loneBook) Settle(ctx context.Context, settlement billing.Settlement) (billing.Settled, error) {
	b.turn.Lock()
	defer b.turn.Unlock()
	return b.Book.Settle(ctx, settlement)
}

func openBank(ctx context.Context, engine store.Engine) (*bank, error) {
	at, err := newPlace(ctx, engine, "")
	if err != nil {
		return nil, err
	}
	b := &bank{place: at}
	connections := 1
	if engine == store.Postgres {
		connections = aloneConnections
	}
	for range 1 + connections {
		db, err := store.Open(ctx, at.location, store.Options{Kinds: []store.Kind{billing.Ledger}})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("opening the store: %w", err), b.close())
		}
		b.dbs = append(b.dbs, db)
	}
	b.batched = []ledgerBook{billing.NewBook(b.dbs[0])}
	for _, db := range b.dbs[1:] {
		b.alone = append(b.alone, &loneBook{Book: billing.NewBook(db)})
	}
	if err := b.provision(ctx); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// bankOrg is an organization with an API key.
type bankOrg struct{ id, keyID string }

// provisioners are how many organizations are made at a time: more than a store takes would be refused.
const provisioners = 16

// provision makes the organizations.
func (b *bank) provision(ctx context.Context) error {
	db := b.dbs[0]
	if err := db.Migrate(ctx); err != nil {
		return fmt.Errorf("migrating: %w", err)
	}
	b.orgs = make([]bankOrg, manyOrgs)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(provisioners)
	for i := range manyOrgs {
		group.Go(func() error {
			org, err := identity.CreateOrganization(ctx, db, "bench", fmt.Sprintf("bench %d", i), "bench", "")
			var key identity.IssuedKey
			if err == nil {
				key, err = identity.CreateAPIKey(ctx, db, "bench", identity.KeyRequest{OrgID: org.ID})
			}
			if err == nil {
				b.orgs[i] = bankOrg{org.ID, key.ID}
				_, err = billing.NewBook(db).Credit(ctx, "bench", billing.WalletID{OrgID: org.ID, Env: store.Live}, ledgerFunds, "bench")
			}
			return err
		})
	}
	return group.Wait()
}

// check requires clean books in which exactly the calls that were served are charged.
func (b *bank) check(ctx context.Context, calls int) error {
	report, err := billing.Check(ctx, b.dbs[0])
	if err != nil {
		return fmt.Errorf("checking the books: %w", err)
	}
	var faults []error
	if !report.OK() {
		faults = append(faults, fmt.Errorf("doctor has findings:\n%s", report))
	}
	var recorded, charged, balances, held int64
	err = b.dbs[0].Reader().QueryRowContext(ctx, `SELECT (SELECT count(*) FROM calls),
		(SELECT CAST(coalesce(sum(charged_micros), 0) AS BIGINT) FROM calls),
		(SELECT CAST(sum(balance_micros) AS BIGINT) FROM wallets), (SELECT CAST(sum(held_micros) AS BIGINT) FROM wallets)`,
	).Scan(&recorded, &charged, &balances, &held)
	if err != nil {
		return fmt.Errorf("reading the sums: %w", err)
	}
	if recorded != int64(calls) || charged != int64(calls)*ledgerCharge || held != 0 ||
		balances != manyOrgs*int64(ledgerFunds)-charged {
		faults = append(faults, fmt.Errorf("%d calls were made: %d are on record and charged %d; the wallets have %d and hold %d",
			calls, recorded, charged, balances, held))
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	fmt.Printf("  books: %d calls, %d micros charged, the wallets lost the same, nothing held; doctor clean\n", calls, charged)
	return nil
}

func (b *bank) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var faults []error
	for _, db := range b.dbs {
		faults = append(faults, db.Close(ctx))
	}
	return errors.Join(append(faults, b.place.drop())...)
}
