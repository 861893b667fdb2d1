package providers

import (
	"errors"
	"fmt"

	"github.com/caddy-svc/caddy-svc/option"
)

// Check returns everything in which the description breaks the contract, nil if nothing does. The product refuses to start with
// a description that is faulty.
func (d *Description) Check() error {
	faults := option.Check(d.Options)
	if !option.IsName(d.Name) {
		faults = append(faults, fmt.Errorf("the name %q is not made of a-z, 0-9 and _, at most %d of them", d.Name, option.MaxName))
	}
	if d.Label == "" {
		faults = append(faults, errors.New("the label is missing"))
	}
	for _, o := range d.Options {
		if o.Keys != nil {
			faults = append(faults, fmt.Errorf("option %q is a table, which only platforms have", o.Name))
		}
	}
	return errors.Join(faults...)
}
