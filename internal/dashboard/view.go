package dashboard

import (
	"net/url"
	"strings"
)

// view is what a template gets.
type view struct {
	// Title is the page's heading.
	Title string
	// Path is the page's own, wherever its form was sent to.
	Path string
	// Session is who is signed in; nil on public pages.
	Session *session
	// Sections are the entries of the navigation that the person sees; Section is the path of the page's own.
	Sections []section
	Section  string
	// Scripts are the addresses of the page's own scripts.
	Scripts []string
	// Notice says what was done, Alert why something was not.
	Notice string
	Alert  *fault
	// SignOut is the form in the page's head.
	SignOut form
	// Data is what show returned, Once what an action revealed.
	Data any
	Once any
}

// view is the page around what show returned.
func (v *visit) view(shown any) *view {
	made := &view{
		Title: v.page.title, Path: v.path(), Session: v.session, Section: v.page.section, Data: shown, Once: v.once,
		SignOut: button("logout", logoutPath, "Sign out", ""),
	}
	if named, ok := shown.(titled); ok {
		made.Title = named.PageTitle()
	}
	if made.Section == "" {
		made.Section = v.page.path
	}
	for _, entry := range sections() {
		if v.session.has(entry.role) {
			made.Sections = append(made.Sections, entry)
		}
	}
	for _, name := range v.page.scripts {
		made.Scripts = append(made.Scripts, v.d.assets.address(name))
	}
	switch {
	case v.refused == nil && v.action != nil:
		made.Notice = v.action.done
	case v.refused == nil:
		made.Notice = v.d.done[v.query("done")]
	}
	return made
}

// pager is the way through a list.
type pager struct {
	// First and Next are addresses, "" where there is nothing to go to.
	First, Next string
}

// pager leads to the next page of a list, and back to the first; what else stands in the address stays. The page hands the
// parameter cursor to the API ([visit.cursor]).
func (v *visit) pager(nextCursor string) pager {
	var p pager
	query := v.r.URL.Query()
	query.Del("done")
	query.Del("fragment")
	if query.Has("cursor") {
		query.Del("cursor")
		p.First = v.path() + strings.TrimSuffix("?"+query.Encode(), "?")
	}
	if nextCursor != "" {
		query.Set("cursor", nextCursor)
		p.Next = v.path() + "?" + query.Encode()
	}
	return p
}

// cursor is the query for the page of a list that is looked at, to be widened by the caller.
func (v *visit) cursor() url.Values {
	query := make(url.Values)
	if at := v.query("cursor"); at != "" {
		query.Set("cursor", at)
	}
	return query
}
