package dashboard

import "net/http"

const keysPath = root + "/keys"

// apiKey is an API key of the organization. Key is there once, in the answer that makes it.
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

// keysData is what the page of API keys shows.
type keysData struct {
	Keys   []apiKey
	Pager  pager
	Create form
	// Address is where clients of the models go.
	Address string
}

func keysPage() page {
	return page{
		path: keysPath, template: "keys", title: "API keys",
		show: showKeys,
		actions: []action{
			{form: "key-create", done: "The key was made.", do: createKey},
			{verb: "revoke", form: "key-revoke", done: "The key is revoked: from now on it opens nothing.", do: revokeKey},
		},
	}
}

func showKeys(v *visit) (any, error) {
	var keys list[apiKey]
	if err := v.get("/api-keys", v.cursor(), &keys); err != nil {
		return nil, err
	}
	for i := range keys.Data {
		key := &keys.Data[i]
		key.Revoke = button("key-revoke-"+key.ID, keysPath+"/revoke", "Revoke",
			"Revoke the key "+key.Hint+"…? Whoever uses it is refused from the next request on. This can't be undone.")
		key.Revoke.Fields = []field{{Name: "id", Kind: hiddenField, Value: key.ID}}
		key.Revoke = v.form(key.Revoke)
	}
	return keysData{
		Keys: keys.Data, Pager: v.pager(keys.NextCursor), Create: v.form(keyForm()), Address: v.d.config.BaseURL + "/v1",
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

// scopes are those of spec §5.1, as design §6 names them.
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

func createKey(v *visit) (outcome, error) {
	chosen := v.texts("scopes")
	if len(chosen) == 0 { // the API would take none for its default
		return outcome{}, refuseField("scopes", "Choose at least one scope.")
	}
	body := object{
		"name": orNull(v.text("name")), "environment": v.text("environment"), "scopes": chosen, "expiresInDays": v.number("expiresInDays"),
	}
	var made apiKey
	if err := v.send(http.MethodPost, "/api-keys", body, &made); err != nil {
		return outcome{}, err
	}
	return reveal(made), nil
}

func revokeKey(v *visit) (outcome, error) {
	return goTo(keysPath), v.send(http.MethodDelete, "/api-keys/"+segment(v.text("id")), nil, nil)
}
