package dashboard

import (
	"net/http"
)

const keysPath = root + "/keys"

// apiKey is an API key of the organization. Key is set only in the answer that creates it.
type apiKey struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Environment string   `json:"environment"`
	Scopes      []string `json:"scopes"`
	Hint        string   `json:"hint"`
	CreatedAt   string   `json:"createdAt"`
	ExpiresAt   string   `json:"expiresAt"`
	RevokedAt   string   `json:"revokedAt"`
	// CreatedBy and CreatedByName are the maker of the key.
	CreatedBy     string `json:"createdBy"`
	CreatedByName string `json:"createdByName"`
	Key           string `json:"key"`

	// Revoke is the button in its row.
	Revoke form `json:"-"`
}

type keysData struct {
	Keys   []apiKey
	Pager  pager
	Create form
	// Address is the base URL for clients.
	Address string
}

func keysPage() page {
	return page{
		path: keysPath, template: "keys", title: "API keys",
		show: showKeys,
		actions: []action{
			{form: "key-create", done: "The key was made.", do: createKey},
			{verb: "revoke", form: "key-revoke", done: "The key is revoked and can't be used any more.", do: revokeKey},
		},
	}
}

func showKeys(req *pageRequest) (any, error) {
	var keys list[apiKey]
	if err := req.get("/api-keys", req.cursor(), &keys); err != nil {
		return nil, err
	}
	for i := range keys.Data {
		key := &keys.Data[i]
		key.Revoke = button("key-revoke-"+key.ID, keysPath+"/revoke", "Revoke",
			"Revoke the key "+key.Hint+"…? Whoever uses it is refused from the next request on. This can't be undone.")
		key.Revoke.Fields = []field{{Name: "id", Kind: hiddenField, Value: key.ID}}
		key.Revoke = req.form(key.Revoke)
	}
	return keysData{
		Keys: keys.Data, Pager: req.pager(keys.NextCursor), Create: req.form(keyForm()), Address: req.d.config.BaseURL + "/v1",
	}, nil
}

func keyForm() form {
	return form{
		ID: "key-create", Submit: "Create key", Fields: []field{
			{Name: "name", Kind: textField, Label: "Name", Hint: "What it is for, so that you know which one to revoke.", MaxLength: 100},
			{
				Name: "environment", Kind: selectField, Label: "Environment", Required: true,
				Hint:    "A live key spends the live wallet, a test key the test wallet.",
				Options: []option{{Value: "live", Label: "Live"}, {Value: "test", Label: "Test"}},
			},
			{
				Name: "scopes", Kind: checksField, Label: "Scopes", Hint: "What the key may do. Give it no more than it needs.",
				Options: choices(scopes(), "models:read", "chat:write"),
			},
			{Name: "expiresInDays", Kind: numberField, Label: "Expires in days", Hint: "1 to 3650. Empty: it never expires."},
		},
	}
}

// scopes returns all scopes as options.
func scopes() []option {
	all := []option{
		{Value: "models:read", Label: "models:read", Hint: "List the models"},
		{Value: "chat:write", Label: "chat:write", Hint: "Ask models"},
	}
	for _, group := range []struct{ name, what string }{
		{"agents", "assistants"},
		{"knowledge_bases", "knowledge bases"},
		{"channels", "channels"},
		{"conversations", "conversations"},
		{"wallet", "the wallet"},
		{"event_endpoints", "event endpoints"},
		{"api_keys", "API keys"},
		{"provider_keys", "provider keys"},
	} {
		all = append(all,
			option{Value: group.name + ":read", Label: group.name + ":read", Hint: "See " + group.what},
			option{Value: group.name + ":write", Label: group.name + ":write", Hint: "Change " + group.what},
		)
	}
	return all
}

func createKey(req *pageRequest) (outcome, error) {
	chosen := req.texts("scopes")
	if len(chosen) == 0 { // the API would use its default for none
		return outcome{}, refuseField("scopes", "Choose at least one scope.")
	}
	body := object{
		"name": orNull(req.text("name")), "environment": req.text("environment"), "scopes": chosen, "expiresInDays": req.number("expiresInDays"),
	}
	var made apiKey
	if err := req.send(http.MethodPost, "/api-keys", body, &made); err != nil {
		return outcome{}, err
	}
	return reveal(made), nil
}

func revokeKey(req *pageRequest) (outcome, error) {
	return goTo(keysPath), req.send(http.MethodDelete, "/api-keys/"+segment(req.text("id")), nil, nil)
}

const providerKeysPath = root + "/provider-keys"

// providerKey is the organization's own key at a provider, without the key.
type providerKey struct {
	Provider  string `json:"provider"`
	Hint      string `json:"hint"`
	UpdatedAt string `json:"updatedAt"`

	// Delete is the button in its row.
	Delete form `json:"-"`
}

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

func showProviderKeys(req *pageRequest) (any, error) {
	var keys list[providerKey]
	if err := req.get("/provider-keys", nil, &keys); err != nil {
		return nil, err
	}
	for i := range keys.Data {
		key := &keys.Data[i]
		key.Delete = button("provider-key-delete-"+key.Provider, providerKeysPath+"/delete", "Delete",
			"Delete your own key at "+key.Provider+"? Calls that ask for it are refused then.")
		key.Delete.Fields = []field{{Name: "provider", Kind: hiddenField, Value: key.Provider}}
		key.Delete = req.form(key.Delete)
	}
	shown := providerKeysData{Keys: keys.Data}
	if len(req.d.config.Providers) > 0 {
		shown.Set = req.form(providerKeyForm(req.d.config.Providers))
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
		Hint: "It replaces the current one. It is stored encrypted and never shown again.",
	}}}
}

func setProviderKey(req *pageRequest) (outcome, error) {
	return goTo(providerKeysPath), req.send(http.MethodPut, "/provider-keys/"+segment(req.text("provider")), object{"key": req.text("key")}, nil)
}

func deleteProviderKey(req *pageRequest) (outcome, error) {
	return goTo(providerKeysPath), req.send(http.MethodDelete, "/provider-keys/"+segment(req.text("provider")), nil, nil)
}
