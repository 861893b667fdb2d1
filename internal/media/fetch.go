// Package media keeps the files that customers send: it fetches them from the platforms, stores them in sealed pieces, and reads them
// for people. It keeps the files that people send to customers in the same way ([Keeper]).
//
// # Invariants
//
//   - The row of a file is written in the transaction of its message ([Queue]), so that neither exists without the other. What deletes a
//     message leaves its files without one ([Sweep] then deletes them), whatever process it was.
//
//   - A file is stored when all of its pieces are, in one commit that says so; before that, no reader finds any of it. A worker that dies
//     between two pieces leaves a file that waits, and the next try begins with deleting them.
//
//   - Each piece is a transaction's share of up to [PieceBytes], and a process writes one at a time and pauses for the same time after it:
//     money and messages wait for one piece only.
//
//   - A file has up to [MaxBytes], an organization [OrgBytes], a try [tryTime]. One organization has up to a quarter of a process's places,
//     so that files that hang take no other's.
//
//   - Only public addresses are called, unless the operator allows others (package egress), and addresses of a platform's own interface.
//     Nothing that a platform or another server says gets into a log or a row but the file.
//
//   - A file that a person sends is stored whole before its message is written ([Attach]), and is deleted like the others when it has none.
//
// # What it does not do
//
// It parses no deliveries (package platforms), shows nothing to people, and sends nothing.
package media

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/dispatch"
	"github.com/caddy-svc/caddy-svc/internal/egress"
	"github.com/caddy-svc/caddy-svc/internal/messaging"
	"github.com/caddy-svc/caddy-svc/internal/repeat"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms"
)

const (
	// places is how many files a process fetches at a time, orgPlaces how many of them for one organization.
	places    = 8
	orgPlaces = places / 4
	// tryTime bounds a try: asking the platform for the address, connecting, and the whole file.
	tryTime = time.Minute
	// sweepPauses is the time between two looks for files of deleted messages in [Config.Pause]. While nothing is committed it may be twice
	// as long.
	sweepPauses = 5
	// reconnectPause and fullPause are how often a file is tried if its channel needs new credentials, or for which there is no room; a
	// deleted file wakes some of the latter. waitingLife is for how long, because platforms keep files for about as long.
	reconnectPause = 10 * time.Minute
	fullPause      = time.Hour
	waitingLife    = 7 * 24 * time.Hour
	// longestPace bounds the pause after a piece.
	longestPace = 100 * time.Millisecond
)

// retries are the pauses after the tries of a file, up to a quarter longer or shorter. The last one fails it.
var retries = [...]time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, time.Hour, 4 * time.Hour,
}

// OutcomeRetried is the outcome of a try that failed and is made again.
const OutcomeRetried = "retried"

// Platforms are the methods of [messaging.Set] that a [Fetcher] calls.
type Platforms interface {
	Locate(ctx context.Context, channel *platforms.Channel, reference string) (platforms.Location, error)
	Transport() http.RoundTripper
}

// Config configures a [Fetcher]. DB, Ring and Platforms are required.
type Config struct {
	DB        *store.DB
	Ring      *vault.Ring
	Platforms Platforms
	// Policy is which addresses that aren't the operator's may be called.
	Policy egress.Policy
	// Lease is how long after its last renewal another process may try a file, if this one died. 0 means a minute.
	Lease time.Duration
	// Pause is the time between two looks for files to fetch, and a fifth of the time between two sweeps; 0 means a second.
	Pause time.Duration
	// OrgBytes replaces [OrgBytes], unless it is 0.
	OrgBytes int64
	// Fetched is called with the outcome of every try: [Stored], [OutcomeRetried], or the code with which the file failed. It may be nil.
	// It must not block.
	Fetched func(outcome string)
	// Logger gets faults, no address and no word of a customer; nil discards them.
	Logger *slog.Logger
}

// Fetcher fetches the files of messages.
type Fetcher struct {
	Config
	public *http.Client
	// pieces spaces the writes of pieces.
	pieces dispatch.Slot
}

// New returns a fetcher that is idle until [Fetcher.Run].
func New(config Config) *Fetcher {
	config.Lease = cmp.Or(config.Lease, time.Minute)
	config.Pause = cmp.Or(config.Pause, time.Second)
	config.OrgBytes = cmp.Or(config.OrgBytes, OrgBytes)
	if config.Fetched == nil {
		config.Fetched = func(string) {}
	}
	config.Logger = cmp.Or(config.Logger, slog.New(slog.DiscardHandler))
	return &Fetcher{Config: config, public: config.Policy.Client(tryTime), pieces: make(dispatch.Slot, 1)}
}

// Run fetches and sweeps until ctx ends, which also ends the running tries, for the next fetcher.
func (f *Fetcher) Run(ctx context.Context) {
	var sweeping sync.WaitGroup
	sweeping.Go(func() {
		repeat.EveryChange(ctx, sweepPauses*f.Pause, 2*sweepPauses*f.Pause, f.DB.Committed, func(ctx context.Context) (again bool) {
			_, err := Sweep(ctx, f.DB)
			if err != nil && ctx.Err() == nil {
				f.Logger.ErrorContext(ctx, "deleting the files of deleted messages failed; it is tried again", "error", err)
			}
			return err != nil
		})
	})
	dispatch.Queue[try]{
		Pause: f.Pause, Places: places, OrgPlaces: orgPlaces,
		Due: func(ctx context.Context, cursor string) ([]string, string, bool, error) {
			return waiting.Due(ctx, f.DB, cursor)
		},
		Committed: f.DB.Committed,
		Lease: func(ctx context.Context, org string, atMost int) ([]try, error) {
			return lease(ctx, f.DB, org, atMost, f.Lease.Milliseconds())
		},
		Try: f.fetch,
		Failed: func(ctx context.Context, err error) {
			f.Logger.ErrorContext(ctx, "looking for files to fetch failed", "error", err)
		},
	}.Run(ctx)
	sweeping.Wait()
	f.public.CloseIdleConnections()
}

// fetch makes one try and stores how it ended.
func (f *Fetcher) fetch(ctx context.Context, t *try) {
	log := f.Logger.With("file", t.id, "channel", t.channelID)
	a, err := openAbout(f.Ring, t.orgID, t.id, t.about)
	if err != nil {
		err = final(CodeUnavailable, "the file's reference doesn't open with the master key")
	} else {
		bounded, cancel := context.WithTimeout(ctx, tryTime)
		stop := f.keep(bounded, t)
		err = f.store(bounded, t, a)
		stop()
		cancel()
	}
	if err != nil {
		err = f.end(ctx, t, a, err, log)
	} else {
		f.Fetched(Stored)
	}
	if err != nil && !errors.Is(err, errLost) {
		log.ErrorContext(ctx, "storing a customer's file failed; it is tried again", "error", err)
	}
}

// keep renews the lease of a try until stop is called. A try that has lost it ends with its next write.
func (f *Fetcher) keep(ctx context.Context, t *try) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() {
		for repeat.Pause(ctx, f.Lease/3) == nil {
			bounded, done := dispatch.Storing(ctx)
			err := t.exec(bounded, f.DB, func(_ context.Context, tx store.Tx) error {
				tx.Queue(1, `UPDATE media SET run_at = $2 WHERE id = $1`, t.id, tx.Now()+f.Lease.Milliseconds())
				return nil
			})
			done()
			if errors.Is(err, errLost) {
				return
			}
		}
	})
	return func() { cancel(); keeping.Wait() }
}

// end stores how a try has failed.
func (f *Fetcher) end(ctx context.Context, t *try, a about, cause error, log *slog.Logger) error {
	bounded, cancel := dispatch.Storing(ctx)
	defer cancel()
	failed, ok := errors.AsType[*fetchError](cause)
	switch {
	case errors.Is(cause, errLost):
		return cause
	case ctx.Err() != nil: // we stop; the next process goes on at once
		return t.again(bounded, f.DB, 0, false)
	case errors.Is(cause, ErrFull) && t.age() <= waitingLife:
		f.Fetched(OutcomeRetried)
		if err := t.clear(bounded, f.DB); err != nil {
			return err
		}
		return t.awaitRoom(bounded, f.DB, f.OrgBytes)
	case errors.Is(cause, ErrFull):
		failed = &fetchError{code: CodeStorageFull, cause: cause}
	case !ok: // of the store
		f.Fetched(OutcomeRetried)
		return errors.Join(cause, t.again(bounded, f.DB, t.pause(0), true))
	}
	code := failed.code
	if code == "" && !failed.reconnect && t.attempts > int64(len(retries)) || failed.reconnect && t.age() > waitingLife {
		code = CodeUnavailable
	}
	log.WarnContext(ctx, "fetching a customer's file failed", "final", code != "", "error", failed.cause)
	f.Fetched(cmp.Or(code, OutcomeRetried))
	if code == "" {
		return t.again(bounded, f.DB, t.pause(failed.wait), !failed.reconnect)
	}
	if err := t.clear(bounded, f.DB); err != nil {
		return err
	}
	named := about{Name: a.Name}.seal(f.Ring, t.orgID, t.id)
	return t.exec(bounded, f.DB, func(_ context.Context, tx store.Tx) error {
		tx.Queue(1, `UPDATE media SET state = 'failed', code = $2, about = $3, updated_at = $4 WHERE id = $1`, t.id, code, named, tx.Now())
		return nil
	})
}

// pause returns how long the file is left alone after the try, in milliseconds, at least as long as the platform has asked for.
func (t *try) pause(atLeast time.Duration) int64 {
	pause := retries[min(t.attempts, int64(len(retries)))-1]
	return max(repeat.Around(pause), atLeast).Milliseconds()
}

// age returns for how long the file has been waiting.
func (t *try) age() time.Duration { return time.Since(time.UnixMilli(t.createdAt)) }

// store fetches the file and stores it. The error is errLost, ErrFull, a [*fetchError], or one of the store.
func (f *Fetcher) store(ctx context.Context, t *try, a about) error {
	channel, err := f.channel(ctx, t)
	if err != nil {
		return err
	}
	t.needs = 1
	stored, err := store.ReadRow(ctx, f.DB, "sum up files", store.ScanValue[int64], selectStored, t.orgID)
	if err != nil {
		return err
	}
	if stored+t.needs > f.OrgBytes {
		return ErrFull
	}
	if t.attempts > 1 {
		if err := t.clear(ctx, f.DB); err != nil {
			return err
		}
	}
	where, err := f.Platforms.Locate(ctx, channel, a.Reference)
	if err != nil {
		return refusal(err)
	}
	response, err := f.open(ctx, where, platforms.IsAddress(a.Reference))
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	mediaType, bytes, pieces, err := f.copy(ctx, t, &limitedFile{response.Body, MaxBytes})
	if err != nil {
		return err
	}
	if err := t.replace(ctx, f.DB, f.Ring, bytes, f.OrgBytes); err != nil {
		return err
	}
	return t.finish(ctx, f.DB, about{Name: a.Name}.seal(f.Ring, t.orgID, t.id), mediaType, bytes, pieces, f.OrgBytes)
}

// channel reads the channel of a file with its credentials.
func (f *Fetcher) channel(ctx context.Context, t *try) (*platforms.Channel, error) {
	stored, err := f.DB.Channels.ByID(ctx, t.orgID, t.channelID)
	if err != nil {
		return nil, fmt.Errorf("read the channel of a file: %w", err)
	}
	credentials, err := messaging.OpenCredentials(f.Ring, t.orgID, t.channelID, stored.Credentials)
	if err != nil {
		return nil, temporary("the channel's credentials don't open with the master key")
	}
	return &platforms.Channel{Type: platforms.Type(stored.Type), ExternalID: stored.ExternalID, Credentials: credentials}, nil
}

// refusal returns a platform's error as a failure of the try.
func refusal(err error) error {
	failed, ok := errors.AsType[*platforms.Error](err)
	switch {
	case ok && failed.Class == platforms.Refused:
		return &fetchError{code: CodeExpired, cause: err}
	case ok && failed.Class == platforms.NeedsReauth:
		return &fetchError{cause: err, reconnect: true, wait: reconnectPause}
	case ok:
		return &fetchError{cause: err, wait: failed.RetryAfter}
	}
	return &fetchError{cause: err}
}

// copy stores the pieces of a file. The error is a [*fetchError], or one of the store.
func (f *Fetcher) copy(ctx context.Context, t *try, file io.Reader) (mediaType string, bytes, pieces int64, err error) {
	piece := make([]byte, PieceBytes)
	for {
		n, err := io.ReadFull(file, piece)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		switch {
		case err != nil && !last:
			return "", 0, 0, err
		case pieces == 0 && n == 0:
			return "", 0, 0, temporary("the file is empty")
		}
		if pieces == 0 {
			if mediaType, err = typeOf(t.kind, piece[:min(n, sniffedBytes)]); err != nil {
				return "", 0, 0, err
			}
		}
		if n > 0 {
			err := f.pieces.Write(ctx, longestPace, func() error { return t.add(ctx, f.DB, f.Ring, pieces, piece[:n]) })
			if err != nil && ctx.Err() != nil {
				err = temporary("the file did not arrive in time")
			}
			if err != nil {
				return "", 0, 0, err
			}
			bytes, pieces = bytes+int64(n), pieces+1
		}
		if last {
			return mediaType, bytes, pieces, nil
		}
	}
}
