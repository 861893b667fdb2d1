package vault

// ProviderKey is the place of an organization's own key for a provider. The gateway opens what identity sealed, so
// the place has to be spelled once.
func ProviderKey(orgID, provider string) Where {
	return Where{Table: "provider_keys", Column: "sealed", OrgID: orgID, RowID: provider}
}
