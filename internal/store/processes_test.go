package store_test

const (
	childRole = "SVC_STORE_CHILD"
	childPath = "SVC_STORE_CHILD_PATH"
)

func runChild(role, path string) int { return 0 }
