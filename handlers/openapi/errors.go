package openapi

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/caddy-svc/caddy-svc/handlers"
	"github.com/caddy-svc/caddy-svc/handlers/endpoint"
	"github.com/caddy-svc/caddy-svc/internal/errcode"
)

// codesKey is where a response of the description lists the codes that it can have.
const codesKey = "x-codes"

// addErrorSchema describes the error body from the struct that is written, and the codes with their texts.
func (d *describer) addErrorSchema() {
	d.schema(reflect.TypeFor[handlers.ErrorDocument]())
	body := d.own.SchemaFromRef(endpoint.SchemaPrefix + endpoint.SchemaName(reflect.TypeFor[handlers.ErrorBody](), ""))
	texts := make(map[string]string, len(d.codes))
	code := body.Properties["code"]
	code.Extensions = map[string]any{"x-enum-descriptions": texts}
	for _, doc := range d.codes {
		code.Enum = append(code.Enum, string(doc.Code))
		texts[string(doc.Code)] = doc.Cause
	}
}

func (d *describer) errorResponse(status int) *huma.Response {
	response := d.jsonResponse("", reflect.TypeFor[handlers.ErrorDocument]())
	response.Headers = map[string]*huma.Param{handlers.RequestIDHeader: headerRef(handlers.RequestIDHeader)}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		response.Headers["Retry-After"] = headerRef("Retry-After")
	}
	response.Extensions = map[string]any{codesKey: []string(nil)}
	return response
}

// codesOf returns the errors of an operation, in the order of package errcode: the errors that follow from its access and its
// input, and its specific errors.
func codesOf(operation *huma.Operation, route handlers.Route) []errcode.Code {
	codes := []errcode.Code{errcode.InternalError}
	codes = append(codes, specificCodes[operation.OperationID]...)
	add := func(applies bool, more ...errcode.Code) {
		if applies {
			codes = append(codes, more...)
		}
	}
	credentials, operator := route.Scope != "" || route.Role != "", strings.HasPrefix(route.Path, operatorPath+"/")
	add(strings.HasPrefix(route.Path, docsPath), errcode.NotFound) // where the operator doesn't serve it
	add(credentials, errcode.Unauthenticated, errcode.InvalidAPIKey, errcode.APIKeyRevoked, errcode.RateLimited)
	add(credentials && !operator, errcode.OrganizationSuspended)
	add(operator || route.Scope != "", errcode.InsufficientScope)
	// A repeated request, or a request that still runs.
	add(operator && route.Method == http.MethodPost, errcode.IdempotencyKeyReused, errcode.Conflict, errcode.InvalidRequest)
	add(route.Role != "", errcode.Forbidden) // another site's request, a person without the role, an id of another organization
	add(operation.RequestBody != nil, errcode.InvalidRequest)
	if !strings.HasPrefix(route.Path, "/webhooks") {
		for _, parameter := range operation.Parameters {
			add(parameter.In == "query", errcode.InvalidRequest)
			add(parameter.In == "path", errcode.NotFound)
		}
	}
	order := errcode.All()
	slices.SortFunc(codes, func(a, b errcode.Code) int { return slices.Index(order, a) - slices.Index(order, b) })
	return slices.Compact(codes)
}

// ofCalls are the errors of a model call, without the errors of its request.
var ofCalls = []errcode.Code{
	errcode.UnsupportedModel, errcode.ContextTooLong, errcode.InsufficientCredits, errcode.PlanLimitExceeded, errcode.RateLimited,
	errcode.ProviderError, errcode.ProviderOverloaded, errcode.ProviderTimeout,
}

// ofSends are the errors of a message that can't be sent to the customer now.
var ofSends = []errcode.Code{errcode.Conflict, errcode.ChannelNeedsReauth, errcode.ServiceWindowExpired, errcode.TemplateRequired}

// ofTemplates are the errors of reading a channel's templates from its platform.
var ofTemplates = []errcode.Code{errcode.ChannelNeedsReauth, errcode.ProviderError, errcode.ProviderOverloaded, errcode.ProviderTimeout}

// specificCodes are the errors of operations that don't follow from their routes, by operation.
var specificCodes = map[string][]errcode.Code{
	"createChatCompletion": slices.Concat(ofCalls, []errcode.Code{errcode.Conflict, errcode.IdempotencyKeyReused}),
	"tryAgent":             ofCalls,

	"receiveBot": {errcode.Unauthenticated}, "receiveSocial": {errcode.Unauthenticated}, "receiveLocalChat": {errcode.Unauthenticated},
	"receiveMarketA": {errcode.Unauthenticated}, "receiveMarketB": {errcode.Unauthenticated}, "verifySocial": {errcode.Forbidden},

	"beginVisit":     {errcode.Forbidden, errcode.RateLimited},
	"writeAsVisitor": {errcode.Unauthenticated, errcode.Forbidden, errcode.PlanLimitExceeded, errcode.RateLimited},
	"listVisit":      {errcode.Unauthenticated, errcode.Forbidden, errcode.RateLimited},

	"signIn":      {errcode.Unauthenticated, errcode.Forbidden, errcode.RateLimited},
	"setPassword": {errcode.Forbidden, errcode.RateLimited},

	"enableSecondFactor": {errcode.Conflict}, "disableSecondFactor": {errcode.Conflict},
	"signOut": {errcode.Forbidden},

	"createEventEndpoint": {errcode.PlanLimitExceeded}, "testEventEndpoint": {errcode.Conflict},
	"createAPIKey":        {errcode.PlanLimitExceeded, errcode.Conflict},
	"createBudget":        {errcode.PlanLimitExceeded, errcode.Conflict},
	"createTopUp":         {errcode.PlanLimitExceeded, errcode.ProviderError},
	"updateAPIKey":        {errcode.Conflict},
	"createAgent":         {errcode.PlanLimitExceeded, errcode.UnsupportedModel, errcode.Conflict},
	"updateAgent":         {errcode.UnsupportedModel, errcode.Conflict},
	"createKnowledgeBase": {errcode.PlanLimitExceeded, errcode.Conflict}, "updateKnowledgeBase": {errcode.Conflict},
	"createDocument": {errcode.PlanLimitExceeded, errcode.Conflict},
	"createChannel":  {errcode.PlanLimitExceeded, errcode.Conflict}, "updateChannel": {errcode.Conflict},
	"listTemplates": slices.Concat([]errcode.Code{errcode.Conflict}, ofTemplates),
	"sendMessage":   slices.Concat(ofSends, ofTemplates, []errcode.Code{errcode.IdempotencyKeyReused, errcode.PlanLimitExceeded}),
	"resendMessage": ofSends, "discardDraft": {errcode.Conflict},
	"sendDraft": slices.Concat(ofSends, []errcode.Code{errcode.IdempotencyKeyReused}),
	"handOver":  {errcode.Conflict}, "handBack": {errcode.Conflict},
	"retryConversation": {errcode.Conflict}, "dismissConversation": {errcode.Conflict},
	"createOrganization": {errcode.Conflict}, "adjustWallet": {errcode.InsufficientCredits, errcode.Conflict},
	"creditWallet": {errcode.Conflict}, "refundCall": {errcode.Conflict}, "approveChannel": {errcode.Conflict}, "retryTurn": {errcode.Conflict},

	"inviteMember": {errcode.PlanLimitExceeded, errcode.Conflict}, "updateMember": {errcode.Conflict}, "removeMember": {errcode.Conflict},
}

// codeDoc is the part of an error code's entry in docs/failure-modes.md that is for clients.
type codeDoc struct {
	Code errcode.Code
	// Cause and Client are text with code spans in backticks, on one line each: why it happens, and what to do.
	Cause, Client string
}

// readCodeDocs reads the entries of docs/failure-modes.md: a heading `### code`, then `**Status** N`, `**Cause**:`,
// `**Client**:` and `**Operator**:`, which is not for clients. It returns one for each of [errcode.All], in that order, and
// reports codes without an entry, entries without a code, and statuses that aren't the code's.
func readCodeDocs(page string) ([]codeDoc, error) {
	found := make(map[errcode.Code]codeDoc)
	var faults []error
	sections := strings.Split("\n"+page, "\n### ")
	for _, section := range sections[1:] {
		name, text, _ := strings.Cut(section, "\n")
		text, _, _ = strings.Cut(text, "\n## ")
		doc := codeDoc{Code: errcode.Code(name), Cause: labelled(text, "Cause"), Client: labelled(text, "Client")}
		switch {
		case !strings.HasPrefix(labelled(text, "Status"), strconv.Itoa(doc.Code.Status())):
			faults = append(faults, fmt.Errorf("%s: the status is %d", name, doc.Code.Status()))
		case doc.Cause == "" || doc.Client == "" || labelled(text, "Operator") == "":
			faults = append(faults, fmt.Errorf("%s: Cause, Client or Operator is missing", name))
		}
		found[doc.Code] = doc
	}
	docs := make([]codeDoc, 0, len(found))
	for _, code := range errcode.All() {
		doc, ok := found[code]
		if !ok {
			faults = append(faults, fmt.Errorf("%s has no entry", code))
		}
		docs = append(docs, doc)
	}
	return docs, errors.Join(faults...)
}

// labelled returns the text behind a bold label, up to the next label, on one line.
func labelled(text, label string) string {
	_, after, found := strings.Cut(text, "**"+label+"**")
	if !found {
		return ""
	}
	after, _, _ = strings.Cut(after, "**")
	sentence := strings.Join(strings.Fields(strings.TrimPrefix(after, ":")), " ")
	if sentence == "" {
		return ""
	}
	return strings.ToUpper(sentence[:1]) + sentence[1:]
}
