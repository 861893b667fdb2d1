package dashboard

// auditEntry is an entry of the audit log.
type auditEntry struct {
	ID     string `json:"id"`
	At     string `json:"at"`
	Actor  string `json:"actor"`
	Action string `json:"action"`
	Target string `json:"target"`
	Detail string `json:"detail"`
}

// auditData is what the page of the audit log shows.
type auditData struct {
	Entries []auditEntry
	Pager   pager
	// Names are the addresses of members by their ids.
	Names map[string]string
}

// Name is what a person calls who did something, or whom it was done to.
func (d auditData) Name(id string) string {
	if name := d.Names[id]; name != "" {
		return name
	}
	return id
}

func auditPage() page {
	return page{
		path: root + "/audit", template: "audit", title: "Audit log",
		show: func(v *visit) (any, error) {
			var entries list[auditEntry]
			if err := v.get("/audit-log", v.cursor(), &entries); err != nil {
				return nil, err
			}
			members, err := everything[member](v, "/members")
			if err != nil {
				return nil, err
			}
			shown := auditData{Entries: entries.Data, Pager: v.pager(entries.NextCursor), Names: make(map[string]string)}
			for i := range members {
				shown.Names[members[i].ID] = members[i].Email
			}
			return shown, nil
		},
	}
}
