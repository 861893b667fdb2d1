package abuse

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddy-svc/caddy-svc/internal/errcode"
	"github.com/caddy-svc/caddy-svc/internal/store"
	"github.com/caddy-svc/caddy-svc/internal/vault"
	"github.com/caddy-svc/caddy-svc/platforms/social"
)

// What tenants do with conversations and channels of their own.

const (
	// largestFile is the size of nearly the largest file of a conversation, in bytes. An attack with fewer connections than that has for a
	// fileShare each, has a smaller one.
	largestFile = 8_000_000
	fileShare   = 10_000
	// visitorsEach is how many connections a visitor has who reads nothing.
	visitorsEach = 100
	// manyPagesDelivery is the size of the delivery for all of the attacker's pages, in bytes.
	manyPagesDelivery = 7_500_000
)

// unreadFiles ask for the largest file on many connections and read nothing of it, while others like it are sent to a customer.
func unreadFiles(ctx context.Context, s *Siege) error {
	update := fmt.Sprintf(`{"update_id":%d,"message":{"message_id":1,"from":{"id":5,"is_bot":false,"first_name":"Lan"},`+
		`"chat":{"id":5,"type":"private"},"date":%d,"text":"hello"}}`, names.Add(1), time.Now().Unix())
	err := s.everyOne(ctx, []request{{
		method: http.MethodPost, path: "/webhooks/bot/" + s.Bot, header: []string{"X-Bot-Api-Secret-Token", s.BotSecret}, body: update,
		want: []outcome{{http.StatusOK, ""}},
	}})
	if err != nil {
		return err
	}
	var list struct{ Data []struct{ ID string } }
	if err := s.get(ctx, 0, s.call(http.MethodGet, "/conversations?channelId="+s.Bot, ""), &list); err != nil || len(list.Data) == 0 {
		return errors.Join(err, errors.New("the bot has no conversation"))
	}
	path := "/conversations/" + list.Data[0].ID
	size := min(largestFile, s.Connections*fileShare)
	content, err := json.Marshal(map[string]any{"file": map[string]string{
		"name": "large.pdf", "content": base64.StdEncoding.EncodeToString([]byte("%PDF-1.7" + strings.Repeat(" ", size))),
	}})
	if err != nil {
		return fmt.Errorf("writing a file: %w", err)
	}
	var sent struct{ Files []struct{ ID string } }
	send := s.call(http.MethodPost, path+"/messages", string(content))
	if err := s.get(ctx, 0, send, &sent); err != nil || len(sent.Files) == 0 {
		return err
	}
	open, release := crowd(ctx)
	defer release()
	if err := s.beginAll(ctx, open, s.Connections, s.call(http.MethodGet, path+"/files/"+sent.Files[0].ID, "")); err != nil {
		return err
	}
	send.want = s.allow(http.StatusCreated, errcode.PlanLimitExceeded)
	return s.everyOne(ctx, slices.Repeat([]request{*send}, s.Workers))
}

// visitorsLists ask for visitors' long conversations on many connections, and read nothing of them, while others read them.
func visitorsLists(ctx context.Context, s *Siege) error {
	open, release := crowd(ctx)
	defer release()
	var lists []request
	for i := range max(1, s.Connections/visitorsEach) {
		var visit struct{ Token string }
		begin := &request{method: http.MethodPost, path: "/widget/" + s.Widget + "/session", header: []string{"Origin", Origin}, body: "{}"}
		if err := s.get(ctx, i, begin, &visit); err != nil || visit.Token == "" {
			return err
		}
		visitor := []string{"Origin", Origin, "Authorization", "Bearer " + visit.Token}
		list := request{http.MethodGet, "/widget/" + s.Widget + "/messages", visitor, "", s.allow(http.StatusOK)}
		said := list
		said.method, said.body = http.MethodPost, fmt.Sprintf(`{"id":"m%d","text":%q}`, names.Add(1), s.Endless)
		said.want = append(s.allow(http.StatusAccepted, errcode.PlanLimitExceeded), list.want...)
		if err := s.everyOne(ctx, []request{said}); err != nil {
			return err
		}
		if err := s.beginAll(ctx, open, min(s.Connections, visitorsEach), &list); err != nil {
			return err
		}
		lists = append(lists, slices.Repeat([]request{list}, visitorsEach)...)
	}
	return s.everyOne(ctx, lists)
}

// manyPages deliver for all of the attacker's pages at once, with the signature of the last one's own application.
func manyPages(ctx context.Context, s *Siege) error {
	var body strings.Builder
	body.WriteString(`{"object":"page","entry":[`)
	for i, page := range s.Pages {
		text := strings.Repeat("a", manyPagesDelivery/len(s.Pages)-300)
		fmt.Fprintf(&body, `%s{"id":"%s","time":%d,"messaging":[{"sender":{"id":"7"},"recipient":{"id":"%[2]s"},"timestamp":%[3]d,`+
			`"message":{"mid":"p%d","text":"%s"}}]}`, strings.Repeat(",", min(i, 1)), page, time.Now().UnixMilli(), names.Add(1), text)
	}
	body.WriteString(`]}`)
	last := s.Pages[len(s.Pages)-1]
	var all []request
	for range max(1, s.Connections) {
		all = append(all, request{
			method: http.MethodPost, path: "/webhooks/social", header: []string{"X-Hub-Signature-256", signWith(pageSecret(last), []byte(body.String()))},
			body: body.String(), want: s.allow(http.StatusOK, errcode.Unauthenticated, errcode.InternalError), // the last is for more than fits
		})
	}
	return s.everyOne(ctx, all)
}

// ManyPages makes channels for n pages of an organization's on the social platform. Each has an application of its own.
func ManyPages(ctx context.Context, db *store.DB, ring *vault.Ring, orgID string, n int) (pages []string, err error) {
	for i := range n {
		id, page := store.NewID("chn"), fmt.Sprint(949_000_000+i)
		credentials, err := json.Marshal(map[string]string{"accessToken": "token-" + page, "appSecret": pageSecret(page)})
		if err != nil {
			return nil, fmt.Errorf("writing credentials: %w", err)
		}
		err = db.Channels.Create(ctx, "attacker", store.Channel{
			ID: id, OrgID: orgID, Type: string(social.Messenger), Name: "page " + page, ExternalID: page, State: store.ChannelActive,
			Credentials: ring.Seal(credentials, vault.ChannelCredentials(orgID, id)),
		}, 0)
		if err != nil {
			return nil, fmt.Errorf("making a channel: %w", err)
		}
		pages = append(pages, page)
	}
	return pages, nil
}

func pageSecret(page string) string { return "secret-of-the-application-of-" + page }

// testEvents have events sent to addresses of the attacker's choice: one a second, whatever is asked for.
func testEvents(ctx context.Context, s *Siege) error {
	for range max(1, s.Workers) {
		var made struct{ ID string }
		if err := s.get(ctx, 0, s.call(http.MethodPost, "/event-endpoints", `{"url":"https://victim.example.com/"}`), &made); err != nil {
			return err
		}
	}
	var endpoints struct{ Data []struct{ ID string } }
	if err := s.get(ctx, 0, s.call(http.MethodGet, "/event-endpoints", ""), &endpoints); err != nil {
		return err
	}
	var all []request
	for _, endpoint := range endpoints.Data {
		for range max(1, s.Connections) {
			all = append(all, request{http.MethodPost, "/event-endpoints/" + endpoint.ID + "/test", s.bearer(), "", s.allow(http.StatusCreated)})
		}
	}
	before, began := s.created.Load(), time.Now()
	if err := s.everyOne(ctx, all); err != nil {
		return err
	}
	if sent, lasted := s.created.Load()-before, time.Since(began); sent > int64(lasted.Seconds())+1 {
		return fmt.Errorf("%d test events within %v", sent, lasted)
	}
	return nil
}
