// Package logformat is the log format `svc`, which shows no secrets. It encodes log lines for Caddy and writes them with
// another encoder.
package logformat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/caddy/v2/modules/logging"
	"go.uber.org/zap"
	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"

	"github.com/caddy-svc/caddy-svc/caddymodule/config"
)

func init() { caddy.RegisterModule(new(Encoder)) }

// Encoder is a log format that shows no secret, whatever name a client sends it under. Of a request's headers,
// of the response's, and of a query it shows the values of an allow-list; of others only the name, and not even
// that when it could itself be a key. In all other texts of a log it finds API keys of this service, passwords and
// queries in addresses, and the tokens of bots in paths, and replaces them by REDACTED. Caddy's option
// `log_credentials` changes nothing of this. A field that a site adds with `log_append` is shown: it was asked for.
//
// Syntax, in a log block:
//
//	format svc [{
//	    wrap <format> …
//	}]
type Encoder struct {
	// The format that writes the lines. Default: json, or console when the log goes to a terminal.
	WrappedRaw json.RawMessage `json:"wrap,omitempty" caddy:"namespace=caddy.logging.encoders inline_key=format"`

	zapcore.Encoder `json:"-"`

	byDefault bool // the configuration names no format
}

// CaddyModule returns the Caddy module information.
func (*Encoder) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.logging.encoders.svc", New: func() caddy.Module { return new(Encoder) }}
}

// UnmarshalCaddyfile reads the format. Syntax: see [Encoder].
func (e *Encoder) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	if d.NextArg() {
		return d.Errf("format svc takes no arguments, found %s", config.Quoted(d.Val()))
	}
	for d.NextBlock(0) {
		if d.Val() != "wrap" {
			return d.Errf("format svc has no option %s; allowed: wrap", config.Quoted(d.Val()))
		}
		if e.WrappedRaw != nil {
			return d.Err("format svc: wrap stands twice")
		}
		if !d.NextArg() {
			return d.Err("format svc: wrap needs the name of a format, such as json or console")
		}
		name := d.Val()
		module, err := caddyfile.UnmarshalModule(d, "caddy.logging.encoders."+name)
		if err != nil {
			return err
		}
		e.WrappedRaw = caddyconfig.JSONModuleObject(module, "format", name, nil)
	}
	return nil
}

// Provision loads the format that writes the lines.
func (e *Encoder) Provision(ctx caddy.Context) error {
	if e.byDefault = e.WrappedRaw == nil; e.byDefault {
		return e.wrapDefault(ctx, new(logging.JSONEncoder))
	}
	module, err := ctx.LoadModule(e, "WrappedRaw")
	if err != nil {
		return fmt.Errorf("format svc: %w", err)
	}
	wrapped, ok := module.(zapcore.Encoder)
	if !ok {
		return fmt.Errorf("format svc: %T writes no log lines", module)
	}
	e.Encoder = wrapped
	return nil
}

// wrapDefault wraps a format of Caddy's own.
func (e *Encoder) wrapDefault(ctx caddy.Context, format interface {
	zapcore.Encoder
	caddy.Provisioner
},
) error {
	e.Encoder = format
	return format.Provision(ctx)
}

// ConfigureDefaultFormat chooses the format for people when the log goes to a terminal and the configuration names none.
func (e *Encoder) ConfigureDefaultFormat(writer caddy.WriterOpener) error {
	if !e.byDefault {
		if wrapped, ok := e.Encoder.(caddy.ConfiguresFormatterDefault); ok {
			return wrapped.ConfigureDefaultFormat(writer)
		}
		return nil
	}
	if !caddy.IsWriterStandardStream(writer) || !isTerminal(os.Stderr) {
		return nil
	}
	return e.wrapDefault(caddy.Context{}, new(logging.ConsoleEncoder))
}

func isTerminal(file *os.File) bool {
	is, err := file.Stat()
	return err == nil && is.Mode()&os.ModeCharDevice != 0
}

// Clone implements [zapcore.Encoder].
func (e *Encoder) Clone() zapcore.Encoder { return &Encoder{Encoder: e.Encoder.Clone()} }

// EncodeEntry implements [zapcore.Encoder].
func (e *Encoder) EncodeEntry(entry zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	entry.Message = cleanText(entry.Message)
	entry.Stack = cleanText(entry.Stack)
	clean := zap.Inline(zapcore.ObjectMarshalerFunc(func(line zapcore.ObjectEncoder) error {
		for i := range fields {
			fields[i].AddTo(cleanObject{line})
		}
		return nil
	}))
	return e.Encoder.EncodeEntry(entry, []zapcore.Field{clean})
}

// AddString implements [zapcore.ObjectEncoder].
func (e *Encoder) AddString(key, value string) { cleanObject{e.Encoder}.AddString(key, value) }

// AddByteString implements [zapcore.ObjectEncoder].
func (e *Encoder) AddByteString(key string, value []byte) {
	cleanObject{e.Encoder}.AddByteString(key, value)
}

// AddArray implements [zapcore.ObjectEncoder].
func (e *Encoder) AddArray(key string, value zapcore.ArrayMarshaler) error {
	return cleanObject{e.Encoder}.AddArray(key, value)
}

// AddObject implements [zapcore.ObjectEncoder].
func (e *Encoder) AddObject(key string, value zapcore.ObjectMarshaler) error {
	return cleanObject{e.Encoder}.AddObject(key, value)
}

// AddReflected implements [zapcore.ObjectEncoder].
func (e *Encoder) AddReflected(key string, value any) error {
	return cleanObject{e.Encoder}.AddReflected(key, value)
}

// cleanObject adds the fields that may be shown to an object of a log line.
type cleanObject struct{ zapcore.ObjectEncoder }

func (o cleanObject) AddString(key, value string) {
	if key == "uri" || key == "path" {
		value = cleanURI(value)
	} else {
		value = cleanText(value)
	}
	o.ObjectEncoder.AddString(key, value)
}

func (o cleanObject) AddByteString(key string, value []byte) { o.AddString(key, string(value)) }

func (o cleanObject) AddArray(key string, value zapcore.ArrayMarshaler) error {
	return o.ObjectEncoder.AddArray(key, cleanMarshaler{array: value})
}

// AddObject adds an object whose members are cleaned, and headers by their rules.
func (o cleanObject) AddObject(key string, value zapcore.ObjectMarshaler) error {
	if header, ok := value.(caddyhttp.LoggableHTTPHeader); ok {
		return o.ObjectEncoder.AddObject(key, cleanHeader(header.Header))
	}
	return o.ObjectEncoder.AddObject(key, cleanMarshaler{object: value})
}

func (o cleanObject) AddReflected(key string, value any) error {
	if header, ok := value.(http.Header); ok {
		return o.ObjectEncoder.AddObject(key, cleanHeader(header))
	}
	clean, err := cleanReflected(value)
	if err != nil {
		return err
	}
	return o.ObjectEncoder.AddReflected(key, clean)
}

// cleanArray appends the elements that may be shown to an array of a log line.
type cleanArray struct{ zapcore.ArrayEncoder }

func (a cleanArray) AppendString(value string) { a.ArrayEncoder.AppendString(cleanText(value)) }

func (a cleanArray) AppendByteString(value []byte) { a.AppendString(string(value)) }

func (a cleanArray) AppendArray(value zapcore.ArrayMarshaler) error {
	return a.ArrayEncoder.AppendArray(cleanMarshaler{array: value})
}

func (a cleanArray) AppendObject(value zapcore.ObjectMarshaler) error {
	return a.ArrayEncoder.AppendObject(cleanMarshaler{object: value})
}

func (a cleanArray) AppendReflected(value any) error {
	clean, err := cleanReflected(value)
	if err != nil {
		return err
	}
	return a.ArrayEncoder.AppendReflected(clean)
}

// cleanMarshaler marshals an object or an array, and cleans its members, too.
type cleanMarshaler struct {
	object zapcore.ObjectMarshaler
	array  zapcore.ArrayMarshaler
}

func (m cleanMarshaler) MarshalLogObject(line zapcore.ObjectEncoder) error {
	return m.object.MarshalLogObject(cleanObject{line})
}

func (m cleanMarshaler) MarshalLogArray(line zapcore.ArrayEncoder) error {
	return m.array.MarshalLogArray(cleanArray{line})
}

// cleanHeader is a header in a log: the values of loggedHeaders, the names of the others.
type cleanHeader http.Header

func (h cleanHeader) MarshalLogObject(line zapcore.ObjectEncoder) error {
	shown, hidden := 0, 0
	for name, values := range h {
		if shown == maxLoggedHeaders || !harmlessName(name) {
			hidden++
			continue
		}
		shown++
		zap.Strings(name, loggedValues(name, values)).AddTo(line)
	}
	if hidden > 0 {
		line.AddInt("more", hidden)
	}
	return nil
}

// cleanReflected is the JSON form of a value with its texts cleaned.
func cleanReflected(value any) (any, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var decoded any
	if err := decoder.Decode(&decoded); err != nil {
		return nil, err
	}
	return cleanJSON(decoded), nil
}

func cleanJSON(value any) any {
	switch value := value.(type) {
	case string:
		return cleanText(value)
	case []any:
		for i := range value {
			value[i] = cleanJSON(value[i])
		}
	case map[string]any:
		for name := range value {
			value[name] = cleanJSON(value[name])
		}
	}
	return value
}

var (
	_ caddy.Provisioner                = (*Encoder)(nil)
	_ caddy.ConfiguresFormatterDefault = (*Encoder)(nil)
	_ caddyfile.Unmarshaler            = (*Encoder)(nil)
	_ zapcore.Encoder                  = (*Encoder)(nil)
)
