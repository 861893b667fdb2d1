package media

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/egress"
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
	// lookPause is about how long the queue is left alone when nothing was due.
	lookPause = time.Second
	// sweepInterval is the pause between two looks for files of deleted messages.
	sweepInterval = 5 * time.Second
	// faultPause follows a fault of the store.
	faultPause = 5 * time.Second
	// storeWait bounds every wait for the store.
	storeWait = 10 * time.Second
	// reconnectPause and reconnectLife are how often and how long a file is tried whose channel needs new credentials; platforms keep files
	// for about as long.
	reconnectPause = 10 * time.Minute
	reconnectLife  = 7 * 24 * time.Hour
	// longestPace bounds the pause after a piece.
	longestPace = 100 * time.Millisecond
)

// retries are the pauses after the tries of a file, up to a quarter longer or shorter. The last one fails it.
var retries = [...]time.Duration{
	5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, time.Hour, 4 * time.Hour,
}

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
	// Lease is how long after its last renewal another process may try a file, if this one died; 0 is a minute.
	Lease time.Duration
	// OrgBytes replaces [OrgBytes], unless it is 0.
	OrgBytes int64
	// Logger gets faults, no address and no word of a customer; nil discards them.
	Logger *slog.Logger
}

// Fetcher fetches the files of messages.
type Fetcher struct {
	Config
	public *http.Client
	// writing holds a token while a piece is written.
	writing chan struct{}

	mu      sync.Mutex
	taken   int
	running map[string]int // by organization
	freed   chan struct{}
	tries   sync.WaitGroup
}

// New returns a fetcher that is idle until [Fetcher.Run].
func New(config Config) *Fetcher {
	if config.Lease <= 0 {
		config.Lease = time.Minute
	}
	if config.OrgBytes == 0 {
		config.OrgBytes = OrgBytes
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	return &Fetcher{
		Config: config, public: config.Policy.Client(tryTime), writing: make(chan struct{}, 1), running: map[string]int{},
		freed: make(chan struct{}, 1),
	}
}

// Run fetches and sweeps until ctx ends, which ends what is being fetched, to be tried again by the next fetcher.
func (f *Fetcher) Run(ctx context.Context) {
	var sweeping sync.WaitGroup
	sweeping.Go(func() { repeat.Every(ctx, sweepInterval, f.sweep) })
	for cursor := ""; ctx.Err() == nil; {
		next, err := f.look(ctx, cursor)
		pause := time.Duration(0)
		switch {
		case err != nil && ctx.Err() == nil:
			f.Logger.ErrorContext(ctx, "looking for files to fetch failed", "error", err)
			pause = faultPause
		case next == "" || f.free("") <= 0:
			pause = repeat.Around(lookPause)
		}
		cursor = next
		f.pause(ctx, pause)
	}
	f.tries.Wait()
	sweeping.Wait()
	f.public.CloseIdleConnections()
}

// pause waits, shorter if a place gets free meanwhile.
func (f *Fetcher) pause(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.freed:
	case <-ctx.Done():
	}
}

// look starts what is due of the organizations after cursor. next is where the next look goes on: "" after the last organization, or the
// one that got the last free place, so that the next place is another's.
func (f *Fetcher) look(ctx context.Context, cursor string) (next string, err error) {
	if f.free("") <= 0 {
		return cursor, nil
	}
	orgs, next, err := due(ctx, f.DB, cursor)
	if err != nil {
		return cursor, err
	}
	for _, org := range orgs {
		free := f.free(org)
		if free <= 0 {
			continue
		}
		bounded, cancel := storing(ctx)
		leased, err := lease(bounded, f.DB, org, free, f.Lease.Milliseconds())
		cancel()
		if err != nil {
			return cursor, err
		}
		for i := range leased {
			f.start(ctx, &leased[i])
		}
		if cursor = org; f.free("") <= 0 {
			return cursor, nil
		}
	}
	return next, nil
}

// free returns how many more files may be fetched, of one organization or, for "", of all together.
func (f *Fetcher) free(org string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if org == "" {
		return places - f.taken
	}
	return min(places-f.taken, orgPlaces-f.running[org])
}

func (f *Fetcher) start(ctx context.Context, t *try) {
	f.mu.Lock()
	f.taken++
	f.running[t.orgID]++
	f.mu.Unlock()
	f.tries.Go(func() {
		defer f.ended(t.orgID)
		f.fetch(ctx, t)
	})
}

func (f *Fetcher) ended(org string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken--
	if f.running[org]--; f.running[org] == 0 {
		delete(f.running, org)
	}
	select {
	case f.freed <- struct{}{}:
	default:
	}
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
			bounded, done := storing(ctx)
			err := t.renew(bounded, f.DB, f.Lease.Milliseconds())
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
	bounded, cancel := storing(ctx)
	defer cancel()
	failed, ok := errors.AsType[*fetchError](cause)
	switch {
	case errors.Is(cause, errLost):
		return cause
	case ctx.Err() != nil: // we stop; the next process goes on at once
		return t.again(bounded, f.DB, 0, false)
	case errors.Is(cause, errFull):
		failed = &fetchError{code: CodeStorageFull, cause: cause}
	case !ok: // of the store
		return errors.Join(cause, t.again(bounded, f.DB, t.pause(0), true))
	}
	code := failed.code
	if code == "" && !failed.reconnect && t.attempts > int64(len(retries)) || failed.reconnect && t.age() > reconnectLife {
		code = CodeUnavailable
	}
	log.WarnContext(ctx, "fetching a customer's file failed", "final", code != "", "error", failed.cause)
	if code == "" {
		return t.again(bounded, f.DB, t.pause(failed.wait), !failed.reconnect)
	}
	if err := t.clear(bounded, f.DB); err != nil {
		return err
	}
	return t.fail(bounded, f.DB, about{Name: a.Name}.seal(f.Ring, t.orgID, t.id), code)
}

// pause returns how long the file is left alone after the try, in milliseconds, at least as long as the platform has asked for.
func (t *try) pause(atLeast time.Duration) int64 {
	pause := retries[min(t.attempts, int64(len(retries)))-1]
	return max(pause-pause/4+repeat.Jitter(pause/2), atLeast).Milliseconds()
}

// age returns for how long the file has been waiting.
func (t *try) age() time.Duration { return time.Since(time.UnixMilli(t.createdAt)) }

// store fetches the file and stores it. The error is errLost, errFull, a [*fetchError], or one of the store.
func (f *Fetcher) store(ctx context.Context, t *try, a about) error {
	channel, err := f.channel(ctx, t)
	if err != nil {
		return err
	}
	room, err := t.hasRoom(ctx, f.DB, f.OrgBytes)
	switch {
	case err != nil:
		return err
	case !room:
		return errFull
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
	return t.finish(ctx, f.DB, about{Name: a.Name}.seal(f.Ring, t.orgID, t.id), mediaType, bytes, pieces, f.OrgBytes)
}

// channel reads the channel of a file with its credentials.
func (f *Fetcher) channel(ctx context.Context, t *try) (*platforms.Channel, error) {
	stored, err := f.DB.Channels.ByID(ctx, t.orgID, t.channelID)
	if err != nil {
		return nil, fmt.Errorf("read the channel of a file: %w", err)
	}
	channel := &platforms.Channel{Type: platforms.Type(stored.Type), ExternalID: stored.ExternalID, Credentials: platforms.Credentials{}}
	if stored.Credentials == nil {
		return channel, nil
	}
	plain, err := f.Ring.Open(stored.Credentials, vault.ChannelCredentials(t.orgID, t.channelID))
	if err == nil {
		err = json.Unmarshal(plain, &channel.Credentials)
	}
	if err != nil {
		return nil, temporary("the channel's credentials don't open with the master key")
	}
	return channel, nil
}

// refusal returns a platform's error as a failure of the try.
func refusal(err error) error {
	said, ok := errors.AsType[*platforms.Error](err)
	switch {
	case ok && said.Class == platforms.Refused:
		return &fetchError{code: CodeExpired, cause: err}
	case ok && said.Class == platforms.NeedsReauth:
		return &fetchError{cause: err, reconnect: true, wait: reconnectPause}
	case ok:
		return &fetchError{cause: err, wait: said.RetryAfter}
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
			if err := f.write(ctx, t, pieces, piece[:n]); err != nil {
				return "", 0, 0, err
			}
			bytes, pieces = bytes+int64(n), pieces+1
		}
		if last {
			return mediaType, bytes, pieces, nil
		}
	}
}

// write stores a piece, one at a time of all files, and pauses for as long as that took.
func (f *Fetcher) write(ctx context.Context, t *try, position int64, plain []byte) error {
	select {
	case f.writing <- struct{}{}:
	case <-ctx.Done():
		return temporary("the file did not arrive in time")
	}
	defer func() { <-f.writing }()
	began := time.Now()
	if err := t.add(ctx, f.DB, f.Ring, position, plain); err != nil {
		return err
	}
	_ = repeat.Pause(ctx, min(time.Since(began), longestPace))
	return nil
}

func (f *Fetcher) sweep(ctx context.Context) {
	if _, err := Sweep(ctx, f.DB); err != nil && ctx.Err() == nil {
		f.Logger.ErrorContext(ctx, "deleting the files of deleted messages failed; it is tried again", "error", err)
	}
}

// storing returns the context of one write of the store, which outlives a stop.
func storing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.WithoutCancel(ctx), storeWait, fmt.Errorf("the store took longer than %s", storeWait))
}
