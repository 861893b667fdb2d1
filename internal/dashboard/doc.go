// Package dashboard serves the pages for people at /dashboard: server-rendered HTML over the endpoint groups of the
// organization API (docs/contract.md#organization-api).
//
// It is a client of the API. Every page and every form becomes requests to the API in this process, with the browser's own
// context, cookie, address and origin. So the API alone decides rights, bounds and the names of faulty fields; the dashboard
// reads, shows, and keeps what was entered. It has more than 3,000 lines because it has a file for each entry of its navigation
// over one kit: page.go, page_request.go, form.go, form_input.go, client.go, relay.go, templates.go.
//
// # How a page is made
//
// A [page] is a value in the list of page.go: its path, its title, its template and the function that reads its data.
//
//		page{
//			path: "/dashboard/things/{id}", template: "thing", title: "Thing", section: "/dashboard/things",
//			show: func(req *pageRequest) (any, error) {
//				var read thing
//				if err := req.get("/things/"+req.id(), nil, &read); err != nil {
//					return nil, err
//				}
//				return thingPage{Thing: read, Rename: req.form(renameForm(&read))}, nil
//			},
//			actions: []action{{
//				verb: "", form: "thing-rename", done: "The thing has its new name.",
//				do: func(req *pageRequest) (outcome, error) {
//					err := req.send(http.MethodPatch, "/things/"+req.id(), object{"name": req.text("name")}, nil)
//					return goTo("/dashboard/things"), err
//				},
//			}},
//		}
//
//	  - templates/thing.html fills the layout's main element. It gets the [view]; what show returned is .Data.
//	    The h1 is the layout's (title, or the Title of data that is [titled]); a page begins with h2.
//	  - An [action] answers POST to the page's path, or to path/verb. It goes somewhere else ([goTo], a 303 with the
//	    action's done text there) or shows the page again with something that is shown once ([reveal]; .Once in the view).
//	    When the API refuses, the page is shown again with the API's status: req.form puts the message at the field that the
//	    API named and keeps what was entered, but for fields of the kind [secretField].
//	  - A [form] is a value too; {{template "form" .Data.Rename}} writes it with labels, hints, errors and ids: the form's
//	    ID is <noun>-<verb>, an input's is form-name, its error's input-error. A form without fields is a button
//	    ([button]); one that stands in each row has an id for each row ("key-revoke-key_1") and names its action in Action.
//	    Errors of an action whose form the page didn't show stand at the top of the page.
//	  - A part that updates by itself is a template of its own that page.fragments names; in the page
//	    <div data-live="{{.Path}}?fragment=messages" aria-live="polite">{{template "messages" .}}</div>. The script asks for it every
//	    2 s while the page is visible. Without the script the page is as it was when it was opened.
//	  - A [relay] passes a response of the API through as it arrives: a stream, a download.
//	  - Templates have the functions credits (micros as text), count (count 3 "message" "messages"), clock (a moment as a
//	    person reads it) and asset (the address of a file in static/), and the templates of parts.html: form, moment (a moment
//	    of the API as a time element; nothing for ""), pager ([pageRequest.pager]) and copy (a button that copies what the
//	    element of a selector holds). Data attributes control the script: data-copy="#id", data-confirm (a form's Confirm),
//	    data-live. A page's own script is a file in static/, named in page.scripts.
//
// # Invariants
//
//   - No page has script or style of its own in the text; the policy ([contentSecurityPolicy]) forbids both. Nothing is
//     loaded from elsewhere. Everything but the playground works without the script.
//   - Every change is a POST, and one that another site caused is refused before its body is read.
//   - Only the session's cookie authenticates a person: a key in a header is not passed on.
//   - Pages are never stored by browsers or proxies; files of static/ are cached for ever, because their path has their hash.
//
// It imports no other package of this module but the two tables of codes, has no rules of the business, keeps no state between
// requests and sends no e-mail.
package dashboard
