package caddymodule

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/caddymodule/caddyfile"
)

// syntaxOf returns the syntax of options in the form of doc comments.
func syntaxOf(rules []caddyfile.Rule, indent string) string {
	width := 0
	for _, rule := range rules {
		if rule.Syntax != "" && !rule.Named {
			width = max(width, len(rule.Word))
		}
	}
	text := new(strings.Builder)
	for _, rule := range rules {
		word := rule.Word
		if rule.Syntax != "" && !rule.Named {
			word += strings.Repeat(" ", width-len(word))
		}
		text.WriteString(indent + strings.TrimSpace(word+" "+rule.Syntax))
		if rule.Block != nil {
			text.WriteString(" {\n" + syntaxOf(rule.Block(), indent+"    ") + indent + "}")
		}
		text.WriteString("\n")
	}
	return text.String()
}

// docOf returns the doc comment of a type of a file.
func docOf(t *testing.T, file, name string) string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	require.NoError(t, err)
	for _, declaration := range parsed.Decls {
		if of, ok := declaration.(*ast.GenDecl); ok && len(of.Specs) == 1 {
			if spec, ok := of.Specs[0].(*ast.TypeSpec); ok && spec.Name.Name == name {
				return of.Doc.Text()
			}
		}
	}
	require.Fail(t, "no type "+name)
	return ""
}

// TestSyntaxIsThatOfTheOptions guarantees that the comments, which Caddy's module directory shows, have all options and no others.
func TestSyntaxIsThatOfTheOptions(t *testing.T) {
	t.Parallel()
	syntax := "\tsvc {\n" + syntaxOf(new(App).Rules(), "\t    ") + "\t}\n"
	require.Contains(t, docOf(t, "app.go", "App"), syntax)
	for name, module := range map[string]string{
		"bot": "BotPlatform", "social": "SocialPlatform", "localchat": "LocalChatPlatform", "market_a": "MarketplaceA", "market_b": "MarketplaceB",
	} {
		rules := new(PlatformBlock).rules(messagingPlatforms.named(name).Describe())
		require.Contains(t, docOf(t, "modules.go", module), "\tplatform "+name+" {\n"+syntaxOf(rules, "\t    ")+"\t}\n")
	}
	for name, module := range map[string]string{"sepay": "SePayPayments", "payos": "PayOSPayments", "stripe": "StripePayments"} {
		var rules []caddyfile.Rule
		for _, o := range paymentProviders.named(name).Describe().Options {
			rules = append(rules, optionRule(&o, nil))
		}
		require.Contains(t, docOf(t, "modules.go", module), "\tpayments "+name+" {\n"+syntaxOf(rules, "\t    ")+"\t}\n")
	}
}

// TestOptionsAreFields guarantees that an option has the same word in a Caddyfile and in JSON. Lists have the plural there.
func TestOptionsAreFields(t *testing.T) {
	t.Parallel()
	for _, block := range []interface{ Rules() []caddyfile.Rule }{
		new(App), new(Plan), new(Provider), new(Model), new(Endpoint), new(EndpointCost), new(PriceTier), new(PriceHours), new(PriceRow), new(Worker), new(Timing),
		new(Limits), new(Memory), new(OperatorEndpoint), new(PaymentRate), new(Transfer),
	} {
		var members []string
		of := reflect.TypeOf(block).Elem()
		for _, field := range reflect.VisibleFields(of) {
			word, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			members = append(members, word)
		}
		for _, rule := range block.Rules() {
			word := rule.Word
			if rule.Named {
				word = strings.TrimSuffix(word, "s") + "s"
			}
			require.Contains(t, members, word, of.Name())
		}
	}
}

// TestEveryNumberHasItsDefault guarantees that no handler finds a number or duration missing: after the defaults are filled in, all are
// there except those without a default.
func TestEveryNumberHasItsDefault(t *testing.T) {
	t.Parallel()
	app := &App{Plans: []*Plan{{}}, Providers: []*Provider{{}}, Models: []*Model{{}}, Redis: new(Redis)}
	app.fill()
	var missing []string
	for _, block := range []any{app.Plans[0], app.Providers[0], app.Models[0], app.Redis, app.Worker, app.Timing, app.Limits, app.Memory} {
		value := reflect.ValueOf(block).Elem()
		for i := range value.NumField() {
			kind := value.Field(i).Kind()
			if value.Field(i).IsZero() && (kind == reflect.Int64 || kind == reflect.Pointer && value.Field(i).Type().Elem().Kind() == reflect.Int64) {
				missing = append(missing, value.Type().Name()+"."+value.Type().Field(i).Name)
			}
		}
	}
	require.Equal(t, []string{
		"Plan.RequestsPerMinute", "Model.ContextWindow", "Model.MaxOutputTokens", "Model.PriceInput", "Model.PriceOutput", "Model.PriceCachedInput",
		"Model.PriceCacheWrite", "Model.PriceCacheWriteLong",
		"Memory.GCFloor",
	}, missing)
}
