package store

// Resources are the rows of a database, with one type for each sort of rows that has no rules of its own.
type Resources struct {
	APIKeys            APIKeys
	Agents             Agents
	AuditLog           AuditLog
	ChannelCredentials ChannelCredentials
	Channels           Channels
	Chunks             Chunks
	Documents          Documents
	KnowledgeBases     KnowledgeBases
	Logins             Logins
	Organizations      Organizations
	ProviderKeys       ProviderKeys
	Routes             Routes
	Sessions           Sessions
	UserLinks          UserLinks
	Users              Users
	Widgets            Widgets
}

func newResources(db *DB) Resources {
	return Resources{
		APIKeys:            APIKeys{db},
		Agents:             Agents{db},
		AuditLog:           AuditLog{db},
		ChannelCredentials: ChannelCredentials{db},
		Channels:           Channels{db},
		Chunks:             Chunks{db},
		Documents:          Documents{db},
		KnowledgeBases:     KnowledgeBases{db},
		Logins:             Logins{db},
		Organizations:      Organizations{db},
		ProviderKeys:       ProviderKeys{db},
		Routes:             Routes{db},
		Sessions:           Sessions{db},
		UserLinks:          UserLinks{db},
		Users:              Users{db},
		Widgets:            Widgets{db},
	}
}
