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
