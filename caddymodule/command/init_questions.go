package command

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// questions asks for values on a terminal.
type questions struct {
	// terminal is nil if the input is not a terminal.
	terminal *term.Terminal
	// failed is the error that ended the questions; no later one is asked.
	failed error
}

// askOn returns questions on the command's terminal and a function that gives the terminal back as it was. While it asks, the
// terminal is raw: Ctrl-C ends the questions, and no key is ever shown.
func askOn(cmd *cobra.Command) (q *questions, done func(), err error) {
	terminal, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(terminal.Fd())) {
		return &questions{}, func() {}, nil
	}
	fd := int(terminal.Fd())
	before, err := term.MakeRaw(fd)
	if err != nil {
		return nil, nil, fmt.Errorf("reading from the terminal: %w", err)
	}
	q = &questions{terminal: term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{terminal, cmd.ErrOrStderr()}, "")}
	if width, height, err := term.GetSize(fd); err == nil && width > 0 && height > 0 {
		_ = q.terminal.SetSize(width, height) // it fails with the terminal, which the first question does, too
	}
	return q, func() { _ = term.Restore(fd, before) }, nil
}

// ask asks for a value unless it was given; without a terminal or an answer it returns the default.
func (q *questions) ask(question, given, otherwise string) string {
	if given != "" || q.terminal == nil {
		return cmp.Or(given, otherwise)
	}
	if otherwise != "" {
		question += " [" + otherwise + "]"
	}
	q.terminal.SetPrompt(question + ": ")
	return cmp.Or(q.read(q.terminal.ReadLine), otherwise)
}

// askSecret asks for a value that is not shown; without a terminal it is empty.
func (q *questions) askSecret(question string) string {
	if q.terminal == nil {
		return ""
	}
	return q.read(func() (string, error) { return q.terminal.ReadPassword(question + " (not shown): ") })
}

func (q *questions) read(read func() (string, error)) string {
	if q.failed != nil {
		return ""
	}
	line, err := read()
	if err != nil {
		q.failed = errors.New("the questions were not answered to the end; nothing was written")
		return ""
	}
	return strings.TrimSpace(line)
}
