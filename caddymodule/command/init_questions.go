package command

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/caddy-svc/caddy-svc/caddymodule"
	"github.com/caddy-svc/caddy-svc/internal/identity"
)

// questions prompts for values on a terminal.
type questions struct {
	// terminal is nil if the input is not a terminal.
	terminal *term.Terminal
	// failed is the error that ended the questions; no later one is asked.
	failed error
}

// askOn returns questions on the command's terminal and a function that restores the terminal. During the questions the
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

// ask requests a value unless it was given, again after an answer that check refuses. A given value that check refuses ends the
// questions. Without a terminal or an answer it returns the default.
func (q *questions) ask(question, given, otherwise string, check func(string) error) string {
	if otherwise != "" {
		question += " [" + otherwise + "]"
	}
	return q.until(given, otherwise, check, func() (string, error) {
		lines := strings.SplitAfter(question, "\n")
		last := len(lines) - 1                                            // the terminal's prompt is one line
		_, _ = io.WriteString(q.terminal, strings.Join(lines[:last], "")) // reading fails, too, when the terminal has gone
		q.terminal.SetPrompt(lines[last] + ": ")
		return q.terminal.ReadLine()
	})
}

// askSecret is like ask, but the terminal doesn't show the answer.
func (q *questions) askSecret(question, given string, check func(string) error) string {
	return q.until(given, "", check, func() (string, error) { return q.terminal.ReadPassword(question + " (not shown): ") })
}

func (q *questions) until(given, otherwise string, check func(string) error, read func() (string, error)) string {
	if q.failed != nil {
		return ""
	}
	if given != "" || q.terminal == nil {
		value := cmp.Or(given, otherwise)
		q.failed = check(value)
		return value
	}
	for {
		line, err := read()
		if err != nil {
			q.failed = errors.New("the questions were not answered to the end; nothing was written")
			return ""
		}
		value := cmp.Or(strings.TrimSpace(line), otherwise)
		if err = check(value); err == nil {
			return value
		}
		_, _ = fmt.Fprintf(q.terminal, "%v\n", err) // the next question fails, too, when the terminal has gone
	}
}

// checkVendor checks an answer, as the functions after it do. The error names the allowed input.
func checkVendor(name string) error {
	if names := vendorNames(); !slices.Contains(names, name) {
		return fmt.Errorf("there is no vendor %q; choose one of: %s", name, strings.Join(names, ", "))
	}
	return nil
}

func checkKey(key string) error {
	if key == "" {
		return errors.New("the key is empty")
	}
	return checkSecret("the key", key)
}

// checkSecret returns an error for a value that an environment file can't hold.
func checkSecret(name, value string) error {
	if strings.ContainsAny(value, "#\"' \t\r\n") {
		return fmt.Errorf("%s has a character that an environment file can't hold (#, quotes or white space)", name)
	}
	return nil
}

func checkDomain(domain string) error {
	if strings.ContainsAny(domain, "/:{}\" \t\r\n") {
		return fmt.Errorf("the domain %q is not a host name such as ai.example.com", domain)
	}
	return nil
}

// checkURL returns a check of addresses with one of the schemes.
func checkURL(schemes ...string) func(string) error {
	return func(address string) error {
		scheme, _, found := strings.Cut(address, "://")
		if address == "" || found && slices.Contains(schemes, scheme) {
			return checkSecret("the URL", address)
		}
		return fmt.Errorf("the URL doesn't begin with %s://", strings.Join(schemes, ":// or "))
	}
}

func checkOrganization(name string) error {
	_, err := identity.CleanName("name", name)
	return err
}

func checkEmail(email string) error {
	if email == "" {
		return nil
	}
	if strings.ContainsAny(email, "{}\"' \t\r\n") {
		return fmt.Errorf("%q can't be written into a Caddyfile", email)
	}
	_, err := identity.CleanEmail(email)
	return err
}

// defaultVendor returns the first vendor with its variable set, or echo.
func defaultVendor() string {
	for _, name := range vendorNames() {
		probe := setup{initOptions: initOptions{vendor: name}}
		if variable, err := probe.readVendor(); err == nil && variable != "" && os.Getenv(variable) != "" {
			return name
		}
	}
	return "echo"
}

// readVendor reads the vendor's provider and model, and changes their address and name as wanted. It returns the variable of the
// vendor's key, or an empty string for a vendor without a key.
func (s *setup) readVendor() (variable string, err error) {
	text, err := vendorFiles.ReadFile("vendors/" + s.vendor + ".caddyfile")
	if err != nil {
		return "", fmt.Errorf("reading the vendor %s: %w", s.vendor, err)
	}
	var block strings.Builder
	addressed := false
	for line := range strings.Lines(strings.TrimRight(string(text), "\n")) {
		words := strings.Fields(line)
		switch {
		case len(words) < 2:
		case words[0] == "base_url" && s.baseURL != "":
			line, addressed = "\tbase_url "+s.baseURL+"\n", true
		case words[0] == "preset" && s.baseURL != "":
			line, addressed = line+"\tbase_url "+s.baseURL+"\n", true
		case words[0] == "api_key" && words[1] == "none" && s.keyFile != "":
			variable = strings.ToUpper(s.vendor) + "_API_KEY"
			line = "\tapi_key {env." + variable + "}\n"
		case words[0] == "api_key" && words[1] != "none":
			variable = strings.TrimSuffix(strings.TrimPrefix(words[1], "{env."), "}")
		case words[0] == "model":
			if line, err = s.nameModel(words); err != nil {
				return "", err
			}
		case (words[0] == "display_name" || words[0] == "upstream_model") && s.note != "":
			continue
		}
		block.WriteString(line)
	}
	if s.baseURL != "" && !addressed {
		return "", fmt.Errorf("%s has no address; leave --base-url out", s.vendor)
	}
	s.block = block.String()
	return variable, nil
}

// nameModel sets the public id of the model and returns its line. line has the words of the line in the vendor's file. Another model is
// one of the catalogue if the vendor's own is, and gets the window and prices of the block otherwise.
func (s *setup) nameModel(words []string) (line string, err error) {
	known, wanted := words[1], s.modelName
	s.model = s.vendor + "/" + strings.TrimPrefix(wanted, s.vendor+"/")
	if wanted == "" || s.model == known {
		s.model = known
		return strings.Join(words, " ") + "\n", nil
	}
	if catalog := caddymodule.CatalogModels(s.vendor); len(catalog) > 0 {
		if !slices.Contains(catalog, s.model) {
			return "", fmt.Errorf("the catalogue has no price of %s; --model may be: %s", s.model, strings.Join(catalog, ", "))
		}
		return "model " + s.model + "\n", nil
	}
	s.note = fmt.Sprintf("Check the window, the largest output and the prices of %s in the Caddyfile: they are those of %s.", s.model, known)
	return "# " + s.note + "\nmodel " + s.model + " {\n", nil
}
