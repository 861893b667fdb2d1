package tests

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// process is one program of the product that the test started. It must not race or panic.
type process struct {
	t testing.TB
	// what it is, for messages.
	what string

	cmd    *exec.Cmd
	log    *recorder
	ended  chan struct{}
	status error
	// killed: the end of the process says nothing.
	killed bool
}

// run starts a program. At the test's end stop is called if this run is still the process's last one, and its log is
// searched for races and panics.
func (p *process) run(dir string, environment []string, stop func(), binary string, args ...string) {
	p.t.Helper()
	p.log = &recorder{}
	p.killed, p.status = false, nil
	p.cmd = exec.Command(binary, args...) //nolint:noctx // stop ends it
	p.cmd.Dir, p.cmd.Env = dir, environment
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(p.t, p.cmd.Start())
	ended := make(chan struct{})
	p.ended = ended
	cmd := p.cmd
	go func() {
		p.status = cmd.Wait()
		close(ended)
	}()
	log := p.log
	p.t.Cleanup(func() {
		defer func() { // also when stop ends the test
			requireCleanLog(p.t, log)
			if p.t.Failed() {
				p.t.Logf("what the log of the %s says of faults:\n%s", p.what, log.faults(6000))
			}
		}()
		if p.ended == ended {
			stop()
		}
	})
}

// await polls until true, and fails the test when that takes too long or the process has ended.
func (p *process) await(what string, within time.Duration, condition func() bool) {
	p.t.Helper()
	deadline := time.Now().Add(within)
	for !condition() {
		select {
		case <-p.ended:
			p.t.Fatalf("the %s ended while the test waited for %s: %v\n%s", p.what, what, p.status, p.log.tail(4000))
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("waited %v for %s\n%s", within, what, p.log.faults(4000))
		}
	}
}

// terminate asks the process to end in order; wait returns how it ended.
func (p *process) terminate() { _ = p.cmd.Process.Signal(syscall.SIGTERM) }

// kill ends the process as a power failure would.
func (p *process) kill() {
	p.killed = true
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// awaitDeath waits until the process has killed itself at a failpoint.
func (p *process) awaitDeath() {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("the %s lives:\n%s", p.what, p.log.tail(4000))
	}
	p.killed = true
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(p.t, ok)
	require.True(p.t, status.Signaled() && status.Signal() == syscall.SIGKILL, "%v\n%s", p.status, p.log.tail(4000))
}

// wait waits for the end of the process, which must be an orderly one.
func (p *process) wait() {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(stopWait):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // its goroutines help to see why
		<-p.ended
		p.t.Errorf("the %s did not end within %v", p.what, stopWait)
	}
	if !p.killed {
		require.NoError(p.t, p.status, "the exit of the %s", p.what)
	}
}
