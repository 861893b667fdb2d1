package providers

import (
	"errors"
	"fmt"
	"strings"
)

// Check returns everything in which the description breaks the contract, nil if nothing does. The product refuses to start with
// a description that is faulty.
func (d *Description) Check() error {
	var faults []error
	unless := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	unless(isName(d.Name), "the name %q is not made of a-z, 0-9 and _, at most 32 of them", d.Name)
	unless(d.Label != "", "the label is missing")
	names := map[string]bool{}
	for _, o := range d.Options {
		unless(isName(o.Name), "the name of option %q is not made of a-z, 0-9 and _, at most 32 of them", o.Name)
		unless(!names[o.Name], "option %s is there twice", o.Name)
		unless(o.Kind >= TextOption && o.Kind <= SecretOption, "option %s has an unknown kind", o.Name)
		unless(o.Help != "", "option %s has no help", o.Name)
		names[o.Name] = true
	}
	return errors.Join(faults...)
}

func isName(s string) bool {
	return len(s) <= 32 && s != "" && s[0] >= 'a' && s[0] <= 'z' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}
