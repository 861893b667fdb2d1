package platforms

import (
	"context"
	"errors"
	"strings"
)

const (
	// MaxAttachments is the number of attachments of a message that are kept.
	MaxAttachments = 10
	// MaxReference is the greatest length of an [Attachment.Reference] in bytes.
	MaxReference = 2048
	// maxAttached is the number of attachments of a delivery that are kept, so that a delivery of many small ones uses little
	// memory.
	maxAttached = 1000
)

// Attachment is a file of a message.
type Attachment struct {
	// Kind is a short name of the content: image, audio, video, sticker or file.
	Kind string
	// Reference is a public https address of the file, for which no token is needed, or the platform's id of it, which a
	// [MediaSource] resolves. Both may stop working after some time.
	Reference string
	// Name is the name of the sender's file, of up to MaxName bytes. It may be empty.
	Name string
}

// IsAddress reports whether an [Attachment.Reference] is an address, not an id.
func IsAddress(reference string) bool { return strings.Contains(reference, "://") }

// MediaSource is a platform that names files of messages by ids.
type MediaSource interface {
	// Locate returns where the file with this id can be fetched now. The error is an [*Error]: [Refused] if the file no longer
	// exists.
	Locate(ctx context.Context, channel *Channel, id string) (Location, error)
}

// Location is the place where a file can be fetched for some minutes. It is never stored or logged, because address and header
// may contain a token.
type Location struct {
	// Address is an https address.
	Address string
	// Own is set if the address is below the platform's configured address, which may be private.
	Own bool
	// Authorization is the value of the header of this name, which may be empty. It is sent to Address only, never to the target
	// of a redirect.
	Authorization string
	// Bytes is the size of the file, or 0 if the platform doesn't report it.
	Bytes int64
}

// Attach adds an attachment to in. It ignores an attachment without a reference, and attachments beyond the bounds of a message
// and of a delivery.
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

// Attachments returns the attachments.
func (in Inbound) Attachments() []Attachment {
	if in.Attached == nil {
		return nil
	}
	return *in.Attached
}

// Reference reads an [Attachment.Reference]. It returns "" if the reference is too long or contains NUL, white space or broken
// characters.
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

// FileKinds returns all kinds of files.
func FileKinds() []string { return []string{FileImage, FileAudio, FileVideo, FileOther} }

// File is a file that is sent to a customer.
type File struct {
	// Kind is one of [FileKinds], determined from the content.
	Kind string
	// Name has an extension, and neither a path nor control characters. It has up to [MaxName] bytes.
	Name string
	// MediaType is determined from the content. It is application/octet-stream if the content has no known form.
	MediaType string
	Content   []byte
}

// FileSender is a platform to which a person of the business may send files. One of its types has [ChannelType.Files].
type FileSender interface {
	// SendFile sends a file, of a kind that the type accepts, as one message. It returns the platform's id of the message, of up
	// to [MaxID] bytes. out has no text. SendFile may make another call first, which the customer doesn't see: if that call fails,
	// nothing was sent. The error is an [*Error].
	SendFile(ctx context.Context, out *Outgoing, file *File) (messageID string, err error)
}

// Part is a part of a body of multipart/form-data.
type Part struct {
	Name string
	// FileName and MediaType are empty for a part that is a value, not a file.
	FileName, MediaType string
	Content             []byte
}

// NotSent returns the failure of a call that prepares a message. Such a call may be repeated even if its outcome is [Unknown],
// because the customer has received nothing yet.
func NotSent(err error) error {
	if failure, is := errors.AsType[*Error](err); is && failure.Class == Unknown {
		return RetryLater(0, failure.Cause)
	}
	return err
}
