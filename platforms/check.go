package platforms

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caddy-svc/caddy-svc/option"
)

// reservedOptions exist in the block of every platform.
var reservedOptions = []string{"header", "api_base", "ack"}

// faults collects the faults of a description.
type faults []error

func (f *faults) unlessf(ok bool, format string, args ...any) {
	if !ok {
		*f = append(*f, fmt.Errorf(format, args...))
	}
}

// Check returns every fault of the description, or nil. The product doesn't start with a faulty description.
func (d *Description) Check() error {
	var f faults
	f.unlessf(option.IsName(d.Name), "the name %q is not made of a-z, 0-9 and _, at most %d of them", d.Name, option.MaxName)
	f.unlessf(d.Deliveries != "", "Deliveries is missing")
	f.unlessf(d.SignatureHeader != "" && d.SignatureHelp != "", "SignatureHeader or SignatureHelp is missing")
	if d.Handshake != nil {
		f.unlessf(d.Handshake.Summary != "", "the summary of the handshake is missing")
		for _, p := range d.Handshake.Query {
			f.unlessf(p.Name != "" && p.Help != "", "a parameter of the handshake has no name or no help")
		}
	}
	f = append(f, option.Check(d.Options, reservedOptions...)...)
	f.unlessf(len(d.Channels) > 0, "it has no channel type")
	types := map[Type]bool{}
	for i := range d.Channels {
		t := &d.Channels[i]
		f.unlessf(!types[t.Type], "channel type %q is there twice", string(t.Type))
		types[t.Type] = true
		t.check(&f, d.ChannelWebhooks)
	}
	return errors.Join(f...)
}

func (t *ChannelType) check(f *faults, channelWebhooks bool) {
	f.unlessf(option.IsName(string(t.Type)), "the channel type %q is not made of a-z, 0-9 and _, at most %d of them", string(t.Type), option.MaxName)
	f.unlessf(t.Label != "", "channel type %s has no label", t.Type)
	f.unlessf((t.ExternalID == "") == channelWebhooks, "channel type %s has an external id and webhooks of its own, or neither", t.Type)
	f.unlessf((t.ExternalID == "") == (t.ExternalIDHint == ""), "channel type %s has an external id without a hint, or a hint without one", t.Type)
	f.unlessf(t.Limit.Most >= 0 && t.Limit.Unit >= Characters && t.Limit.Unit <= Bytes, "channel type %s has an unknown limit", t.Type)
	f.unlessf(t.MostParts >= 0 && t.Unanswered >= 0 && (t.MostParts == 0 || t.Limit.Most > 0),
		"channel type %s has a bound below 0, or one of parts without a limit", t.Type)
	for _, pace := range []Pace{t.Pace, t.CustomerPace} {
		f.unlessf(pace == Pace{} || pace.Burst > 0 && pace.Every >= time.Millisecond && pace.Every <= time.Minute,
			"channel type %s has a pace without a burst, or of less than 1 ms or more than 1 min", t.Type)
	}
	f.unlessf(t.RenewAhead >= 0, "channel type %s has a negative RenewAhead", t.Type)
	f.unlessf(t.Window >= 0, "channel type %s has a negative window", t.Type)
	f.unlessf(t.AfterWindow == "" || t.Window > 0 && slices.Contains([]Class{WindowExpired, TemplateRequired}, t.AfterWindow),
		"channel type %s has no window, or one that ends with another class than %s and %s", t.Type, WindowExpired, TemplateRequired)
	f.unlessf(t.PersonWindow == 0 || t.Window > 0 && t.PersonWindow > t.Window, "channel type %s has a window for people that isn't longer", t.Type)
	for _, kind := range t.Files {
		f.unlessf(slices.Contains(FileKinds(), kind), "channel type %s takes files of the unknown kind %q", t.Type, kind)
	}
	f.unlessf(t.WindowHelp != "", "channel type %s has no WindowHelp", t.Type)
	f.unlessf(len(t.Before) > 0 && len(t.After) > 0, "channel type %s has no steps before or after connecting", t.Type)
	f.unlessf(slices.ContainsFunc(t.After, func(step string) bool { return strings.Contains(step, "%u") }),
		"no step of channel type %s has the webhook's address, %%u", t.Type)
	f.unlessf(len(t.Credentials) > 0, "channel type %s has no credentials", t.Type)
	names := map[string]bool{ExpiresAt: true}
	for i := range t.Credentials {
		c := &t.Credentials[i]
		f.unlessf(isMember(c.Name), "the credential %q of channel type %s is not in camelCase", c.Name, t.Type)
		f.unlessf(!names[c.Name], "the name of credential %s of channel type %s is taken", c.Name, t.Type)
		f.unlessf(c.Label != "" && c.Hint != "", "credential %s of channel type %s has no label or no hint", c.Name, t.Type)
		f.unlessf(c.MaxLength >= 0 && c.MaxLength <= MaxCredential, "credential %s of channel type %s may be too long", c.Name, t.Type)
		f.unlessf(c.Optional || !c.Signs && c.With == "",
			"credential %s of channel type %s signs, or needs another one, and isn't optional", c.Name, t.Type)
		isOptional := func(other CredentialField) bool { return other.Name == c.With && other.Optional }
		f.unlessf(c.With == "" || c.With != c.Name && slices.ContainsFunc(t.Credentials, isOptional),
			"credential %s of channel type %s needs one that isn't optional", c.Name, t.Type)
		names[c.Name] = true
	}
}

func isMember(s string) bool {
	return len(s) <= option.MaxName && s != "" && s[0] >= 'a' && s[0] <= 'z' && IsWord(s) && !strings.ContainsAny(s, "_-")
}

// CheckPlatform returns an error if the platform lacks an ability that its description promises, or if the description doesn't
// mention one of its abilities.
func (d *Description) CheckPlatform(p Platform) error {
	if p == nil {
		return errors.New("it made no platform")
	}
	_, signed := p.(SignedDeliveries)
	_, secrets := p.(ChannelSecrets)
	_, handshaker := p.(Handshaker)
	_, refresher := p.(Refresher)
	_, channelSigned := p.(ChannelSigned)
	_, templater := p.(Templater)
	_, sender := p.(FileSender)
	files := slices.ContainsFunc(d.Channels, func(t ChannelType) bool { return len(t.Files) > 0 })
	refreshed := slices.ContainsFunc(d.Channels, func(t ChannelType) bool { return t.Refreshable() })
	templates := slices.ContainsFunc(d.Channels, func(t ChannelType) bool { return t.AfterWindow == TemplateRequired })
	signing := slices.ContainsFunc(d.Channels, func(t ChannelType) bool { return len(t.SigningFields()) > 0 })
	switch {
	case d.ChannelWebhooks && !secrets:
		return errors.New("it has a webhook for each channel and no VerifyChannel")
	case !d.ChannelWebhooks && !signed:
		return errors.New("it has one webhook and no Verify")
	case signed && secrets:
		return errors.New("it has both Verify and VerifyChannel")
	case (d.Handshake != nil) != handshaker:
		return errors.New("it describes a handshake and has none, or has one and doesn't describe it")
	case signing != channelSigned || channelSigned && !signed:
		return errors.New("a credential signs deliveries and it has no VerifyOwn beside Verify, or VerifyOwn and no such credential")
	case templater && !templates:
		return errors.New("it has templates, and no channel type whose window ends with " + string(TemplateRequired))
	case files != sender:
		return errors.New("it takes files and has no SendFile, or SendFile and takes none")
	case refreshed != refresher:
		return errors.New("it has a refresh token and no Refresh, or Refresh and no refresh token")
	}
	return nil
}

// maxMessageID is larger than one id, because on some platforms a message's id is unique only together with the id of its
// conversation.
const maxMessageID = 2*MaxID + 1

// CheckInbound returns an error if an extracted item breaks the contract of [Inbound]. The error quotes nothing. The product
// drops such items.
func (d *Description) CheckInbound(in *Inbound) error {
	switch {
	case !slices.ContainsFunc(d.Channels, func(t ChannelType) bool { return t.Type == in.Type }):
		return errors.New("its type is none of the platform's")
	case (in.ExternalID == "") != d.ChannelWebhooks:
		return errors.New("its external id is missing, or its channels have none")
	case !storable(in.ExternalID, MaxID), !storable(in.Conversation, MaxID), !storable(in.Address, MaxID), !storable(in.MessageID, maxMessageID),
		!storable(in.OtherIDs().Mark, MaxID), !storable(in.OtherIDs().Business, MaxID), !storable(in.OtherIDs().Alias, MaxID):
		return errors.New("one of its ids is too long, or isn't UTF-8 without NUL")
	case !storable(in.CustomerName, MaxName), !storable(in.Text, MaxText):
		return errors.New("its name or text is too long, or isn't UTF-8 without NUL")
	case in.SentAt.Before(time.Unix(0, 0)) && !in.SentAt.IsZero():
		return errors.New("its time is before 1970")
	}
	if err := checkAttachments(in); err != nil {
		return err
	}
	return checkKind(in)
}

// checkKind checks the fields that depend on the kind.
func checkKind(in *Inbound) error {
	ofChannel := in.Kind == TokenExpiring || in.Kind == AccessRefused
	message := in.Kind != Blocked && in.Kind != ErasureWanted && !ofChannel
	switch {
	case in.Kind < Text || in.Kind > Edited:
		return errors.New("it has no known kind")
	case (in.MessageID != "") != message:
		return errors.New("its message id is missing, or its kind has none")
	case (in.Conversation == "") != ofChannel:
		return errors.New("its conversation is missing, or its kind has none")
	case (in.Kind <= Media || in.IsEcho() || in.Kind == Event || in.Kind == Edited) && strings.TrimSpace(in.Text) == "":
		return errors.New("its text is blank")
	case in.Wordless && (!in.IsEcho() || in.Text != MediaName(in.Text)):
		return errors.New("it is wordless, and its kind is never, or its text is no name of its content")
	case (!message || in.Kind == Unsent) && in.Text != "":
		return errors.New("it has a text, and its kind has none")
	case in.Unsure && (in.Kind != Text && in.Kind != Media || in.OtherIDs().Business == "" || in.Address == ""):
		return errors.New("its sender is unsure, and its kind has none, or one of the two ids is missing")
	case in.OtherIDs().Alias != "" && in.Conversation == "":
		return errors.New("it has another id of a customer, and no conversation")
	case in.OtherIDs().Mark != "" && in.Kind != FailedDelivery:
		return errors.New("it has a mark, and its kind has none")
	case in.Failure != "" && (in.Kind != FailedDelivery || !slices.Contains(Classes(), in.Failure)):
		return errors.New("its failure is no known class, or its kind has none")
	}
	return nil
}

// storable reports whether a text is valid UTF-8 without NUL and within the limit in bytes.
func storable(text string, limit int) bool {
	return len(text) <= limit && strings.IndexByte(text, 0) < 0 && utf8.ValidString(text)
}
