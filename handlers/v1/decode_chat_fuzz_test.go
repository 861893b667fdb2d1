package v1

import (
	"bytes"
	"errors"
	"io"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/handlers/handlertest"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
)

// FuzzDecodeChat compares DecodeChat with a decoder that is written from the contract over a general JSON library: both
// must accept the same bodies, with the same values, and name the same faulty field.
func FuzzDecodeChat(f *testing.F) {
	for _, body := range []string{
		``, `{}`, `[]`, `null`, ` {"model":"m/x",` + hello + `} `,
		`{"model":"m/x","messages":[{"role":"user","content":"h\u00e9\ud83d\ude00\n"},{"role":"tool","content":""}],"temperature":0.5,"max_tokens":1e1,"top_p":1,"stop":["a","b"],"stream":true}`,
		`{"model":"m/x",` + hello + `,"max_completion_tokens":5.0,"max_tokens":null,"stop":"x","temperature":null}`,
		`{"model":"m/x",` + hello + `,"x":{"a":1,"\u0061":2}}`, `{"model":"m/x",` + hello + `,"Model":1,"temperature":2.5}`,
		`{"model":"m/x","messages":[{"role":"x","content":1},{"role":"user","content":null}],"max_tokens":0}`,
		`{"model":"m/x","messages":[{"content":[]}],"stop":[1]}`, `{"model":"m/x",` + hello + `,"x":"\ud800"}`, "{\"model\":\"\xff\"}",
		`{"model":"m/x",` + hello + `,"x":[[[[[[[[[[]]]]]]]]]],"y":-0.1e+3,"max_tokens":10.0e0}`,
		`{"a":0,"b":0,"c":0,"d":0,"e":0,"f":0,"g":0,"h":0,"i":0,"j":0,"k":0,"l":0,"m":0,"n":0,"a":1}`,
		`{"model":"m/x",` + hello + `,"max_tokens":0.0001e5}`, `{"model":"m/x",` + hello + `,"temperature":-0}`, `{"model":"m/x",` + hello + `,"max_tokens":00}`,
		strings.Repeat(`[`, 70) + strings.Repeat(`]`, 70), `{"model":"m/x",` + hello + `,"x":` + strings.Repeat(`[`, 63) + strings.Repeat(`]`, 63) + `}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		before := bytes.Clone(body)
		got, err := DecodeChat(body)
		require.Equal(t, before, body, "the body must not be changed")
		want, field, valid := referenceDecode(body)
		if !valid {
			require.Nil(t, got)
			require.Equal(t, errcode.InvalidRequest, handlertest.RequireInvalid(t, err).Code)
			if field != "?" {
				require.Equal(t, field, handlertest.RequireInvalid(t, err).Field)
			}
			return
		}
		require.NoError(t, err)
		require.Equal(t, want.Model, got.Model)
		require.Equal(t, want.Temperature, got.Temperature)
		require.Equal(t, want.TopP, got.TopP)
		require.Equal(t, want.MaxTokens, got.MaxTokens)
		require.Equal(t, want.Stop, got.Stop)
		require.Equal(t, want.Stream, got.Stream)
		require.Len(t, got.Messages, len(want.Messages))
		for i, m := range got.Messages {
			require.Equal(t, want.Messages[i].role, m.Role)
			var content string
			require.NoError(t, json.Unmarshal(m.Content, &content))
			require.Equal(t, want.Messages[i].content, content)
			require.Equal(t, want.Messages[i].content, m.Content.Text())
		}
	})
}

type referenceRequest struct {
	Model             string
	Messages          []struct{ role, content string }
	Temperature, TopP *float64
	MaxTokens         int64
	Stop              []string
	Stream            bool
}

// referenceDecode returns the request, or the faulty field: "?" when the body isn't acceptable JSON.
func referenceDecode(body []byte) (req referenceRequest, field string, valid bool) {
	if !jsontext.Value(body).IsValid() || tooDeep(body) || jsontext.Value(bytes.TrimLeft(body, " \t\r\n")).Kind() != '{' {
		return req, "?", false
	}
	var members map[string]jsontext.Value
	if err := json.Unmarshal(body, &members); err != nil {
		return req, "?", false
	}
	for name, value := range members {
		if value.Kind() == 'n' {
			delete(members, name)
		}
	}
	if members["model"].Kind() != '"' {
		return req, "model", false
	}
	req.Model = referenceText(members["model"])
	if members["messages"].Kind() != '[' {
		return req, "messages", false
	}
	list := referenceList(members["messages"])
	for i, element := range list {
		if i >= MaxMessages {
			break
		}
		at := "messages[" + strconv.Itoa(i) + "]"
		if element.Kind() != '{' {
			return req, at, false
		}
		var m map[string]jsontext.Value
		if err := json.Unmarshal(element, &m); err != nil {
			return req, "?", false
		}
		role := ""
		if m["role"].Kind() == '"' {
			role = referenceText(m["role"])
		}
		if role != "system" && role != "user" && role != "assistant" && role != "tool" {
			return req, at + ".role", false
		}
		if m["content"].Kind() != '"' || utf8.RuneCountInString(referenceText(m["content"])) > 200_000 {
			return req, at + ".content", false
		}
		req.Messages = append(req.Messages, struct{ role, content string }{role, referenceText(m["content"])})
	}
	if len(list) == 0 || len(list) > 10_000 {
		return req, "messages", false
	}
	var ok bool
	if req.Temperature, ok = referenceFloat(members["temperature"], 2); !ok {
		return req, "temperature", false
	}
	if v, exists := members["max_tokens"]; exists {
		if req.MaxTokens, ok = referenceTokens(v); !ok {
			return req, "max_tokens", false
		}
	} else {
		req.MaxTokens, _ = referenceTokens(members["max_completion_tokens"])
	}
	if req.TopP, ok = referenceFloat(members["top_p"], 1); !ok {
		return req, "top_p", false
	}
	if req.Stop, field = referenceStop(members["stop"]); field != "" {
		return req, field, false
	}
	switch members["stream"].Kind() {
	case 't':
		req.Stream = true
	case 'f', jsontext.KindInvalid:
	default:
		return req, "stream", false
	}
	return req, "", true
}

func tooDeep(body []byte) bool {
	d := jsontext.NewDecoder(bytes.NewReader(body))
	for {
		if _, err := d.ReadToken(); err != nil {
			return !errors.Is(err, io.EOF)
		}
		if d.StackDepth() > 64 {
			return true
		}
	}
}

func referenceText(v jsontext.Value) (s string) {
	if err := json.Unmarshal(v, &s); err != nil {
		panic(err)
	}
	return s
}

func referenceList(v jsontext.Value) (list []jsontext.Value) {
	if err := json.Unmarshal(v, &list); err != nil {
		panic(err)
	}
	return list
}

func referenceFloat(v jsontext.Value, most float64) (*float64, bool) {
	if v == nil {
		return nil, true
	}
	if v.Kind() != '0' {
		return nil, false
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || f < 0 || f > most {
		return nil, false
	}
	f += 0
	return &f, true
}

func referenceTokens(v jsontext.Value) (int64, bool) {
	if v == nil || v.Kind() != '0' {
		return 0, false
	}
	// An exponent of more than 4 digits can't be balanced by the digits of a body that a fuzzer makes.
	if _, exponent, _ := strings.Cut(strings.ToLower(string(v)), "e"); len(strings.TrimLeft(exponent, "+-0")) > 4 {
		return 0, false
	}
	r, ok := new(big.Rat).SetString(string(v))
	if !ok || !r.IsInt() || !r.Num().IsInt64() || r.Num().Int64() < 1 || r.Num().Int64() > 200_000 {
		return 0, false
	}
	return r.Num().Int64(), true
}

func referenceStop(v jsontext.Value) (stop []string, field string) {
	switch v.Kind() {
	case jsontext.KindInvalid:
		return nil, ""
	case '"':
		return []string{referenceText(v)}, ""
	case '[':
		for i, element := range referenceList(v) {
			if element.Kind() != '"' {
				return nil, "stop[" + strconv.Itoa(i) + "]"
			}
			stop = append(stop, referenceText(element))
		}
		return stop, ""
	default:
		return nil, "stop"
	}
}
