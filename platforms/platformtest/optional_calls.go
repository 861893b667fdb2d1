package platformtest

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/caddy-svc/caddy-svc/platforms"
)

// The calls that only some platforms make: signals, threads and files.

// signal answers the sample's message.
func (s Suite) signal(t testing.TB, of platforms.Type) *platforms.Signal {
	t.Helper()
	out := s.outgoing(t, of, replyText)
	return &platforms.Signal{
		Type: of, ExternalID: out.ExternalID, Conversation: out.Conversation, Address: out.Address, MessageID: "1001", Credentials: out.Credentials,
	}
}

// A signal makes up to two requests, each with the channel's credentials. A refusal by the platform is an error without any
// secret.
func (s Suite) signals(t testing.TB) {
	t.Helper()
	s.unusableAnswers(t, func(p platforms.Platform, of platforms.Type, _ string) (able bool, err error) {
		signaler, able := p.(platforms.Signaler)
		if able {
			err = signaler.Signal(t.Context(), s.signal(t, of))
		}
		return able, err
	})
}

// thread is that of the sample's message.
func (s Suite) thread(t testing.TB, of platforms.Type) *platforms.Thread {
	t.Helper()
	out := s.outgoing(t, of, replyText)
	return &platforms.Thread{Type: of, ExternalID: out.ExternalID, Conversation: out.Conversation, Credentials: out.Credentials}
}

// A thread is read with up to two requests. An answer that isn't a list of messages gives none, or an error without any secret.
func (s Suite) threads(t testing.TB) {
	t.Helper()
	s.unusableAnswers(t, func(p platforms.Platform, of platforms.Type, why string) (able bool, err error) {
		reader, able := p.(platforms.ThreadReader)
		if able {
			var found []platforms.Inbound
			found, err = reader.ReadThread(t.Context(), s.thread(t, of))
			require.Empty(t, found, why)
		}
		return able, err
	})
}

// unusableAnswers answers a call with meaningless bodies, with each status. It requires up to two requests, and a failure for
// every status but 200. call returns false if the platform isn't able to make it.
func (s Suite) unusableAnswers(t testing.TB, call func(p platforms.Platform, of platforms.Type, why string) (able bool, err error)) {
	t.Helper()
	for _, of := range s.types() {
		var wire traffic
		p, answer := s.answered(t, &wire)
		for _, status := range []int{200, 302, 401, 429, 500} {
			for _, body := range append(slices.Clone(unusable), revealing(s.hidden(of))...) {
				answer(status, body)
				why := fmt.Sprintf("%d %.60q says nothing", status, body)
				able, err := call(p, of, why)
				if !able {
					return
				}
				if err != nil || status != http.StatusOK {
					s.requireFailure(t, p, of, err, why)
				}
				require.LessOrEqual(t, len(wire.all()), 2, "%s: %s", of, why)
			}
		}
	}
}

// fileName and fileContent belong to a file if the content doesn't matter. Neither may be in an error.
const (
	fileName    = "confidential plan.png"
	fileContent = "\x89PNG\r\n\x1a\nconfidential content"
)

// sendFile sends a file of a kind to the customer of the sample.
func (s Suite) sendFile(ctx context.Context, t testing.TB, sender platforms.FileSender, of platforms.Type, kind string) (string, error) {
	t.Helper()
	out := s.outgoing(t, of, "")
	mediaType := map[string]string{platforms.FileImage: "image/png", platforms.FileAudio: "audio/mpeg", platforms.FileVideo: "video/mp4"}[kind]
	return sender.SendFile(ctx, out, &platforms.File{
		Kind: kind, Name: fileName, MediaType: cmp.Or(mediaType, "application/octet-stream"), Content: []byte(fileContent),
	})
}

// A file is sent completely, in up to two requests, and has the platform's id. While only an upload has failed, nothing was sent.
func (s Suite) files(t testing.TB) {
	t.Helper()
	for _, channel := range s.Driver.Describe().Channels {
		sample := s.Channels[channel.Type]
		require.True(t, sample.Uploaded == "" || len(channel.Files) > 0, "%s takes no files, and has an upload", channel.Type)
		for _, kind := range channel.Files {
			var wire traffic
			answers := []string{sample.Uploaded, sample.Sent}
			if sample.Uploaded == "" {
				answers = answers[1:]
			}
			sender := s.sender(t, wire.recording(func(w http.ResponseWriter, r *http.Request) {
				body := answers[min(len(wire.all()), len(answers))-1]
				answering(http.StatusOK, sample.filled(body, "%m", "2001"))(w, r)
			}))
			id, err := s.sendFile(t.Context(), t, sender, channel.Type, kind)
			require.NoError(t, err, "%s: %s", channel.Type, kind)
			require.Contains(t, id, "2001", "%s: the platform's id of the message", channel.Type)
			requests := wire.all()
			require.Len(t, requests, len(answers), "%s: %s", channel.Type, kind)
			require.Contains(t, requests[0], fileContent, "%s: the file goes whole", channel.Type)
			for _, request := range requests {
				require.True(t, strings.HasPrefix(request, "/some/base/"), "%s: the path of api_base is kept: %.100s", channel.Type, request)
			}
		}
		if len(channel.Files) > 0 {
			s.fileFailures(t, channel.Type, channel.Files[0])
		}
	}
}

// sender is the platform, answered so.
func (s Suite) sender(t testing.TB, serve http.HandlerFunc) platforms.FileSender {
	t.Helper()
	sender, ok := s.served(t, serve).(platforms.FileSender)
	require.True(t, ok)
	return sender
}

// fileFailures are the failures of the first request.
func (s Suite) fileFailures(t testing.TB, of platforms.Type, kind string) {
	t.Helper()
	var wire traffic
	p, answer := s.answered(t, &wire)
	for _, status := range []int{200, 302, 401, 429, 500} {
		for _, body := range append(slices.Clone(unusable), revealing(s.hidden(of))...) {
			answer(status, body)
			sender, ok := p.(platforms.FileSender)
			require.True(t, ok)
			_, err := s.sendFile(t.Context(), t, sender, of, kind)
			why := fmt.Sprintf("%d %.60q takes no file", status, body)
			failure := s.requireFailure(t, p, of, err, why)
			require.NotContains(t, err.Error(), "confidential", "%s: %s", of, why)
			require.Len(t, wire.all(), 1, "%s: %s", of, why)
			if s.Channels[of].Uploaded != "" {
				require.NotEqual(t, platforms.Unknown, failure.Class, "%s: %s: nothing was sent", of, why)
			}
		}
	}
}
