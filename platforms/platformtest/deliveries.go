package platformtest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms"
)

// Deliveries are bodies by the name of the case, with their contents. A nil Want means no contents.
type Deliveries map[string]struct {
	Body string
	Want []platforms.Inbound
}

// RequireDeliveries extracts every body and compares.
func RequireDeliveries(t *testing.T, platform platforms.Platform, cases Deliveries) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := platform.Extract([]byte(c.Body))
			require.NoError(t, err)
			require.Equal(t, c.Want, got)
		})
	}
}

// With returns the items with attachments, the same for each.
func With(items []platforms.Inbound, attached ...platforms.Attachment) []platforms.Inbound {
	items = slices.Clone(items)
	for i := range items {
		items[i].Attached = &attached
	}
	return items
}

// Wordless returns the items as echoes without text.
func Wordless(items []platforms.Inbound) []platforms.Inbound {
	items = slices.Clone(items)
	for i := range items {
		items[i].Wordless = true
	}
	return items
}

// Unix is a time as Extract returns it, from milliseconds since 1970.
func Unix(milliseconds int64) time.Time { return time.UnixMilli(milliseconds).UTC() }

// RequireSound extracts any body and checks what holds for all of them: an object is never malformed, anything else always is,
// and every item keeps the contract. It returns the items. Fuzz tests of adapters call it.
func RequireSound(t testing.TB, d *platforms.Description, platform platforms.Platform, body []byte) []platforms.Inbound {
	t.Helper()
	handed := bytes.Clone(body)
	items, err := platform.Extract(handed)
	object := json.Valid(body) && strings.HasPrefix(strings.TrimLeft(string(body), " \t\r\n"), "{")
	if err != nil {
		require.ErrorIs(t, err, platforms.ErrMalformed)
		require.Empty(t, items)
		require.False(t, object, "an object is never malformed: %.200s", body)
		return nil
	}
	require.True(t, object, "what is no object is malformed: %.200s", body)
	require.LessOrEqual(t, len(items), len(body), "the items are bounded by the body")
	for i := range items {
		require.NoError(t, d.CheckInbound(&items[i]), "%.200s: %+v", body, items[i])
	}
	before := slices.Clone(items)
	for i := range before {
		before[i] = cloned(before[i])
	}
	for i := range handed {
		handed[i] = 'x'
	}
	require.Equal(t, before, items, "nothing that Extract returns refers to the body")
	return items
}

func cloned(in platforms.Inbound) platforms.Inbound {
	for _, text := range []*string{&in.ExternalID, &in.Conversation, &in.Address, &in.MessageID, &in.CustomerName, &in.Text} {
		*text = strings.Clone(*text)
	}
	if in.Other != nil {
		in.Other = &platforms.OtherIDs{Alias: strings.Clone(in.Other.Alias), Business: strings.Clone(in.Other.Business), Mark: strings.Clone(in.Other.Mark)}
	}
	if in.Attached == nil {
		return in
	}
	attached := slices.Clone(*in.Attached)
	for i := range attached {
		a := &attached[i]
		a.Kind, a.Reference, a.Name = strings.Clone(a.Kind), strings.Clone(a.Reference), strings.Clone(a.Name)
	}
	in.Attached = &attached
	return in
}

// body is the delivery of a text that needs no escaping.
func (s Sample) body(messageID, text string) string {
	return s.filled(s.Text, "%m", messageID, "%t", text)
}

// filled replaces the placeholders of a body or an answer, and those of more.
func (s Sample) filled(body string, more ...string) string {
	return strings.NewReplacer(append(more, "%e", cmp.Or(s.ExternalID, accounts[0]), "%c", cmp.Or(s.customer, customers[0]))...).Replace(body)
}

// delivery is a signed delivery of a body.
func (s Suite) delivery(of platforms.Type, body string) *platforms.Delivery {
	d := &platforms.Delivery{Header: http.Header{}, URL: "https://svc.example/webhooks/platform", Body: []byte(body)}
	d.Header.Set("Content-Type", "application/json")
	s.Sign(d, s.channel(of), s.Options)
	return d
}

// verify passes a delivery to the platform's check of a channel.
func verify(p platforms.Platform, d *platforms.Delivery, channel *platforms.Channel) error {
	if secrets, ok := p.(platforms.ChannelSecrets); ok {
		return secrets.VerifyChannel(d.Header, channel.Credentials)
	}
	return p.(platforms.SignedDeliveries).Verify(d)
}

// A delivery is accepted only if the platform signed it.
func (s Suite) verification(t testing.TB) {
	t.Helper()
	description := s.Driver.Describe()
	name := description.SignatureHeader
	p := s.platform(t, unreachable, nil)
	renamed := s.platform(t, unreachable, func(options map[string]string) { options["header"] = "X-Renamed" })
	other := s.platform(t, unreachable, s.otherSecrets)
	unconfigured := New(t, s.Driver, map[string]string{})
	for _, of := range s.types() {
		good := func() *platforms.Delivery { return s.delivery(of, s.Channels[of].body("1001", "hello")) }
		refused := func(p platforms.Platform, channel *platforms.Channel, why string, spoil func(*platforms.Delivery)) {
			d := good()
			spoil(d)
			require.Error(t, verify(p, d, channel), "%s: %s", of, why)
		}
		channel := s.channel(of)
		require.NoError(t, verify(p, good(), channel), "%s: a good delivery", of)
		require.Len(t, good().Header.Values(name), 1, "Sign sets the header that the description names")
		signature := good().Header.Get(name)
		for why, spoil := range map[string]func(*platforms.Delivery){
			"no signature":     func(d *platforms.Delivery) { d.Header.Del(name) },
			"empty signature":  func(d *platforms.Delivery) { d.Header.Set(name, "") },
			"signature twice":  func(d *platforms.Delivery) { d.Header.Add(name, signature) },
			"longer signature": func(d *platforms.Delivery) { d.Header.Set(name, signature+"0") },
			"cut signature":    func(d *platforms.Delivery) { d.Header.Set(name, signature[:len(signature)-1]) },
			"one character off": func(d *platforms.Delivery) {
				d.Header.Set(name, signature[:len(signature)-1]+string(signature[len(signature)-1]^1))
			},
			"another header": func(d *platforms.Delivery) { d.Header.Del(name); d.Header.Set("X-Another-Header", signature) },
		} {
			refused(p, channel, why, spoil)
		}
		moved := good()
		moved.Header.Del(name)
		moved.Header.Set("X-Renamed", signature)
		require.NoError(t, verify(renamed, moved, channel), "the operator's option `header` names the header")
		if !description.ChannelWebhooks {
			for why, spoil := range map[string]func(*platforms.Delivery){
				"another body":   func(d *platforms.Delivery) { d.Body = bytes.Replace(d.Body, []byte("hello"), []byte("hallo"), 1) },
				"a longer body":  func(d *platforms.Delivery) { d.Body = append(d.Body, ' ') },
				"a cut body":     func(d *platforms.Delivery) { d.Body = d.Body[:len(d.Body)-1] },
				"an empty body":  func(d *platforms.Delivery) { d.Body = nil },
				"a body of NULs": func(d *platforms.Delivery) { clear(d.Body) },
			} {
				refused(p, channel, why, spoil)
			}
			refused(other, channel, "another secret", func(*platforms.Delivery) {})
			secrets := maps.Clone(s.Options)
			s.otherSecrets(secrets)
			resigned := good()
			s.Sign(resigned, channel, secrets)
			require.NoError(t, verify(other, resigned, channel), "%s: Sign signs with the options that it is given", of)
			refused(unconfigured, channel, "no configured secret", func(*platforms.Delivery) {})
			refused(unconfigured, channel, "signed with an empty secret", func(d *platforms.Delivery) { s.Sign(d, channel, map[string]string{}) })
			continue
		}
		stranger := s.channel(of)
		for field := range stranger.Credentials {
			stranger.Credentials[field] = "another"
		}
		refused(p, stranger, "another channel's secret", func(*platforms.Delivery) {})
		nothing := &platforms.Channel{Type: of}
		refused(p, nothing, "no credentials", func(*platforms.Delivery) {})
		refused(p, nothing, "signed with an empty secret", func(d *platforms.Delivery) { s.Sign(d, nothing, map[string]string{}) })
	}
}

// A delivery that a channel's own application signed is proven only by its secret, and this secret proves nothing for other
// channels.
func (s Suite) ownSignatures(t testing.TB) {
	t.Helper()
	p := s.platform(t, unreachable, nil)
	for _, channel := range s.Driver.Describe().Channels {
		of, sample := channel.Type, s.Channels[channel.Type]
		own, ok := p.(platforms.ChannelSigned)
		for _, field := range channel.SigningFields() {
			require.True(t, ok && slices.ContainsFunc(sample.Own, func(c platforms.Credentials) bool { return c[field] != "" }),
				"the suite has no %s of %s", field, of)
		}
		if !ok {
			continue
		}
		body := sample.body("1001", "hello")
		named := platforms.Channel{Type: of, ExternalID: sample.ExternalID}
		require.Contains(t, own.Named(s.delivery(of, body)), named, "%s: the delivery names its channel", of)
		require.Empty(t, own.Named(&platforms.Delivery{Header: http.Header{}, Body: []byte(body)}), "%s: a delivery without a signature", of)
		require.False(t, own.SignsItself(sample.Credentials), "%s: the operator's application signs", of)
		for _, additional := range sample.Own {
			mine, stranger := s.channel(of), s.channel(of)
			maps.Copy(mine.Credentials, additional)
			require.NoError(t, channel.CheckCredentials(mine.Credentials), "%s", of)
			for name := range additional {
				stranger.Credentials[name] = "4711" // which is any field's
			}
			signed := &platforms.Delivery{Header: http.Header{}, URL: "https://svc.example/webhooks/platform", Body: []byte(body)}
			s.Sign(signed, mine, s.Options)
			require.True(t, own.SignsItself(mine.Credentials), "%s", of)
			require.NoError(t, own.VerifyOwn(signed, mine.Credentials), "%s", of)
			require.Error(t, own.VerifyOwn(signed, stranger.Credentials), "%s: another channel's secret", of)
			require.Error(t, own.VerifyOwn(s.delivery(of, body), mine.Credentials), "%s: the operator's secret", of)
			require.Error(t, verify(p, signed, mine), "%s: the operator didn't sign it", of)
			require.Error(t, own.VerifyOwn(signed, sample.Credentials), "%s: no secret", of)
			signed.Body = append(signed.Body, ' ')
			require.Error(t, own.VerifyOwn(signed, mine.Credentials), "%s: another body", of)
		}
		for _, odd := range append(OddBodies(), body[:len(body)/2]) {
			require.LessOrEqual(t, len(own.Named(s.delivery(of, odd))), platforms.MaxNamed, "%.40s", odd)
		}
	}
}

// A customer's message is one item for the channel, each with an id of its own.
func (s Suite) deliveries(t testing.TB) {
	t.Helper()
	description := s.Driver.Describe()
	p := s.platform(t, unreachable, nil)
	for _, of := range s.types() {
		ids := map[string]bool{}
		for _, id := range []string{"1001", "1002"} {
			items := RequireSound(t, description, p, []byte(s.Channels[of].body(id, "hello")))
			require.Len(t, items, 1, "%s: the sample is one message", of)
			require.Equal(t, of, items[0].Type)
			require.Equal(t, s.Channels[of].ExternalID, items[0].ExternalID)
			require.Equal(t, platforms.Text, items[0].Kind)
			require.Equal(t, "hello", items[0].Text)
			require.NotEmpty(t, items[0].Address, "a reply goes somewhere")
			ids[items[0].MessageID] = true
		}
		require.Len(t, ids, 2, "every message has an id of its own")
		again := RequireSound(t, description, p, []byte(s.Channels[of].body("1001", "hello")))
		require.True(t, ids[again[0].MessageID], "a repeated delivery has the same id")
	}
}

// A change is one item that names the message as the delivery of the message does.
func (s Suite) changes(t testing.TB) {
	t.Helper()
	description := s.Driver.Describe()
	p := s.platform(t, unreachable, nil)
	for _, of := range s.types() {
		sample := s.Channels[of]
		if sample.Edited == "" {
			continue
		}
		before := RequireSound(t, description, p, []byte(sample.body("1001", "hello")))
		after := RequireSound(t, description, p, []byte(sample.filled(sample.Edited, "%m", "1001", "%t", "goodbye")))
		require.Len(t, before, 1, "%s: the sample is one message", of)
		require.Len(t, after, 1, "%s: the change is one", of)
		require.Equal(t, platforms.Edited, after[0].Kind, "%s", of)
		require.Equal(t, "goodbye", after[0].Text, "%s: the new text is whole", of)
		require.Equal(t, before[0].MessageID, after[0].MessageID, "%s: it names the message", of)
		require.Equal(t, before[0].Conversation, after[0].Conversation, "%s", of)
	}
}

// A text arrives however JSON allows it to be written.
func (s Suite) writtenTexts(t testing.TB) {
	t.Helper()
	description := s.Driver.Describe()
	p := s.platform(t, unreachable, nil)
	long := strings.Repeat("ả", platforms.MaxText/3) // three bytes each
	for name, c := range map[string]struct{ written, want string }{
		"plain":                 {`Chào shop`, "Chào shop"},
		"escaped":               {`Ch\u00e0o \"shop\" \/ \ud83d\ude00 <b>\n`, "Chào \"shop\" / \U0001F600 <b>\n"},
		"NUL stripped":          {`a\u0000b\u0000`, "ab"},
		"broken UTF-8 replaced": {"bad \xff\xfe byte", "bad \uFFFD\uFFFD byte"},
		"half a surrogate":      {`\ud83d!`, "\uFFFD!"},
		"blanks around":         {`  hi `, "  hi "},
		"a number":              {`12345678901234567890`, "12345678901234567890"},
		"the longest":           {long, long},
		"cut at a character":    {long + "ả" + long, long},
		"blank":                 {` \n\t`, ""},
		"empty":                 {``, ""},
		"only NUL":              {`\u0000`, ""},
	} {
		for _, of := range s.types() {
			items := RequireSound(t, description, p, []byte(s.Channels[of].body("1001", c.written)))
			if c.want == "" {
				require.Empty(t, items, "%s, %s: nothing was written", of, name)
				continue
			}
			require.Len(t, items, 1, "%s, %s", of, name)
			require.Equal(t, c.want, items[0].Text, "%s, %s", of, name)
		}
	}
}

// A delivery that was cut anywhere is malformed.
func (s Suite) truncatedDeliveries(t testing.TB) {
	t.Helper()
	description := s.Driver.Describe()
	p := s.platform(t, unreachable, nil)
	for _, of := range s.types() {
		whole := s.Channels[of].body("1001", `Ch\u00e0o`)
		for end := range whole {
			RequireSound(t, description, p, []byte(whole[:end]))
		}
	}
}

// OddBodies are bodies of no platform: JSON or not, of any form.
func OddBodies() []string {
	return []string{
		``, ` `, `{`, `{"a":1,`, `{"a":1}}`, `{"a":1} x`, `null`, `[]`, `[{}]`, `"{}"`, `1`, `true`, `not JSON`, "\xff", "\xef\xbb\xbf{}",
		`{"message":` + strings.Repeat(`[`, 20_000) + strings.Repeat(`]`, 20_000) + `}`,
		`{}`, "\r\n\t {} \n", `{"x":1}`, `{"message":null,"entry":null,"data":null}`, `{"message":"x","entry":"x","data":"x"}`,
		`{"message":[1],"entry":[1],"data":[1]}`, `{"message":1,"entry":{"id":1},"data":1,"object":1,"code":[],"message_type":{}}`,
	}
}

// A body of another form has no contents and does no harm: bodies of no platform, and the samples with any of their values
// replaced.
func (s Suite) oddDeliveries(t testing.TB) {
	t.Helper()
	description := s.Driver.Describe()
	p := s.platform(t, unreachable, nil)
	for _, body := range OddBodies() {
		require.Empty(t, RequireSound(t, description, p, []byte(body)), "%.40s", body)
	}
	for _, of := range s.types() {
		var sample any
		decoder := json.NewDecoder(strings.NewReader(s.Channels[of].body("1001", "hello")))
		decoder.UseNumber()
		require.NoError(t, decoder.Decode(&sample), "%s: the sample is JSON", of)
		spoilEach(sample, func() {
			body, err := json.Marshal(sample)
			require.NoError(t, err)
			RequireSound(t, description, p, body)
		})
	}
}

// oddValues take the place of every value in a sample.
var oddValues = []any{
	nil, true, json.Number("-1"), json.Number("1e400"), json.Number("99999999999999999999999999"), "", " ", "\x00", "a\x00b", "\ufffd",
	strings.Repeat("x", platforms.MaxID+1), strings.Repeat("ả", platforms.MaxText),
	[]any{},
	[]any{nil, "x", map[string]any{}},
	map[string]any{},
	map[string]any{"id": map[string]any{}},
}

// spoilEach replaces every value below value by every odd value, one at a time, and calls spoiled each time.
func spoilEach(value any, spoiled func()) {
	each := func(child any, set func(any)) {
		for _, odd := range oddValues {
			set(odd)
			spoiled()
		}
		set(child)
		spoilEach(child, spoiled)
	}
	switch value := value.(type) {
	case map[string]any:
		for name, child := range value {
			each(child, func(odd any) { value[name] = odd })
		}
	case []any:
		for i, child := range value {
			each(child, func(odd any) { value[i] = odd })
		}
	}
}
