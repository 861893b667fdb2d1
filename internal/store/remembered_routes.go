package store

import "sync"

// maxRemembered bounds the routes that a process remembers, in bytes with rememberedBytes for each. A memory that is full begins anew.
const maxRemembered = 8 << 20

// rememberedBytes is the approximate size of a remembered route without its texts.
const rememberedBytes = 400

// routeMemory has the routes of channels that this process has read, without pending ones. They may have changed since, so each is marked
// [Route.Remembered]. The zero value is empty.
type routeMemory struct {
	mu    sync.RWMutex
	byID  map[string]*Route
	byKey map[RouteKey]*Route
	bytes int
}

// id returns the route of a channel, nil if it isn't remembered.
func (m *routeMemory) id(channelID string) *Route {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.byID[channelID]
}

// keys returns the routes of keys, and nil unless all are remembered.
func (m *routeMemory) keys(keys []RouteKey) map[RouteKey]*Route {
	m.mu.RLock()
	defer m.mu.RUnlock()
	found := make(map[RouteKey]*Route, len(keys))
	for _, key := range keys {
		route := m.byKey[key]
		if route == nil {
			return nil
		}
		found[key] = route
	}
	return found
}

// learnID remembers the route of a channel id. A nil route means that the channel has none.
func (m *routeMemory) learnID(channelID string, route *Route) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(m.byID[channelID])
	m.add(route)
}

// learnKeys remembers the routes of keys.
func (m *routeMemory) learnKeys(keys []RouteKey, found map[RouteKey]*Route) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		m.forget(m.byKey[key])
		m.add(found[key])
	}
}

// add needs the mutex.
func (m *routeMemory) add(route *Route) {
	if route == nil || route.State == ChannelPending {
		return
	}
	m.forget(m.byID[route.ChannelID])
	if size := sizeOf(route); m.byID == nil || m.bytes+size > maxRemembered {
		m.byID, m.byKey, m.bytes = map[string]*Route{}, map[RouteKey]*Route{}, 0
	}
	kept := *route
	kept.Remembered = true
	m.bytes += sizeOf(&kept)
	m.byID[kept.ChannelID] = &kept
	if key := kept.Key(); key.Lookable() {
		m.byKey[key] = &kept
	}
}

// forget needs the mutex.
func (m *routeMemory) forget(route *Route) {
	if route == nil {
		return
	}
	m.bytes -= sizeOf(route)
	delete(m.byID, route.ChannelID)
	delete(m.byKey, route.Key())
}

func sizeOf(route *Route) int {
	return rememberedBytes + len(route.ChannelID) + len(route.OrgID) + len(route.ExternalID) + len(route.Credentials)
}
