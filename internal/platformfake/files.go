package platformfake

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"testing"
)

// Download precedes the id of a file in what scripts match.
const Download = "download:"

// file is a file that a customer sent.
type file struct {
	content []byte
	// held is how many bytes of it are served before the rest waits for [Server.Release], or the end of the request; 0 holds nothing.
	held      int
	downloads int
}

// link is an address of a file.
type link struct {
	id string
	// bearer: the request must have a token.
	bearer bool
}

// PutFile adds a file and returns its id, which is good at all platforms.
func (s *Server) PutFile(content []byte) (id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.numbers++
	id = "90210" + strconv.Itoa(s.numbers)
	s.files[id] = &file{content: content}
	return id
}

// HoldFile makes downloads stop after so many bytes of the file until [Server.Release].
func (s *Server) HoldFile(id string, after int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[id].held = after
}

// RemoveFile makes the platforms forget a file.
func (s *Server) RemoveFile(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.files, id)
}

// Link returns an address of a file, which wants no token.
func (s *Server) Link(id string) string { return s.link(id, false) }

func (s *Server) link(id string, bearer bool) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.numbers++
	ticket := fmt.Sprintf("t%d-%s", s.numbers, Secret)
	s.links[ticket] = &link{id, bearer}
	return "http://" + s.door.address + "/files/" + ticket
}

// ExpireLinks ends all addresses of files that were given until now.
func (s *Server) ExpireLinks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.links)
}

// Downloads counts the requests for the content of a file so far.
func (s *Server) Downloads(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.files[id]; f != nil {
		return f.downloads
	}
	return 0
}

// has reports whether there is a file with the id.
func (s *Server) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.files[id] != nil
}

// good reports whether the server takes the token.
func (s *Server) good(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return token != "" && !s.accounts[token].bad()
}

func (s *Server) locateBot(w http.ResponseWriter, r *http.Request) {
	var body struct {
		ID string `json:"file_id"`
	}
	if !read(w, r, &body) {
		return
	}
	fault, gate := s.takeOther(body.ID)
	switch {
	case !s.good(botToken(r)):
		fault = Unauthorized
	case !s.has(body.ID):
		fault = Rejected
	}
	s.end(exchange{w, r, fault, gate, failBot, botToken(r)},
		fmt.Sprintf(`{"ok":true,"result":{"file_id":%q,"file_unique_id":"u","file_path":"files/%[1]s"}}`, body.ID))
}

func (s *Server) downloadBot(w http.ResponseWriter, r *http.Request) {
	if !s.good(botToken(r)) {
		page(w, http.StatusUnauthorized)
		return
	}
	s.download(w, r, r.PathValue("id"), failBot)
}

// locate serves the link of a file, which wants the token.
func (g graph) locate(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	fault, gate := g.server.takeOther(id)
	if !g.server.good(bearer(r)) {
		fault = Unauthorized
	}
	good, err := json.Marshal(map[string]string{
		"messaging_product": "whatsapp", "id": id, "url": g.server.link(id, true), "mime_type": "application/octet-stream",
	})
	if err != nil {
		panic(err) // strings always marshal
	}
	g.server.end(exchange{w, r, fault, gate, g.fail, bearer(r)}, string(good))
}

func (s *Server) downloadLink(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	to := s.links[r.PathValue("ticket")]
	s.mu.Unlock()
	switch {
	case to == nil:
		page(w, http.StatusForbidden)
	case to.bearer && !s.good(bearer(r)):
		page(w, http.StatusUnauthorized)
	default:
		s.download(w, r, to.id, failBot)
	}
}

// download serves the content of a file.
func (s *Server) download(w http.ResponseWriter, r *http.Request, id string, fail failer) {
	fault, gate := s.takeOther(Download + id)
	s.mu.Lock()
	f := s.files[id]
	var content []byte
	held := 0
	if f != nil {
		f.downloads++
		content, held = f.content, f.held
	}
	s.announce()
	s.mu.Unlock()
	switch {
	case f == nil:
		page(w, http.StatusNotFound)
	case fault.kind != serveWell || fault.pause > 0:
		s.end(exchange{w, r, fault, gate, fail, Secret}, string(content))
	default:
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		if held > 0 && held < len(content) {
			_, _ = w.Write(content[:held])
			_ = http.NewResponseController(w).Flush()
			if !s.await(exchange{w: w, r: r, fault: Hang, gate: gate}) {
				return
			}
			content = content[held:]
		}
		_, _ = w.Write(content)
	}
}

// WaitDownloads waits until a file was requested n times.
func (s *Server) WaitDownloads(t testing.TB, id string, n int) {
	t.Helper()
	s.wait(t, func() bool { return s.Downloads(id) >= n })
}
