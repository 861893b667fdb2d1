package platforms

import (
	"context"
	"errors"
	"strings"
)

const (
	// MaxAttachments is how many attachments of a message are kept.
	MaxAttachments = 10
	// MaxReference is how many bytes an [Attachment.Reference] may have.
	MaxReference = 2048
	// maxAttached is how many attachments of a delivery are kept, so that a delivery of many small ones takes little memory.
	maxAttached = 1000
)

// Attachment is a file of a message.
type Attachment struct {
	// Kind is a short name of it as in [Inbound.Text] of a [Media]: image, audio, video, sticker or file.
	Kind string
	// Reference is a public https address of the file, or the platform's id of it, which a [MediaSource] resolves. Both may end.
	Reference string
	// Name is the name that the sender's file has, up to MaxName bytes; "" if it has none.
	Name string
}

// IsAddress reports whether an [Attachment.Reference] is an address, and not an id.
func IsAddress(reference string) bool { return strings.Contains(reference, "://") }

// MediaSource is a platform that names files of messages by ids.
type MediaSource interface {
	// Locate returns where a file with this id can be fetched now. The error is an [*Error]: [Refused] if there is no such file any more.
	Locate(ctx context.Context, channel *Channel, id string) (Location, error)
}

// Location is where a file can be fetched for some minutes. It is never stored or logged: address and header may have a token.
type Location struct {
	// Address is an https address.
	Address string
	// Own is set if the address is below the one that the operator has configured for the platform, which may be private.
	Own bool
	// Authorization is the header of this name, "" for none. It is sent to Address only, not where that redirects to.
	Authorization string
	// Bytes is the size of the file, 0 if the platform doesn't say.
	Bytes int64
}

// Attach adds an attachment to in, unless it has no reference, or in or the delivery has as many as are kept.
func (c *Collector) Attach(in *Inbound, a Attachment) {
	if a.Reference == "" || len(in.Attachments()) >= MaxAttachments || c.attached >= maxAttached {
		return
	}
	if in.Attached == nil {
		in.Attached = new([]Attachment)
	}
	*in.Attached = append(*in.Attached, a)
	c.attached++
}

// Attachments returns what is attached.
func (in Inbound) Attachments() []Attachment {
	if in.Attached == nil {
		return nil
	}
	return *in.Attached
}

// Reference reads an [Attachment.Reference]. One that is too long, or has NUL, white space or broken characters, is "".
func (v Value) Reference() string {
	text, hasNUL := readText(v, MaxReference+1)
	if hasNUL || !isReference(text) {
		return ""
	}
	return text
}

func isReference(s string) bool {
	return len(s) <= MaxReference && ConsistsOf(s, isVisible)
}

// checkAttachments checks the attachments of an item.
func checkAttachments(in *Inbound) error {
	attached := in.Attachments()
	if len(attached) > 0 && in.Kind != Text && in.Kind != Media && (!in.IsEcho() || in.Kind == AutomaticEcho) || len(attached) > MaxAttachments {
		return errors.New("it has too many attachments, or its kind has none")
	}
	for i := range attached {
		a := &attached[i]
		if a.Kind != MediaName(a.Kind) || !isReference(a.Reference) || !storable(a.Name, MaxName) {
			return errors.New("an attachment has no known kind or no usable reference, or its name is too long, or isn't UTF-8 without NUL")
		}
	}
	return nil
}

// Kinds of files that a person of the business sends.
const (
	FileImage = "image"
	FileAudio = "audio"
	FileVideo = "video"
	FileOther = "file"
)

// FileKinds are all of them.
func FileKinds() []string { return []string{FileImage, FileAudio, FileVideo, FileOther} }

// File is a file that is sent to a customer.
type File struct {
	// Kind is one of [FileKinds], by the content.
	Kind string
	// Name has an extension, and neither a path nor control characters; at most [MaxName] bytes.
	Name string
	// MediaType is by the content, application/octet-stream if that says nothing.
	MediaType string
	Content   []byte
}

// FileSender is a platform to which a person of the business may send files: it has a type with [ChannelType.Files].
type FileSender interface {
	// SendFile sends a file of a kind that the type takes as one message, and returns the platform's id of it, at most [MaxID] bytes. out
	// has no text. It may make a second call before, which the customer doesn't see: if that fails, nothing was sent. The error is an
	// [*Error].
	SendFile(ctx context.Context, out *Outgoing, file *File) (messageID string, err error)
}

// Part is a part of a body of multipart/form-data.
type Part struct {
	Name string
	// FileName and MediaType are those of a file, "" of a value.
	FileName, MediaType string
	Content             []byte
}

// NotSent returns the failure of a call that prepares a message, which is [Unknown] for a message itself: the customer has nothing yet, so it
// may be tried again.
func NotSent(failure *Error) *Error {
	if failure.Class == Unknown {
		return RetryLater(0, failure.Cause)
	}
	return failure
}
