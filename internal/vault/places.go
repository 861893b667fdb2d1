package vault

// ProviderKey is the place of an organization's own key for a provider. The gateway opens what identity sealed, so
// the place has to be spelled once.
func ProviderKey(orgID, provider string) Where {
	return Where{Table: "provider_keys", Column: "sealed", OrgID: orgID, RowID: provider}
}

// Transcript is the place of the answer that is kept for the next use of a call's Idempotency-Key.
func Transcript(orgID, callID string) Where {
	return Where{Table: "idempotency_keys", Column: "response", OrgID: orgID, RowID: callID}
}

// ChannelCredentials is the place of what a channel's platform is spoken to with.
func ChannelCredentials(orgID, channelID string) Where {
	return Where{Table: "channels", Column: "credentials", OrgID: orgID, RowID: channelID}
}

// CustomerName is the place of a customer's name as the platform tells it.
func CustomerName(orgID, conversationID string) Where {
	return Where{Table: "conversations", Column: "customer_name", OrgID: orgID, RowID: conversationID}
}

// InboundBody is the place of a message that came from a platform.
func InboundBody(orgID, messageID string) Where {
	return Where{Table: "messages", Column: "body", OrgID: orgID, RowID: messageID}
}

// TurnRequest is the place of the built request of a turn.
func TurnRequest(orgID, turnID string) Where {
	return Where{Table: "turns", Column: "request", OrgID: orgID, RowID: turnID}
}

// OutboundBody is the place of a message that goes to a platform.
func OutboundBody(orgID, messageID string) Where {
	return Where{Table: "outbound_messages", Column: "body", OrgID: orgID, RowID: messageID}
}

// WidgetVisit is the place of what a visitor of a web widget carries as his token. It is stored nowhere; sealing it for
// its channel keeps it from opening another.
func WidgetVisit(orgID, channelID string) Where {
	return Where{Table: "channels", Column: "visit", OrgID: orgID, RowID: channelID}
}
