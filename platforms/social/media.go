package social

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/caddy-svc/caddy-svc/platforms"
)

// Locate implements [platforms.MediaSource]. Only the chat app names files by ids; their addresses last 5 minutes and want the token
// (developers.facebook.com/documentation/business-messaging/whatsapp/business-phone-numbers/media).
func (s *social) Locate(ctx context.Context, channel *platforms.Channel, id string) (platforms.Location, error) {
	switch {
	case channel.Type != ChatApp || !isID(id):
		return platforms.Location{}, platforms.Refusef("channels of type %s have no file with this id", string(channel.Type))
	case !isID(channel.ExternalID):
		return platforms.Location{}, errPhoneNumberID()
	}
	var file struct {
		URL   string         `json:"url"`
		Bytes platforms.Word `json:"file_size"`
	}
	r, failure := s.call(ctx, ChatApp, channel.Credentials, &platforms.Request{
		Method: http.MethodGet, Path: "/" + id, Query: url.Values{"phone_number_id": {channel.ExternalID}},
	}, &file)
	switch {
	case failure != nil:
		return platforms.Location{}, failure
	case file.URL == "":
		return platforms.Location{}, platforms.Fail(platforms.Unknown, r.Error("", ""))
	}
	bytes, _ := strconv.ParseInt(string(file.Bytes), 10, 64) // 0: not stated
	return platforms.Location{
		Address: file.URL, Authorization: "Bearer " + channel.Credentials[platforms.AccessToken], Bytes: max(bytes, 0),
	}, nil
}
