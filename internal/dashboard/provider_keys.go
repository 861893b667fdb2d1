package dashboard

import "net/http"

const providerKeysPath = root + "/provider-keys"

// providerKey is the organization's own key at a provider, never with the key.
type providerKey struct {
	Provider  string `json:"provider"`
	Hint      string `json:"hint"`
	UpdatedAt string `json:"updatedAt"`

	// Delete is the button in its row.
	Delete form `json:"-"`
}

// providerKeysData is what the page of provider keys shows.
type providerKeysData struct {
	Keys []providerKey
	// Set is the form for a key; it has no fields when no provider is configured.
	Set form
}

func providerKeysPage() page {
	return page{
		path: providerKeysPath, template: "provider-keys", title: "Provider keys",
		show: showProviderKeys,
		actions: []action{
			{form: "provider-key-set", done: "The key is stored, encrypted.", secrets: []string{"key"}, do: setProviderKey},
			{verb: "delete", form: "provider-key-delete", done: "The key was deleted.", do: deleteProviderKey},
		},
	}
}

func showProviderKeys(v *visit) (any, error) {
	var keys list[providerKey]
	if err := v.get("/provider-keys", nil, &keys); err != nil {
		return nil, err
	}
	for i := range keys.Data {
		key := &keys.Data[i]
		key.Delete = button("provider-key-delete-"+key.Provider, providerKeysPath+"/delete", "Delete",
			"Delete your own key at "+key.Provider+"? Calls that ask for it are refused then.")
		key.Delete.Fields = []field{{Name: "provider", Kind: hiddenField, Value: key.Provider}}
		key.Delete = v.form(key.Delete)
	}
	shown := providerKeysData{Keys: keys.Data}
	if len(v.d.config.Providers) > 0 {
		shown.Set = v.form(providerKeyForm(v.d.config.Providers))
	}
	return shown, nil
}

func providerKeyForm(providers []string) form {
	provider := field{Name: "provider", Kind: selectField, Label: "Provider", Required: true}
	for _, name := range providers {
		provider.Options = append(provider.Options, option{Value: name, Label: name})
	}
	return form{ID: "provider-key-set", Submit: "Store key", Fields: []field{provider, {
		Name: "key", Kind: secretField, Label: "Key", Required: true, Autocomplete: "off",
		Hint: "It takes the place of the one before. It is stored encrypted and never shown again.",
	}}}
}

func setProviderKey(v *visit) (outcome, error) {
	return goTo(providerKeysPath), v.send(http.MethodPut, "/provider-keys/"+segment(v.text("provider")), object{"key": v.text("key")}, nil)
}

func deleteProviderKey(v *visit) (outcome, error) {
	return goTo(providerKeysPath), v.send(http.MethodDelete, "/provider-keys/"+segment(v.text("provider")), nil, nil)
}
