package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caddy-svc/caddy-svc/caddymodule"
	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
)

// operatorKeyVariable has the operator's key for --server.
const operatorKeyVariable = "SVC_OPERATOR_KEY"

// overServer marks commands that --server can run.
const overServer = "over-server"

const (
	remoteWait   = time.Minute
	remoteAnswer = 64 << 20 // bytes
)

// remote runs operations at the operator's interface of another machine.
type remote struct {
	url, key, actor string
	client          http.Client
}

// serverFlags adds the flags of --server, which refuse commands about the machine.
func (f *commandFlags) serverFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&f.server, "server", "",
		"the `URL` of the operator's interface on another machine, where the command runs with the operator's key in "+operatorKeyVariable)
	flags.StringVar(&f.serverKeyFile, "server-key-file", "", "the `file` with the operator's key for --server")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if f.server != "" && cmd.Annotations[overServer] == "" {
			return fmt.Errorf("%s is not in the operator's interface; run it on the server's machine, without --server", cmd.CommandPath())
		}
		return nil
	}
}

// remote returns the interface that --server names.
func (f *commandFlags) remote() (*remote, error) {
	address, err := url.Parse(f.server)
	if err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https" || strings.Trim(address.Path, "/") != "" {
		return nil, errors.New("--server must be a URL such as https://svc-admin.example.com or http://10.0.0.5:8081")
	}
	if caddymodule.PublicHTTP(f.server) {
		return nil, errors.New("--server: the operator's key would go to a public host without TLS; use https")
	}
	key := os.Getenv(operatorKeyVariable)
	if f.serverKeyFile != "" {
		text, err := os.ReadFile(f.serverKeyFile)
		if err != nil {
			return nil, fmt.Errorf("reading --server-key-file: %w", err)
		}
		key = string(text)
	}
	if key = strings.TrimSpace(key); key == "" {
		return nil, fmt.Errorf("--server needs an operator's key in %s or --server-key-file; "+
			"`caddy svc operator key create` makes one on the machine", operatorKeyVariable)
	}
	return &remote{url: address.Scheme + "://" + address.Host, key: key, actor: operator(), client: http.Client{
		Timeout: remoteWait, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// run runs an operation and returns the body of its answer, nil if it has none.
func (r *remote) run(ctx context.Context, o api.Operation, orgID string, values endpoint.Values) (any, error) {
	route, ok := api.OperatorRoute(o)
	if !ok {
		return nil, errors.New("this is not in the operator's interface; run it on the server's machine, without --server")
	}
	path, query, members := strings.ReplaceAll(route.Path, "{orgId}", url.PathEscape(orgID)), url.Values{}, map[string]any{}
	for _, field := range o.Fields() {
		value, given := values[field.Name]
		switch {
		case !given:
		case field.In == "path":
			path = strings.ReplaceAll(path, "{"+field.Name+"}", url.PathEscape(fmt.Sprint(value)))
		case field.In == "body":
			members[field.Name] = value
		default:
			query.Set(field.Name, fmt.Sprint(value))
		}
	}
	body := io.Reader(http.NoBody)
	if route.Method != http.MethodGet && route.Method != http.MethodDelete {
		body = bytes.NewReader(handlers.Marshal(members))
	}
	request, err := http.NewRequestWithContext(ctx, route.Method, r.url+path+"?"+query.Encode(), body)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", r.url, err)
	}
	request.Header.Set("Authorization", "Bearer "+r.key)
	request.Header.Set("X-Actor", r.actor)
	client := r.client
	if slices.ContainsFunc(o.Fields(), func(f endpoint.Field) bool { return f.Name == "format" }) {
		client.Timeout = 0 // a file may be long
	}
	return r.send(&client, request)
}

func (r *remote) send(client *http.Client, request *http.Request) (any, error) {
	response, err := client.Do(request) //nolint:bodyclose // a file closes it when it was written
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", r.url, errors.Unwrap(err)) // without the path, which has ids
	}
	if kind, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";"); response.StatusCode == http.StatusOK && kind != "application/json" {
		return endpoint.File(func(w http.ResponseWriter, _ *http.Request) {
			defer response.Body.Close() //nolint:errcheck // it was only read
			if _, err := io.Copy(w, response.Body); err != nil {
				panic(http.ErrAbortHandler)
			}
		}), nil
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(response.Body, remoteAnswer))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the answer of %s: %w", r.url, err)
	case response.StatusCode == http.StatusNoContent:
		return nil, nil
	case response.StatusCode < http.StatusMultipleChoices && json.Valid(text):
		return json.RawMessage(text), nil
	}
	var refused handlers.ErrorDocument
	if json.Unmarshal(text, &refused) != nil || refused.Error.Code == "" {
		return nil, fmt.Errorf("%s has no operator's interface (status %d): is it the address of svc_operator?", r.url, response.StatusCode)
	}
	return nil, &handlers.Error{Code: refused.Error.Code, Message: refused.Error.Message, Field: refused.Error.Field}
}
