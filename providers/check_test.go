package providers_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/option"
	"github.com/caddy-svc/caddy-svc/providers"
)

func TestDescriptionsThatBreakTheContract(t *testing.T) {
	t.Parallel()
	describe := func(change func(*providers.Description)) error {
		d := &providers.Description{
			Name: "acme_2", Label: "Acme", Options: []option.Option{{Name: "region", Help: "The region.", Check: func(value string) string {
				return strings.TrimPrefix("isn't "+value, "isn't eu")
			}}},
			Presets: []providers.Preset{{Name: "acme_eu", Label: "Acme in Europe", BaseURL: "https://acme.example/v1", Options: map[string]string{"region": "eu"}}},
		}
		change(d)
		return d.Check()
	}
	require.NoError(t, describe(func(*providers.Description) {}))
	for want, spoil := range map[string]func(*providers.Description){
		`the name "Acme" is not made of`:          func(d *providers.Description) { d.Name = "Acme" },
		`the name "" is not made of`:              func(d *providers.Description) { d.Name = "" },
		"the label is missing":                    func(d *providers.Description) { d.Label = "" },
		`option "region": the name is taken`:      func(d *providers.Description) { d.Options = append(d.Options, d.Options[0]) },
		`option "region": it has no help`:         func(d *providers.Description) { d.Options[0].Help = "" },
		`option "region": it has an unknown kind`: func(d *providers.Description) { d.Options[0].Kind = 9 },
		`option "Region": the name is not made`:   func(d *providers.Description) { d.Options[0].Name = "Region" },
		`preset "Acme": the name is not made of`:  func(d *providers.Description) { d.Presets[0].Name = "Acme" },
		`preset "acme_eu": the name is not made`:  func(d *providers.Description) { d.Presets[0].Label = "" },
		`preset "acme_eu": the base URL`:          func(d *providers.Description) { d.Presets[0].BaseURL = "acme.example" },
		`protocol has no option "colour"`:         func(d *providers.Description) { d.Presets[0].Options["colour"] = "red" },
		`option "region" isn't us`:                func(d *providers.Description) { d.Presets[0].Options["region"] = "us" },
		`option "region" is a table`:              func(d *providers.Description) { d.Options[0].Keys, d.Options[0].Table = []string{"a"}, "b" },
	} {
		require.ErrorContains(t, describe(spoil), want)
	}
}

// TestAnAdapterNeverSeesTheVault guarantees that nothing which an adapter is handed leads to the product: all types are those of
// this package and of Go's library.
func TestAnAdapterNeverSeesTheVault(t *testing.T) {
	t.Parallel()
	for _, handed := range []any{providers.Config{}, providers.Timeouts{}, providers.Request{}, providers.Message{}} {
		of := reflect.TypeOf(handed)
		for declared := range of.Fields() {
			field := declared.Type
			for field.Kind() == reflect.Slice || field.Kind() == reflect.Pointer {
				field = field.Elem()
			}
			if path := field.PkgPath(); strings.Contains(path, ".") {
				require.Equal(t, of.PkgPath(), path, of)
			}
		}
	}
}
