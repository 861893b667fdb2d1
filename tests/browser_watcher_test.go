package tests

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// watcher records faults that don't show in a tab: exceptions, errors on the console, violations of the content security
// policy, resources that did not load, and requests to unexpected places. The status of the page itself isn't checked, because
// a test may open an error page on purpose.
type watcher struct {
	origins []string

	mu         sync.Mutex
	complaints []complaint
	documents  map[network.RequestID]bool
	questions  []string
	forgiving  bool
}

type complaint struct {
	text    string
	request network.RequestID
}

func newWatcher(origins ...string) *watcher {
	return &watcher{origins: origins, documents: make(map[network.RequestID]bool)}
}

// watch notes what happens in a tab from now on, and says yes to its dialogs. It goes on until the tab is closed; then
// ended waits for its end.
func (w *watcher) watch(tab context.Context) (ended func(), err error) {
	if err := chromedp.Listen(tab, w.hear); err != nil {
		return nil, fmt.Errorf("listening to a tab: %w", err)
	}
	dialogs := chromedp.Events(tab, page.JavascriptDialogOpening)
	var answering sync.WaitGroup
	answering.Go(func() {
		for dialog, err := range dialogs {
			if err != nil {
				return
			}
			w.ask(dialog.Message)
			if _, err := chromedp.Call(tab, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true}); err != nil {
				return
			}
		}
	})
	return answering.Wait, nil
}

func (w *watcher) hear(event any) {
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeAssert {
			w.complainf("", "console.%s: %s", e.Type, printed(e.Args))
		}
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			text += " " + e.ExceptionDetails.Exception.Description
		}
		w.complainf("", "exception: %s (%s:%d)", text, e.ExceptionDetails.URL, e.ExceptionDetails.LineNumber+1)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Source == log.EntrySourceSecurity {
			w.complainf(e.Entry.NetworkRequestID, "%s: %s (%s)", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		if e.Type == network.ResourceTypeDocument {
			w.document(e.RequestID)
		}
		if address, err := url.Parse(e.Request.URL); err == nil && strings.HasPrefix(address.Scheme, "http") &&
			!slices.Contains(w.origins, address.Scheme+"://"+address.Host) {
			w.complainf("", "foreign: %s asks for %s", e.DocumentURL, e.Request.URL)
		}
	}
}

// printed is what the console shows of a call.
func printed(arguments []*runtime.RemoteObject) string {
	var all []string
	for _, argument := range arguments {
		text := argument.Description
		if text == "" {
			text = string(argument.Value)
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

func (w *watcher) complainf(request network.RequestID, format string, arguments ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.complaints = append(w.complaints, complaint{fmt.Sprintf(format, arguments...), request})
}

func (w *watcher) document(request network.RequestID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.documents[request] = true
}

func (w *watcher) ask(question string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.questions = append(w.questions, question)
}

// asked are the questions of dialogs so far.
func (w *watcher) asked() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.questions)
}

// forgive makes complaints from now on no fault of the test, which has seen those it waited for.
func (w *watcher) forgive() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forgiving = true
}

// take gives the complaints so far, and forgets them.
func (w *watcher) take() (texts []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.forgiving {
		return nil
	}
	for _, c := range w.complaints {
		if !w.documents[c.request] || c.request == "" {
			texts = append(texts, c.text)
		}
	}
	w.complaints = nil
	return texts
}
