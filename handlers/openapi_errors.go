package handlers

import (
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// codesKey is where a response of the description lists the codes that it can have.
const codesKey = "x-codes"

// addErrorSchema describes the error body of spec §7.1 from the struct that is written, and the codes with their texts.
func (d *describer) addErrorSchema() {
	d.schema(reflect.TypeFor[errorDocument]())
	body := d.own.SchemaFromRef(schemaPrefix + schemaName(reflect.TypeFor[errorBody](), ""))
	texts := make(map[string]string, len(d.codes))
	code := body.Properties["code"]
	code.Extensions = map[string]any{"x-enum-descriptions": texts}
	for _, doc := range d.codes {
		code.Enum = append(code.Enum, string(doc.Code))
		texts[string(doc.Code)] = doc.Cause
	}
}

// errorResponse is an answer of the error contract.
func (d *describer) errorResponse(status int) *huma.Response {
	response := d.jsonResponse("", reflect.TypeFor[errorDocument]())
	response.Headers = map[string]*huma.Param{requestIDHeader: headerRef(requestIDHeader)}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		response.Headers["Retry-After"] = headerRef("Retry-After")
	}
	response.Extensions = map[string]any{codesKey: []string(nil)}
	return response
}

// addCode says that a response can have the code.
func addCode(response *huma.Response, code Code) {
	codes, _ := response.Extensions[codesKey].([]string)
	codes = append(codes, string(code))
	response.Extensions[codesKey] = codes
	response.Description = "`" + strings.Join(codes, "`, `") + "`"
}

// codesOf are the errors that an operation can answer, in the order of spec §7.2: those that follow from who may use it and
// what it takes, and its own.
func codesOf(operation *huma.Operation, route Route) []Code {
	codes := []Code{CodeInternalError}
	if !strings.HasPrefix(route.Path, "/docs") {
		codes = append(codes, specificCodes[operation.OperationID]...)
	}
	if route.Scope != "" || route.Role != "" {
		codes = append(codes, CodeUnauthenticated, CodeInvalidAPIKey, CodeAPIKeyRevoked, CodeOrganizationSuspended)
	}
	if route.Scope != "" {
		codes = append(codes, CodeInsufficientScope)
	}
	if route.Role != "" { // another site's request, a person without the role, an id of another organization
		codes = append(codes, CodeForbidden)
	}
	if strings.HasPrefix(route.Path, "/v1/") {
		codes = append(codes, CodeRateLimited)
	}
	if operation.RequestBody != nil {
		codes = append(codes, CodeInvalidRequest)
		if route.Scope != "" || route.Role != "" { // the organization's share of the memory for bodies is full
			codes = append(codes, CodeRateLimited)
		}
	}
	for _, parameter := range operation.Parameters {
		switch {
		case parameter.In == "query" && !strings.HasPrefix(route.Path, "/webhooks"):
			codes = append(codes, CodeInvalidRequest)
		case parameter.In == "path" && !strings.HasPrefix(route.Path, "/webhooks"):
			codes = append(codes, CodeNotFound)
		}
	}
	order := Codes()
	slices.SortFunc(codes, func(a, b Code) int { return slices.Index(order, a) - slices.Index(order, b) })
	return slices.Compact(codes)
}

// ofCalls are the errors of a model call beside those of its request.
var ofCalls = []Code{
	CodeUnsupportedModel, CodeContextTooLong, CodeInsufficientCredits, CodeRateLimited,
	CodeProviderError, CodeProviderOverloaded, CodeProviderTimeout,
}

// specificCodes are the errors of operations that don't follow from their routes, by operation.
var specificCodes = map[string][]Code{
	"createChatCompletion": slices.Concat(ofCalls, []Code{CodeConflict, CodeIdempotencyKeyReused}),
	"tryAgent":             ofCalls,

	"receiveBot": {CodeUnauthenticated}, "receiveSocial": {CodeUnauthenticated}, "receiveLocalChat": {CodeUnauthenticated},
	"receiveMarketA": {CodeUnauthenticated}, "receiveMarketB": {CodeUnauthenticated}, "verifySocial": {CodeForbidden},

	"beginVisit":     {CodeForbidden, CodeRateLimited},
	"writeAsVisitor": {CodeUnauthenticated, CodeForbidden, CodePlanLimitExceeded, CodeRateLimited},
	"listVisit":      {CodeUnauthenticated, CodeForbidden, CodeRateLimited},

	"signIn":      {CodeUnauthenticated, CodeForbidden, CodeRateLimited},
	"setPassword": {CodeForbidden, CodeRateLimited},
	"signOut":     {CodeForbidden},

	"createAPIKey": {CodeConflict},
	"createAgent":  {CodeUnsupportedModel, CodeConflict}, "updateAgent": {CodeUnsupportedModel, CodeConflict},
	"createKnowledgeBase": {CodeConflict}, "updateKnowledgeBase": {CodeConflict},
	"createDocument": {CodePlanLimitExceeded, CodeConflict},
	"createChannel":  {CodePlanLimitExceeded, CodeConflict}, "updateChannel": {CodeConflict},
	"sendMessage": {CodeConflict, CodeChannelNeedsReauth, CodeServiceWindowExpired, CodeTemplateRequired},
	"handOver":    {CodeConflict}, "handBack": {CodeConflict},
	"inviteMember": {CodeConflict}, "updateMember": {CodeConflict}, "removeMember": {CodeConflict},
}
