package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// operation is an operation of the organization API as a command. Its path's id is an argument, the rest of its input are flags, each named
// like its field: expiresInDays is --expires-in-days.
type operation struct {
	api.Operation

	verb          string
	noun          string // of the id that it takes, if that isn't the command's
	long, example string
	// columns of a table are the names of members of the answer's rows.
	columns []string
	// byEmail: a member's e-mail address and organization are flags, in place of the id.
	byEmail bool
	// seals: it needs the master key.
	seals bool
	// flags are the names of flags by field. A field without a name here gets the words of its own, see [operation.nameFlags].
	flags map[string]string
	// flagNames replaces the fields in a text by their flags.
	flagNames *strings.Replacer
	// note is printed below an answer, and done in place of one, with the id.
	note, done string
}

// pagingFields are the fields of lists that a command leaves out: it reads all pages.
var pagingFields = []string{"limit", "cursor", "format"}

// command makes the command of an operation on a noun.
func (o *operation) command(f *commandFlags, noun string) *cobra.Command {
	noun = cmp.Or(o.noun, noun)
	command := &cobra.Command{Use: o.verb, Short: o.Spec().Summary, Long: o.long, Example: o.example}
	flags := map[string]*fieldFlag{}
	fields := o.Fields()
	o.nameFlags(fields)
	takesID, email := false, ""
	for _, field := range fields {
		switch {
		case field.In == "path" && field.Name == "id" && o.byEmail:
			command.Flags().StringVar(&email, "email", "", "the member's e-mail `address`")
			required(command, "email")
		case field.In == "path" && field.Name == "id":
			takesID = true
			command.Use += " " + strings.ToUpper(noun) + "_ID"
			command.Args = exactly("the " + noun + "'s id")
		case field.Type != "" && !slices.Contains(pagingFields, field.Name):
			flags[field.Name] = o.flag(command, field)
		}
	}
	command.Use += " [flags]"
	run := func(ctx context.Context, e *commandEnv, orgID string) (answer, error) {
		values := endpoint.Values{}
		if takesID {
			values["id"] = e.args[0]
		}
		if o.byEmail {
			member, err := e.member(ctx, orgID, email)
			if err != nil {
				return nil, err
			}
			values["id"] = member.ID
		}
		for name, flag := range flags {
			if err := flag.readFile(e); err != nil {
				return nil, err
			}
			if flag.given {
				values[name] = flag.value
			}
		}
		return o.run(ctx, e, orgID, values)
	}
	if !takesID {
		return f.orgVerb(command, run)
	}
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) {
		orgID, err := o.ownerOf(ctx, e, noun, e.args[0])
		if err != nil {
			return nil, err
		}
		return run(ctx, e, orgID)
	})
}

// operations returns the commands of operations on a noun.
func (f *commandFlags) operations(noun string, all ...operation) []*cobra.Command {
	verbs := make([]*cobra.Command, len(all))
	for i := range all {
		verbs[i] = all[i].command(f, noun)
	}
	return verbs
}

// ownedKind returns the kind of resource that a path's id names.
func ownedKind(path string) store.OwnedKind {
	group, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return store.OwnedKind(strings.ReplaceAll(group, "-", "_"))
}

// ownerOf returns the organization of an id. Errors don't quote an id that can't be one: it may be a secret.
func (o *operation) ownerOf(ctx context.Context, e *commandEnv, noun, id string) (orgID string, err error) {
	list := ""
	if o.noun == "" {
		list = "; `caddy svc " + noun + " list --org ORG_ID` shows them"
	}
	if !handlers.WellFormedID(id) || strings.HasPrefix(id, "ck_") {
		return "", fmt.Errorf("that is not the id of a %s%s", noun, list)
	}
	orgID, err = e.db.OwnerOf(ctx, ownedKind(o.Spec().Path), id)
	if errors.Is(err, store.ErrNotFound) {
		return "", fmt.Errorf("no %s has the id %q%s", noun, id, list)
	}
	return orgID, err
}

func (o *operation) flag(command *cobra.Command, field endpoint.Field) *fieldFlag {
	flag := &fieldFlag{field: field}
	name := o.flags[field.Name]
	if field.Secret {
		command.Flags().StringVar(&flag.file, name, "-", "the `file` that holds the "+field.Name+"; - is standard input")
		return flag
	}
	usage := o.flagNames.Replace(field.Doc)
	if strings.HasSuffix(field.Name, "Micros") {
		amountFlags(command, flag, name, usage)
		return flag
	}
	command.Flags().Var(flag, name, usage)
	if field.Type == endpoint.BooleanField {
		command.Flags().Lookup(name).NoOptDefVal = "true"
	}
	if field.MaxLength > longText {
		command.Flags().StringVar(&flag.file, name+"-file", "", "the `file` that holds the "+name+"; - is standard input")
		command.MarkFlagsMutuallyExclusive(name, name+"-file")
	}
	if field.Required {
		required(command, name)
	}
	return flag
}

// longText is the length from which a text may be read from a file. mostSecret is how much is read of a secret without a length.
const longText, mostSecret = 2000, 16 << 10

// nameFlags completes flags and makes flagNames. In texts, a field of one word stays as it is if its flag has the same name: it is also a word
// of the language.
func (o *operation) nameFlags(fields []endpoint.Field) {
	var pairs []string
	named := make(map[string]string, len(fields))
	for _, field := range fields {
		named[field.Name] = cmp.Or(o.flags[field.Name], words(field.Name, "-"))
		if field.Secret {
			named[field.Name] += "-file"
		}
		if flag := named[field.Name]; flag != field.Name {
			pairs = append(pairs, field.Name, "--"+flag)
		}
	}
	o.flags, o.flagNames = named, strings.NewReplacer(pairs...)
}

// words writes the words of a name like createdAt in small letters, with a text between.
func words(name, between string) string {
	var text strings.Builder
	for _, r := range name {
		if r >= 'A' && r <= 'Z' {
			text.WriteString(between)
			r += 'a' - 'A'
		}
		text.WriteRune(r)
	}
	return text.String()
}

func (o *operation) run(ctx context.Context, e *commandEnv, orgID string, values endpoint.Values) (answer, error) {
	models, err := e.app.Catalog()
	if err != nil {
		return nil, fmt.Errorf("the models of the configuration: %w", err)
	}
	deps := &api.Deps{DB: e.db, Models: models, Providers: e.app.ProviderNames(), BaseURL: e.app.BaseURL, Wallets: e.book(), Book: e.book()}
	if o.seals {
		if deps.Ring, err = e.ring(); err != nil {
			return nil, err
		}
	}
	deps.Conversations = inbox.New(e.db, deps.Ring)
	principal, err := deps.Operator(ctx, e.actor, orgID)
	if err != nil {
		return nil, err
	}
	if len(o.columns) == 0 {
		body, err := o.Run(ctx, deps, principal, values)
		if err != nil {
			return nil, o.explain(err)
		}
		return newOperationAnswer(body, values, o), nil
	}
	list := &operationList{Data: []json.RawMessage{}, columns: o.columns}
	for {
		body, err := o.Run(ctx, deps, principal, values)
		if err != nil {
			return nil, o.explain(err)
		}
		var page struct {
			Data       []json.RawMessage `json:"data"`
			NextCursor *string           `json:"nextCursor"`
		}
		if err := json.Unmarshal(handlers.Marshal(body), &page); err != nil {
			return nil, fmt.Errorf("reading a page: %w", err)
		}
		list.Data = append(list.Data, page.Data...)
		if page.NextCursor == nil {
			return list, nil
		}
		values["cursor"] = *page.NextCursor
	}
}

// explain puts the flag of a field in the place of the field.
func (o *operation) explain(err error) error {
	refused, ok := errors.AsType[*handlers.Error](err)
	switch {
	case !ok || refused.Code == errcode.InternalError:
		return err
	case refused.Field == "":
		return errors.New(refused.Message)
	}
	flag := "--" + cmp.Or(o.flags[refused.Field], refused.Field)
	if message := o.flagNames.Replace(refused.Message); message != refused.Message {
		return errors.New(message)
	}
	return fmt.Errorf("%s: %s", flag, refused.Message)
}

// fieldFlag is the flag of a field. It keeps its value as JSON has it, and the operation checks it.
type fieldFlag struct {
	field endpoint.Field
	value any
	given bool
	file  string
}

// readFile reads the value from its file, if it has one.
func (f *fieldFlag) readFile(e *commandEnv) error {
	if f.file == "" {
		return nil
	}
	text, err := e.readInput(f.file, f.field.Name, utf8.UTFMax*int64(cmp.Or(f.field.MaxLength, mostSecret)))
	f.value, f.given = string(text), true
	return err
}

// String implements pflag.Value.
func (*fieldFlag) String() string { return "" }

// Type implements pflag.Value; usage texts show it.
func (f *fieldFlag) Type() string {
	switch {
	case len(f.field.Enum) > 0:
		return strings.Join(f.field.Enum, "|")
	case f.field.Type == endpoint.BooleanField:
		return ""
	case f.field.Type == endpoint.TextsField:
		return "text,text…"
	default:
		return string(f.field.Type)
	}
}

// Set implements pflag.Value.
func (f *fieldFlag) Set(text string) (err error) {
	f.given = true
	switch {
	case f.field.Nullable && text == "null":
		f.value = nil
	case f.field.In == "query":
		f.value = text
	case f.field.Type == endpoint.NumberField:
		if f.value, err = strconv.ParseFloat(text, 64); err != nil {
			return errors.New("want a number")
		}
	case f.field.Type == endpoint.BooleanField:
		if f.value, err = strconv.ParseBool(text); err != nil {
			return errors.New("want true or false")
		}
	case f.field.Type == endpoint.TextsField:
		texts, _ := f.value.([]any)
		for one := range strings.SplitSeq(text, ",") {
			texts = append(texts, one)
		}
		f.value = texts
	default:
		f.value = text
	}
	return nil
}

// operationAnswer is the answer of an operation: its object in JSON, a line for each member for people.
type operationAnswer struct {
	json.RawMessage

	operation *operation
	subject   any // what the path names
}

func newOperationAnswer(body any, values endpoint.Values, o *operation) answer {
	a := &operationAnswer{operation: o}
	subject := map[string]any{}
	for _, field := range o.Fields() {
		if field.In == "path" {
			a.subject, subject[field.Name] = values[field.Name], values[field.Name]
		}
	}
	if body == nil {
		body = subject
	}
	a.RawMessage = handlers.Marshal(body)
	return a
}

func (a *operationAnswer) text(w *strings.Builder) {
	if a.operation.done != "" {
		fmt.Fprintf(w, a.operation.done+"\n", a.subject)
		return
	}
	for name, value := range members(a.RawMessage) {
		fmt.Fprintf(w, "%s\t%s\n", name, value)
	}
	if a.operation.note != "" {
		fmt.Fprintln(w, a.operation.note)
	}
}

// operationList is the answer of a list, all of its pages.
type operationList struct {
	Data []json.RawMessage `json:"data"`

	columns []string
}

func (l *operationList) text(w *strings.Builder) {
	heads := make([]string, len(l.columns))
	for i, column := range l.columns {
		heads[i] = strings.ToUpper(words(column, " "))
	}
	fmt.Fprintln(w, strings.Join(heads, "\t"))
	for _, row := range l.Data {
		shown := maps.Collect(members(row))
		cells := make([]string, len(l.columns))
		for i, column := range l.columns {
			cells[i] = shown[column]
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
}

// members yields the members of an object in its order, as people read them: a dash for null, texts on one line, lists with commas between,
// and an ellipsis for an object.
func members(object json.RawMessage) func(yield func(name, value string) bool) {
	return func(yield func(name, value string) bool) {
		decoder := json.NewDecoder(strings.NewReader(string(object)))
		decoder.UseNumber()
		decoder.Token() //nolint:errcheck // it is an object
		for decoder.More() {
			name, _ := decoder.Token()
			var value any
			if decoder.Decode(&value) != nil || !yield(fmt.Sprint(name), shown(value)) {
				return
			}
		}
	}
}

// shown returns a value as people read it.
func shown(value any) string {
	switch value := value.(type) {
	case nil:
		return "-"
	case []any:
		texts := make([]string, len(value))
		for i, one := range value {
			texts[i] = shown(one)
		}
		return strings.Join(texts, ",")
	case map[string]any:
		return "…"
	case string:
		return oneLine(value)
	default:
		return fmt.Sprint(value)
	}
}
