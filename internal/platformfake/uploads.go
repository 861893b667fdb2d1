package platformfake

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/caddy-svc/caddy-svc/platforms/bot"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// Upload precedes the name of a file in what scripts match when it is uploaded before its message.
const Upload = "upload:"

// SentFile is a file that a platform took.
type SentFile struct {
	// As is how the platform shows it: photo, document, image, audio, video or file.
	As, Name, MediaType string
	Content             []byte

	token string
}

// mostSent is how many bytes of a file a platform takes, by how it shows it. Those of our own bound are far below most of them.
var mostSent = map[string]int{"photo": 10 << 20, "document": 50 << 20, "image": 8 << 20, "audio": 16 << 20, "video": 16 << 20, "file": 25 << 20}

// readFile reads the form of a request with one file in a field; it answers 400 to anything else.
func readFile(w http.ResponseWriter, r *http.Request, field string) *SentFile {
	err := r.ParseMultipartForm(64 << 20)
	if err != nil || len(r.MultipartForm.File[field]) != 1 {
		page(w, http.StatusBadRequest)
		return nil
	}
	header := r.MultipartForm.File[field][0]
	in, err := header.Open()
	if err != nil {
		page(w, http.StatusBadRequest)
		return nil
	}
	defer func() { _ = in.Close() }()
	content, err := io.ReadAll(in)
	if err != nil || len(content) == 0 || header.Filename == "" {
		page(w, http.StatusBadRequest)
		return nil
	}
	return &SentFile{Name: header.Filename, MediaType: header.Header.Get("Content-Type"), Content: content}
}

// sendBotFile serves a method that sends a file in the field of its name.
func (s *Server) sendBotFile(field string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		file := readFile(w, r, field)
		if file == nil {
			return
		}
		file.As = field
		message := Sent{Type: bot.Type, Address: r.FormValue("chat_id"), Token: botToken(r), File: file}
		if !taken(file) {
			message.verdict = Rejected
		}
		s.deliver(w, r, failBot, message, func(id string) string {
			number := id[strings.LastIndexByte(id, ':')+1:]
			return fmt.Sprintf(`{"ok":true,"result":{"message_id":%s,"chat":{"id":%s,"type":"private"}}}`, number, quoted(message.Address))
		})
	}
}

// taken reports whether a platform takes a file that is shown in some way: no picture but what browsers show, and none too large.
func taken(f *SentFile) bool {
	picture := f.As == "photo" || f.As == "image"
	return len(f.Content) <= mostSent[f.As] && (!picture || strings.HasPrefix(http.DetectContentType(f.Content), "image/"))
}

// upload takes a file that is sent later, by its id. Its token may not be that of another account.
func (g graph) upload(w http.ResponseWriter, r *http.Request) {
	field, answered := "filedata", "attachment_id"
	if g.platform == social.ChatApp {
		field, answered = "file", "id"
	}
	file := readFile(w, r, field)
	if file == nil {
		return
	}
	var message struct {
		Attachment struct {
			Type string `json:"type"`
		} `json:"attachment"`
	}
	fault, gate := g.server.takeOther(Upload + file.Name)
	switch {
	case !g.server.good(bearer(r)):
		fault = Unauthorized
	case g.platform == social.ChatApp:
		if r.FormValue("messaging_product") != "whatsapp" || r.FormValue("type") == "" {
			fault = Rejected
		}
	case json.Unmarshal([]byte(r.FormValue("message")), &message) != nil:
		fault = Rejected
	default:
		file.As = message.Attachment.Type
	}
	file.token = bearer(r)
	id := ""
	if fault.delivers() {
		g.server.mu.Lock()
		g.server.numbers++
		id = "55501" + strconv.Itoa(g.server.numbers)
		g.server.uploads[id] = file
		g.server.mu.Unlock()
	}
	g.server.end(exchange{w, r, fault, gate, g.fail, bearer(r)}, `{`+quoted(answered)+`:`+quoted(id)+`}`)
}

// attached is the part of a message that names an uploaded file.
type attached struct {
	Attachment struct {
		Type    string `json:"type"`
		Payload struct {
			ID string `json:"attachment_id"`
		} `json:"payload"`
	} `json:"attachment"`
}

// chatAppFiles are the members of a chat app's message of which one names an uploaded file.
type chatAppFiles struct {
	Type     string       `json:"type"`
	Image    *chatAppFile `json:"image"`
	Audio    *chatAppFile `json:"audio"`
	Video    *chatAppFile `json:"video"`
	Document *chatAppFile `json:"document"`
}

type chatAppFile struct {
	ID   string `json:"id"`
	Name string `json:"filename"`
}

// addFile adds the file that a message names, and judges it: it was uploaded with the same token, and is what the message says.
func (s *Server) addFile(message *Sent, id, as string) {
	if id == "" {
		return
	}
	s.mu.Lock()
	file := s.uploads[id]
	s.mu.Unlock()
	if file == nil || file.token != message.Token {
		message.verdict = Rejected
		return
	}
	sent := *file
	if sent.As != "" && sent.As != as {
		message.verdict = Rejected
	}
	sent.As = as
	message.File = &sent
	if as == "image" && message.Type == social.ChatApp && len(sent.Content) > 5<<20 || !taken(&sent) {
		message.verdict = Rejected
	}
}

// of returns the id and the kind of the file that the message names, "" for none.
func (f *chatAppFiles) of() (id, as string) {
	for kind, file := range map[string]*chatAppFile{"image": f.Image, "audio": f.Audio, "video": f.Video, "document": f.Document} {
		if file != nil && f.Type == kind {
			return file.ID, kind
		}
	}
	return "", ""
}
