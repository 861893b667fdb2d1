package dashboard

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/api"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/identity"
)

// overHTTP makes a dashboard run operations as requests to its API, whose answers tests write as JSON. Values without a field of the operation
// panic.
func overHTTP(d *Dashboard) *Dashboard {
	d.config.Person = func(*http.Request) (*identity.Principal, error) { return &identity.Principal{UserID: "usr_1"}, nil }
	d.config.Ask = func(w http.ResponseWriter, _ *http.Request, _ *identity.Principal, o api.Operation, in endpoint.Values) (any, error) {
		answer := httptest.NewRecorder()
		d.config.API.ServeHTTP(answer, requestOf(o, in))
		for _, cookie := range answer.Header()["Set-Cookie"] {
			w.Header().Add("Set-Cookie", cookie)
		}
		if answer.Code >= http.StatusBadRequest {
			return nil, refusalIn(answer)
		}
		out := reflect.New(reflect.ValueOf(o).FieldByName("Do").Type().Out(0).Elem())
		if o.Spec().Table != nil {
			return tableIn(o, answer.Body.Bytes())
		}
		if body := out.Elem().FieldByName("Body"); body.IsValid() && answer.Body.Len() > 0 {
			if err := json.Unmarshal(answer.Body.Bytes(), body.Addr().Interface()); err != nil {
				return nil, err
			}
		}
		return out.Interface(), nil
	}
	return d
}

func tableIn(o api.Operation, text []byte) (any, error) {
	if o.Spec().ID == api.ListCalls.ID {
		var list endpoint.JSON[endpoint.ListObject[api.CallObject]]
		return &list, json.Unmarshal(text, &list.Body)
	}
	if o.Spec().ID == api.GetStatement.ID {
		var statement endpoint.JSON[api.StatementDetail]
		return &statement, json.Unmarshal(text, &statement.Body)
	}
	var list endpoint.JSON[endpoint.ListObject[api.TransactionObject]]
	return &list, json.Unmarshal(text, &list.Body)
}

// requestOf returns the request that has the values of an operation.
func requestOf(o api.Operation, in endpoint.Values) *http.Request {
	path, query, body, fields := o.Spec().Path, url.Values{}, map[string]any{}, o.Fields()
	for name, value := range in {
		if name == handlers.HeaderIdempotencyKey {
			continue
		}
		at := slices.IndexFunc(fields, func(f endpoint.Field) bool { return f.Name == name })
		if at < 0 {
			panic(o.Spec().ID + " has no field " + name)
		}
		text, isText := value.(string)
		switch fields[at].In {
		case "path":
			path = strings.Replace(path, "{"+name+"}", url.PathEscape(text), 1)
		case "query":
			if text != "" || !isText {
				query.Set(name, text)
			}
		default:
			body[name] = value
		}
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	r := httptest.NewRequest(o.Spec().Method, path, bytes.NewReader(text))
	if !slices.ContainsFunc(fields, func(f endpoint.Field) bool { return f.In == "body" }) {
		r.Body = http.NoBody
	}
	if key, given := in[handlers.HeaderIdempotencyKey].(string); given {
		r.Header.Set(handlers.HeaderIdempotencyKey, key)
	}
	return r
}

// refusalIn returns the error of an answer with an error body.
func refusalIn(answer *httptest.ResponseRecorder) error {
	var document handlers.ErrorDocument
	if err := json.Unmarshal(answer.Body.Bytes(), &document); err != nil || document.Error.Code == "" {
		return errors.New("there is no error body")
	}
	seconds, _ := strconv.ParseInt(answer.Header().Get("Retry-After"), 10, 64) // 0 without
	return &handlers.Error{
		Code: document.Error.Code, Message: document.Error.Message, Field: document.Error.Field,
		RetryAfter: time.Duration(max(seconds, document.Error.RetryAfter)) * time.Second,
	}
}
