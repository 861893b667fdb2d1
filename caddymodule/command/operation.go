package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/identity"
	"github.com/caddy-svc/caddy-svc/internal/inbox"
	"github.com/caddy-svc/caddy-svc/internal/store"
)

// operation is an operation of the API as a command. The id in its path is the argument, and the rest of its input are flags, each named like its
// field: expiresInDays is --expires-in-days. An id belongs to an organization; without an id the organization is --org, except for an operation on
// the whole service.
type operation struct {
	api.Operation

	verb string
	// noun is the noun of the argument, if it isn't the command's.
	noun          string
	long, example string
	// columns of a table are the names of members of the answer's rows.
	columns []string
	// argument is the field that is the argument, if it isn't id.
	argument string
	// ofOrg: the argument is the organization, or --org is.
	ofOrg bool
	// one is the operation on an id that may be the argument in place of --org.
	one *operation
	// byEmail: the flags --email and --org name the member with the id.
	byEmail bool
	// newest: --limit bounds the rows.
	newest bool
	// seals: it needs the master key.
	seals bool
	// fixed are the values of fields that are no flags.
	fixed endpoint.Values
	// note is printed below an answer, and done in place of one, with the argument.
	note, done string
	// flags are the names of flags by field. Other fields get the words of their names, see [operation.nameFlags].
	flags map[string]string

	// fields are the operation's, and flagNames replaces them in a text by their flags. Both are made by nameFlags.
	fields    []endpoint.Field
	flagNames *strings.Replacer
}

// pagingFields are the fields of lists that a command leaves out: it reads all pages.
var pagingFields = []string{"limit", "cursor", "format"}

// mostRows is the largest --limit of a command with newest.
const mostRows = 10_000

// has reports whether the input has a field.
func (o *operation) has(name string) bool {
	return slices.ContainsFunc(o.fields, func(field endpoint.Field) bool { return field.Name == name })
}

// given has the input of a command besides its arguments.
type given struct {
	command    *cobra.Command
	flags      map[string]*fieldFlag // by field
	org, email string
	limit      int
}

// command makes the command of an operation on a noun.
func (o *operation) command(f *commandFlags, noun string) *cobra.Command {
	noun = cmp.Or(o.noun, noun)
	command := &cobra.Command{Use: o.verb, Short: o.Spec().Summary, Long: o.long, Example: o.example}
	o.nameFlags()
	if o.one != nil {
		o.one.nameFlags()
	}
	if o.argument == "" && o.has("id") && !o.byEmail {
		o.argument = "id"
	}
	if o.argument != "" || o.ofOrg || o.one != nil {
		command.Use += " " + strings.ToUpper(noun) + "_ID"
		command.Args = exactly("the " + noun + "'s id")
	}
	command.Use += " [flags]"
	if o.overServer() {
		command.Annotations = map[string]string{overServer: "yes"}
	}
	g := &given{command: command, flags: o.addFlags(command), limit: mostRows}
	if !api.OfService(o) && (!o.has("id") || o.byEmail) {
		command.Flags().StringVar(&g.org, "org", "", "the `id` of the organization")
		if o.ofOrg || o.one != nil {
			command.Args = argumentOrOrg(noun, &g.org)
		} else {
			required(command, "org")
		}
	}
	if o.byEmail {
		command.Flags().StringVar(&g.email, "email", "", "the member's e-mail `address`")
		required(command, "email")
	}
	if o.newest {
		command.Flags().IntVar(&g.limit, "limit", 100, fmt.Sprintf("how many `rows`, 1 to %d", mostRows))
	}
	return f.verb(command, openExisting, func(ctx context.Context, e *commandEnv) (answer, error) { return o.call(ctx, e, g) })
}

// overServer reports whether --server can run the command.
func (o *operation) overServer() bool {
	_, ok := api.OperatorRoute(o)
	return ok || o.one != nil && o.one.overServer()
}

// call runs the operation that a command was given.
func (o *operation) call(ctx context.Context, e *commandEnv, g *given) (answer, error) {
	values := endpoint.Values{}
	for name, flag := range g.flags {
		if flag.given {
			values[name] = flag.value
		}
	}
	if o.one != nil && g.org == "" {
		if len(values) > 0 {
			return nil, fmt.Errorf("%s takes flags only with --org (see %s --help)", g.command.CommandPath(), g.command.CommandPath())
		}
		o, values["id"] = o.one, e.args[0]
	} else if o.argument != "" {
		values[o.argument] = e.args[0]
	}
	if o.ofOrg && g.org == "" {
		g.org = e.args[0]
	}
	orgID, err := o.organization(ctx, e, g, values)
	if err != nil {
		return nil, err
	}
	if o.byEmail {
		if values["id"], err = e.memberID(ctx, orgID, g.email); err != nil {
			return nil, err
		}
	}
	for name, flag := range g.flags {
		if err := flag.readFile(e); err != nil {
			return nil, err
		}
		if flag.given {
			values[name] = flag.value
		}
	}
	if g.limit < 1 || g.limit > mostRows {
		return nil, fmt.Errorf("--limit is %d, want 1 to %d", g.limit, mostRows)
	}
	maps.Copy(values, o.fixed)
	return o.run(ctx, e, orgID, values, g.limit)
}

// argumentOrOrg accepts one argument, or none with --org.
func argumentOrOrg(noun string, org *string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if (*org == "") == (len(args) == 0) || len(args) > 1 {
			return fmt.Errorf("%s takes the id of one %s as its argument, or --org, and not both (see %s --help)",
				cmd.CommandPath(), noun, cmd.CommandPath())
		}
		return nil
	}
}

// organization returns the organization of an operation: none for the whole service, the owner of an id, or that of --org. Errors don't quote an id
// that can't be one, because it may be a secret.
func (o *operation) organization(ctx context.Context, e *commandEnv, g *given, values endpoint.Values) (string, error) {
	id, hasID := values["id"].(string)
	if api.OfService(o) {
		return "", nil
	}
	if !hasID {
		return g.org, e.checkOrganization(ctx, g.org)
	}
	parent, hint := g.command.Parent(), ""
	noun := cmp.Or(o.noun, parent.Name())
	if o.argument != "" && o.argument != "id" {
		noun = o.flags["id"]
	}
	hasList := slices.ContainsFunc(parent.Commands(), func(c *cobra.Command) bool { return c.Name() == "list" })
	if noun == parent.Name() && hasList {
		hint = "; `caddy svc " + noun + " list --org ORG_ID` shows them"
	}
	if !handlers.WellFormedID(id) || strings.HasPrefix(id, "ck_") {
		return "", fmt.Errorf("that is not the id of a %s%s", noun, hint)
	}
	if e.remote != nil {
		return api.OwnerOfID, nil
	}
	group, _, _ := strings.Cut(o.Spec().Path, "/{id}")
	orgID, err := e.db.OwnerOf(ctx, store.OwnedKind(strings.ReplaceAll(path.Base(group), "-", "_")), id)
	if errors.Is(err, store.ErrNotFound) {
		return "", fmt.Errorf("no %s has the id %q%s", noun, id, hint)
	}
	return orgID, err
}

// memberID returns the id of an organization's user with an e-mail address.
func (e *commandEnv) memberID(ctx context.Context, orgID, email string) (string, error) {
	address, err := identity.CleanEmail(email)
	if err != nil {
		return "", err
	}
	members := operation{Operation: api.ListMembers, columns: []string{"email"}}
	members.nameFlags()
	list, err := members.run(ctx, e, orgID, endpoint.Values{}, mostRows)
	if err != nil {
		return "", err
	}
	for _, row := range list.(*operationList).Data { //nolint:forcetypeassert,errcheck // an operation with columns answers a list
		var member struct {
			ID    string `json:"id"`
			Email string `json:"email"`
		}
		if err := json.Unmarshal(row, &member); err != nil {
			return "", fmt.Errorf("reading the members: %w", err)
		}
		if member.Email == address {
			return member.ID, nil
		}
	}
	return "", fmt.Errorf("organization %s has no user with the e-mail address %q; `caddy svc user list` shows them", orgID, address)
}

// operator returns the dependencies of operations and the operator as their principal.
func (e *commandEnv) operator(ctx context.Context, orgID string, seals bool) (*api.Deps, *identity.Principal, error) {
	models, err := e.app.Catalog()
	if err != nil {
		return nil, nil, fmt.Errorf("the models of the configuration: %w", err)
	}
	deps := &api.Deps{
		DB: e.db, Models: models, Providers: e.app.ProviderNames(), BaseURL: e.app.BaseURL, Wallets: e.book(), Book: e.book(), Plans: e.app,
		Catalog: channelTypes(),
	}
	if seals {
		if deps.Ring, err = e.ring(); err != nil {
			return nil, nil, err
		}
	}
	deps.Conversations = inbox.New(e.db, deps.Ring)
	principal, err := deps.Operator(ctx, identity.CommandLine(e.actor), orgID)
	return deps, principal, err
}

// run runs the operation, a list or a change of many for all pages.
func (o *operation) run(ctx context.Context, e *commandEnv, orgID string, values endpoint.Values, limit int) (answer, error) {
	run := func() (any, error) { return e.remote.run(ctx, o, orgID, values) }
	if e.remote == nil {
		deps, principal, err := e.operator(ctx, orgID, o.seals)
		if err != nil {
			return nil, err
		}
		run = func() (any, error) { return o.Run(ctx, deps, principal, values) }
	}
	if o.has("cursor") {
		values["limit"] = "100"
	}
	list := &operationList{Data: []json.RawMessage{}, columns: o.columns}
	for changed := 0; ; {
		body, err := run()
		if err != nil && changed > 0 {
			return nil, fmt.Errorf("%d are changed; then: %w", changed, o.explain(err))
		}
		if err != nil {
			return nil, o.explain(err)
		}
		if file, ok := body.(endpoint.File); ok {
			return nil, e.writeFile(ctx, file)
		}
		if o.columns == nil && o.one == nil {
			return o.answer(body, values), nil
		}
		var page struct {
			Data       []json.RawMessage `json:"data"`
			Changed    int               `json:"changed"`
			NextCursor *string           `json:"nextCursor"`
		}
		if err := json.Unmarshal(handlers.Marshal(body), &page); err != nil {
			return nil, fmt.Errorf("reading a page: %w", err)
		}
		list.Data = append(list.Data, page.Data...)
		changed += page.Changed
		switch {
		case page.NextCursor != nil && (!o.newest || len(list.Data) < limit):
			values["cursor"] = *page.NextCursor
		case o.one != nil:
			return &operationAnswer{handlers.Marshal(map[string]int{"changed": changed}), o, changed}, nil
		default:
			if o.newest {
				list.Data = list.Data[:min(limit, len(list.Data))]
			}
			return list, nil
		}
	}
}

// fileWriter writes the body of a file to standard output.
type fileWriter struct {
	io.Writer

	err error
}

// Header implements [http.ResponseWriter].
func (*fileWriter) Header() http.Header { return http.Header{} }

// WriteHeader implements [http.ResponseWriter].
func (*fileWriter) WriteHeader(int) {}

// Write keeps the first error.
func (w *fileWriter) Write(text []byte) (n int, err error) {
	n, err = w.Writer.Write(text)
	w.err = cmp.Or(w.err, err)
	return n, err
}

// writeFile writes a file to standard output. A file that can't be read to its end panics as it would for HTTP.
func (e *commandEnv) writeFile(ctx context.Context, file endpoint.File) (err error) {
	defer func() {
		switch cause := recover(); cause {
		case nil:
		case http.ErrAbortHandler:
			err = errors.New("reading the rest failed, so the file is not complete")
		default:
			panic(cause)
		}
	}()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
	if err != nil {
		return err
	}
	w := &fileWriter{Writer: e.stdout}
	file(w, r)
	return w.err
}

// explain puts the flag of a field in the place of the field.
func (o *operation) explain(err error) error {
	refused, ok := errors.AsType[*handlers.Error](err)
	if !ok || refused.Code == errcode.InternalError {
		return err
	}
	if refused.Field == "" || refused.Field == o.argument {
		return errors.New(refused.Message)
	}
	if message := o.flagNames.Replace(refused.Message); message != refused.Message {
		return errors.New(message)
	}
	field, _, _ := strings.Cut(refused.Field, ".")
	if rule, ok := strings.CutPrefix(refused.Message, field+" "); ok && o.flags[field] == field {
		return fmt.Errorf("--%s %s", field, rule)
	}
	return fmt.Errorf("--%s: %s", cmp.Or(o.flags[field], field), refused.Message)
}

// operationAnswer is the answer of an operation: its object in JSON, a line for each member for people.
type operationAnswer struct {
	json.RawMessage

	operation *operation
	subject   any
}

// answer returns the answer of a body, or of the values in the path if there is no body.
func (o *operation) answer(body any, values endpoint.Values) answer {
	a := &operationAnswer{operation: o}
	path := map[string]any{}
	for _, field := range o.fields {
		if field.In == "path" || field.Name == o.argument {
			a.subject, path[field.Name] = values[field.Name], values[field.Name]
		}
	}
	if body == nil {
		body = path
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
	heads := store.Column(l.columns, func(column string) string { return strings.ToUpper(words(column, " ")) })
	fmt.Fprintln(w, strings.Join(heads, "\t"))
	for _, row := range l.Data {
		shown := maps.Collect(members(row))
		cells := store.Column(l.columns, func(column string) string { return shown[column] })
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
		return strings.Join(store.Column(value, shown), ",")
	case map[string]any:
		return "…"
	case string: // without characters that would break a table or control the terminal, as in the reason of an adjustment
		return strings.Map(func(r rune) rune {
			if unicode.IsControl(r) {
				return ' '
			}
			return r
		}, value)
	default:
		return fmt.Sprint(value)
	}
}
