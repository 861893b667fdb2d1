package store

// schemaV7 adds for how long organizations keep their conversations, by the rules of [schemaV1].
const schemaV7 = `
-- In days; 0 is until somebody deletes them.
ALTER TABLE organizations ADD COLUMN retention_days BIGINT NOT NULL DEFAULT 0 CHECK (retention_days >= 0);
CREATE INDEX organizations_retention ON organizations (id) WHERE retention_days > 0;
`
