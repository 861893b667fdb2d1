package platforms

import "context"

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
