// Package option describes the options that a guest, a messaging platform or a vendor's protocol, has in the configuration.
// The product reads, checks and resolves them by these descriptions.
package option

import (
	"fmt"
	"slices"
	"strings"
)

// Kind is the kind of an option's value.
type Kind int

// The kinds of options.
const (
	// Text is any text of one line.
	Text Kind = iota
	// Address is an http or https address without user, query and fragment.
	Address
	// Identifier is 1 to 128 visible ASCII characters, or one reference to an environment variable or a file.
	Identifier
	// Secret is one reference to an environment variable or a file. A configuration never contains the secret itself.
	Secret
)

// Option is one option of a guest: `NAME VALUE` in the guest's block of a Caddyfile, a member NAME in JSON.
type Option struct {
	// Name is the option's name: lower-case letters, digits and underscores.
	Name string
	// Kind is the kind of its value.
	Kind Kind
	// Required options are missing only in a configuration without a block for the guest.
	Required bool
	// Keys makes an option of a platform a table: `NAME KEY VALUE` in a Caddyfile, once for each key, and an object Table in
	// JSON. The platform gets its values as options "NAME[KEY]".
	Keys  []string
	Table string
	// Check returns the problem of a value, or an empty text. It may be nil. References are resolved before it is called.
	Check func(value string) (problem string)
	// Help is the documentation: one sentence.
	Help string
}

// Checker is a driver that checks its options together. Problems has an entry for every faulty option, by its name, which is
// "NAME[KEY]" for values of tables. The values come from the configuration, with references unresolved.
type Checker interface {
	CheckOptions(values map[string]string) (problems map[string]string)
}

// Check returns everything in which the descriptions of one block's options break the contract. Reserved are the names of
// options that the block has in addition.
func Check(options []Option, reserved ...string) []error {
	var faults []error
	taken := slices.Clone(reserved)
	for i := range options {
		o := &options[i]
		for _, rule := range []struct {
			kept  bool
			fault string
		}{
			{IsName(o.Name), fmt.Sprintf("the name is not made of a-z, 0-9 and _, at most %d of them", MaxName)},
			{!slices.Contains(taken, o.Name), "the name is taken"},
			{o.Kind >= Text && o.Kind <= Secret, "it has an unknown kind"},
			{o.Help != "", "it has no help"},
			{(o.Keys == nil) == (o.Table == ""), "it has keys without a table, or a table without keys"},
			{o.Keys == nil || o.Kind == Text && !o.Required, "it is a table, whose values are texts that may be missing"},
			{!slices.Contains(o.Keys, ""), "it has an empty key"},
		} {
			if !rule.kept {
				faults = append(faults, fmt.Errorf("option %q: %s", o.Name, rule.fault))
			}
		}
		taken = append(taken, o.Name)
	}
	return faults
}

// MaxName is how many bytes a name in the configuration may have.
const MaxName = 32

// IsName reports whether s can name a guest, a channel type or an option: 1 to [MaxName] lower-case letters, digits and
// underscores, the first of which is a letter.
func IsName(s string) bool {
	return len(s) <= MaxName && s != "" && s[0] >= 'a' && s[0] <= 'z' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}
