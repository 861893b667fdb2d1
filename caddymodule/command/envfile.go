package command

import (
	"fmt"
	"os"
	"strings"
)

// loadEnvFile sets the variables of an environment file, as `caddy run --envfile` does: lines of KEY=VALUE, an
// optional `export ` before, values optionally in quotes and then over several lines, `#` comments. A variable that is set
// already keeps its value. Errors name the line and never show a value.
func loadEnvFile(path string) error {
	text, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return fmt.Errorf("reading the environment file: %w", err)
	}
	variables, err := parseEnvFile(string(text))
	if err != nil {
		return fmt.Errorf("environment file %s: %w", path, err)
	}
	for name, value := range variables {
		if _, set := os.LookupEnv(name); set {
			continue
		}
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("environment file %s: setting %s: %w", path, name, err)
		}
	}
	return nil
}

func parseEnvFile(text string) (map[string]string, error) {
	variables := map[string]string{}
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, found := strings.Cut(line, "=")
		name = strings.TrimPrefix(name, "export ")
		switch {
		case !found:
			return nil, fmt.Errorf("line %d is not KEY=VALUE", i+1)
		case name == "" || strings.ContainsAny(name, " \t"):
			return nil, fmt.Errorf("line %d: the name is empty or has a space", i+1)
		case strings.HasPrefix(value, " ") || strings.HasPrefix(value, "\t"):
			return nil, fmt.Errorf("line %d: there is a space before the value", i+1)
		}
		// Caddy ends a value at the first #, inside quotes, too; the server must read the same value.
		if before, _, comment := strings.Cut(value, "#"); comment {
			value = strings.TrimRight(before, " \t")
		}
		if value != "" && (value[0] == '"' || value[0] == '\'') {
			value, i = quotedValue(value, lines, i)
		}
		variables[name] = value
	}
	return variables, nil
}

// quotedValue returns the value that begins with a quote on line i, and the line on which it ends.
func quotedValue(value string, lines []string, i int) (string, int) {
	quote := value[:1]
	ends := func(line string) bool { return strings.HasSuffix(line, quote) && !strings.HasSuffix(line, `\`+quote) }
	last := i
	if !ends(strings.TrimSpace(lines[i])) && (len(value) == 1 || !ends(value)) {
		for last+1 < len(lines) {
			last++
			if ends(lines[last]) {
				break
			}
		}
	}
	value = strings.Join(append([]string{value}, lines[i+1:last+1]...), "\n")
	value = strings.TrimSuffix(strings.TrimPrefix(value, quote), quote)
	return strings.ReplaceAll(value, `\`+quote, quote), last
}
