package tests

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// chromiumWait bounds the installation of Chromium where it is missing.
const chromiumWait = 5 * time.Minute

// chromium is the one browser of a run, started for the first test that opens a tab. It speaks through pipes: there is no
// port that another program could find. Names under .test are this machine, so that pages can stand on other sites.
var chromium browserProcess

type browserProcess struct {
	mu    sync.Mutex
	ctx   context.Context
	close func()
	err   error
}

// started is the browser as chromedp hands it around.
func (b *browserProcess) started() (context.Context, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx == nil && b.err == nil {
		b.err = b.start()
	}
	return b.ctx, b.err
}

func (b *browserProcess) start() error {
	program, err := chromiumProgram()
	if err != nil {
		return err
	}
	allocator, closeAllocator := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program),
		chromedp.DisableGPU,
		// A fifth of the browser's processor time would be for pages kept for the way back, and for processes of pages that may come.
		chromedp.Flag("disable-features", "Translate,BlinkGenPropertyTrees,BackForwardCache,SpareRendererForSitePerProcess,RenderDocument"),
		// A frame of another site is a target of its own, as it is in a browser with windows.
		chromedp.Flag("site-per-process", true),
		// The network of a test machine may be closed; a browser that looks for its vendor's hosts only waits.
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("host-resolver-rules", "MAP *.test 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"),
	)...)
	ctx, closeBrowser := chromedp.NewContext(allocator)
	if err := chromedp.Do(ctx); err != nil {
		closeBrowser()
		closeAllocator()
		return fmt.Errorf("starting %s: %w", program, err)
	}
	b.ctx, b.close = ctx, func() {
		closeBrowser()
		closeAllocator()
	}
	return nil
}

// end closes the browser, if there is one, and waits for it.
func (b *browserProcess) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.close != nil {
		b.close()
	}
	b.ctx, b.close, b.err = nil, nil, errors.New("the browser has been closed")
}

// chromiumProgram is the program that scripts/chromium.sh finds, or installs.
func chromiumProgram() (string, error) {
	if program := os.Getenv("SVC_CHROMIUM"); program != "" {
		return program, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), chromiumWait)
	defer cancel()
	find := exec.CommandContext(ctx, "../scripts/chromium.sh")
	find.Stderr = os.Stderr
	program, err := find.Output()
	if err != nil {
		return "", fmt.Errorf("looking for Chromium with scripts/chromium.sh: %w", err)
	}
	return strings.TrimSpace(string(program)), nil
}

// startChromium is the browser of this run.
func startChromium(t testing.TB) context.Context {
	t.Helper()
	ctx, err := chromium.started()
	require.NoError(t, err)
	return ctx
}
