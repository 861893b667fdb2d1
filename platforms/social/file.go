package social

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	"github.com/caddy-svc/caddy-svc/platforms"
)

// attachment is a file that is being uploaded, or that was uploaded before.
type attachment struct {
	Type    string            `json:"type"`
	Payload attachmentPayload `json:"payload"`
}

type attachmentPayload struct {
	ID       string `json:"attachment_id,omitempty"`
	Reusable *bool  `json:"is_reusable,omitempty"`
}

// chatAppMedia is a file that was uploaded before. Only a document has a name.
type chatAppMedia struct {
	ID   string `json:"id"`
	Name string `json:"filename,omitempty"`
}

// SendFile implements [platforms.FileSender]. It uploads the file and sends it by the id that the platform returns.
func (s *social) SendFile(ctx context.Context, out *platforms.Outgoing, file *platforms.File) (string, error) {
	if out.Type == ChatApp {
		return s.sendChatAppFile(ctx, out, file)
	}
	id, err := s.upload(ctx, out, file)
	if err != nil {
		return "", platforms.NotSent(err)
	}
	return s.sendDirect(ctx, out, content{Attachment: &attachment{Type: file.Kind, Payload: attachmentPayload{ID: id}}})
}

// upload uploads a file for one message of the messenger or the photo service
// (developers.facebook.com/docs/messenger-platform/reference/attachment-upload-api).
func (s *social) upload(ctx context.Context, out *platforms.Outgoing, file *platforms.File) (id string, err error) {
	once := false
	message, err := json.Marshal(struct {
		Attachment attachment `json:"attachment"`
	}{attachment{Type: file.Kind, Payload: attachmentPayload{Reusable: &once}}})
	if err != nil {
		return "", platforms.Fail(platforms.Refused, err)
	}
	request := &platforms.Request{Method: http.MethodPost, Path: "/me/message_attachments", Parts: []platforms.Part{
		{Name: "message", Content: message},
		{Name: "filedata", FileName: file.Name, MediaType: file.MediaType, Content: file.Content},
	}}
	if out.Type == PhotoDM {
		request.Query = url.Values{"platform": {"instagram"}}
	}
	var result struct {
		ID platforms.Word `json:"attachment_id"`
	}
	r, err := s.call(ctx, out.Type, out.Credentials, request, &result)
	return r.ID(result.ID, err)
}

// maxChatAppImage is the greatest size of the chat app's pictures in bytes.
const maxChatAppImage = 5 << 20

// chatAppKinds are the media types that the chat app accepts as pictures, sounds and videos. All other files are documents
// (developers.facebook.com/documentation/business-messaging/whatsapp/business-phone-numbers/media).
var chatAppKinds = map[string]string{
	"image/jpeg": platforms.FileImage, "image/png": platforms.FileImage,
	"audio/amr": platforms.FileAudio, "audio/mp4": platforms.FileAudio, "audio/mpeg": platforms.FileAudio, "audio/ogg": platforms.FileAudio,
	"video/mp4": platforms.FileVideo,
}

// sendChatAppFile sends a file. It first uploads the file for the channel's number, where the platform keeps it for 30 days.
func (s *social) sendChatAppFile(ctx context.Context, out *platforms.Outgoing, file *platforms.File) (string, error) {
	if !isID(out.ExternalID) {
		return "", errPhoneNumberID()
	}
	var result struct {
		ID platforms.Word `json:"id"`
	}
	r, err := s.call(ctx, ChatApp, out.Credentials, &platforms.Request{
		Method: http.MethodPost, Path: "/" + out.ExternalID + "/media", Parts: []platforms.Part{
			{Name: "messaging_product", Content: []byte("whatsapp")},
			{Name: "type", Content: []byte(file.MediaType)},
			{Name: "file", FileName: file.Name, MediaType: file.MediaType, Content: file.Content},
		},
	}, &result)
	id, err := r.ID(result.ID, err)
	if err != nil {
		return "", platforms.NotSent(err)
	}
	return s.sendChatApp(ctx, out, chatAppFile(file, id))
}

// chatAppFile returns the message with an uploaded file.
func chatAppFile(file *platforms.File, id string) *chatAppSend {
	kind, media := chatAppKinds[file.MediaType], &chatAppMedia{ID: id}
	switch {
	case kind == platforms.FileImage && len(file.Content) <= maxChatAppImage:
		return &chatAppSend{Type: "image", Image: media}
	case kind == platforms.FileAudio:
		return &chatAppSend{Type: "audio", Audio: media}
	case kind == platforms.FileVideo:
		return &chatAppSend{Type: "video", Video: media}
	}
	media.Name = file.Name
	return &chatAppSend{Type: "document", Document: media}
}

// Locate implements [platforms.MediaSource]. Only the chat app names files by ids. Their addresses are valid for 5 minutes and
// require the token (developers.facebook.com/documentation/business-messaging/whatsapp/business-phone-numbers/media).
func (s *social) Locate(ctx context.Context, channel *platforms.Channel, id string) (platforms.Location, error) {
	if channel.Type != ChatApp || !isID(id) {
		return platforms.Location{}, platforms.Refusef("channels of type %s have no file with this id", string(channel.Type))
	}
	if !isID(channel.ExternalID) {
		return platforms.Location{}, errPhoneNumberID()
	}
	var file struct {
		URL   string         `json:"url"`
		Bytes platforms.Word `json:"file_size"`
	}
	r, err := s.call(ctx, ChatApp, channel.Credentials, &platforms.Request{
		Method: http.MethodGet, Path: "/" + id, Query: url.Values{"phone_number_id": {channel.ExternalID}},
	}, &file)
	if err != nil {
		return platforms.Location{}, err
	}
	if file.URL == "" {
		return platforms.Location{}, platforms.Fail(platforms.Unknown, r.Error("", ""))
	}
	bytes, _ := strconv.ParseInt(string(file.Bytes), 10, 64) // 0 if it isn't stated
	return platforms.Location{
		Address: file.URL, Authorization: "Bearer " + channel.Credentials[platforms.AccessToken], Bytes: max(bytes, 0),
	}, nil
}
