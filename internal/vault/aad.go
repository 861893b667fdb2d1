package vault

import "strconv"

// AAD says where a sealed value is stored. It is authenticated as additional data and not part of the value: a value copied to
// another table, column, organization or row doesn't open.
type AAD struct {
	Table, Column, OrgID, RowID string
}

// ProviderKey is the AAD of an organization's own key for a provider.
func ProviderKey(orgID, provider string) AAD {
	return AAD{Table: "provider_keys", Column: "sealed", OrgID: orgID, RowID: provider}
}

// Transcript is the AAD of the kept answer of a call with an Idempotency-Key.
func Transcript(orgID, callID string) AAD {
	return AAD{Table: "kept_answers", Column: "response", OrgID: orgID, RowID: callID}
}

// ChannelCredentials is the AAD of a channel's sealed platform credentials.
func ChannelCredentials(orgID, channelID string) AAD {
	return AAD{Table: "channels", Column: "credentials", OrgID: orgID, RowID: channelID}
}

// CustomerName is the AAD of a customer's name.
func CustomerName(orgID, conversationID string) AAD {
	return AAD{Table: "conversations", Column: "customer_name", OrgID: orgID, RowID: conversationID}
}

// InboundBody is the AAD of a customer's message.
func InboundBody(orgID, messageID string) AAD {
	return AAD{Table: "messages", Column: "body", OrgID: orgID, RowID: messageID}
}

// TurnRequest is the AAD of a turn's built request.
func TurnRequest(orgID, turnID string) AAD {
	return AAD{Table: "turns", Column: "request", OrgID: orgID, RowID: turnID}
}

// TurnDraft is the AAD of an answer that a person may send.
func TurnDraft(orgID, turnID string) AAD {
	return AAD{Table: "turns", Column: "draft", OrgID: orgID, RowID: turnID}
}

// OutboundBody is the AAD of a message to a customer.
func OutboundBody(orgID, messageID string) AAD {
	return AAD{Table: "outbound_messages", Column: "body", OrgID: orgID, RowID: messageID}
}

// OutboundTemplate is the AAD of the template that a message to a customer is sent as.
func OutboundTemplate(orgID, messageID string) AAD {
	return AAD{Table: "outbound_messages", Column: "template", OrgID: orgID, RowID: messageID}
}

// WidgetVisit is the AAD of a visitor's token of a web widget. The token isn't stored; the AAD binds it to its channel.
func WidgetVisit(orgID, channelID string) AAD {
	return AAD{Table: "channels", Column: "visit", OrgID: orgID, RowID: channelID}
}

// EventSecret is the AAD of the secrets that sign an endpoint's events.
func EventSecret(orgID, endpointID string) AAD {
	return AAD{Table: "event_endpoints", Column: "secret", OrgID: orgID, RowID: endpointID}
}

// MediaAbout is the AAD of the reference and the name of a customer's file.
func MediaAbout(orgID, mediaID string) AAD {
	return AAD{Table: "media", Column: "about", OrgID: orgID, RowID: mediaID}
}

// MediaPiece is the AAD of a piece of a customer's file: pieces can't be left out, exchanged or reordered.
func MediaPiece(orgID, mediaID string, position int64) AAD {
	return AAD{Table: "media_pieces", Column: "body", OrgID: orgID, RowID: mediaID + "/" + strconv.FormatInt(position, 10)}
}

// SentFileName is the AAD of the name of a file that a person sends.
func SentFileName(orgID, fileID string) AAD {
	return AAD{Table: "sent_files", Column: "name", OrgID: orgID, RowID: fileID}
}

// SentFilePiece is the AAD of a piece of a file that a person sends.
func SentFilePiece(orgID, fileID string, position int64) AAD {
	return AAD{Table: "sent_file_pieces", Column: "body", OrgID: orgID, RowID: fileID + "/" + strconv.FormatInt(position, 10)}
}
