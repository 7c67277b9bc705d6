// Package stored owns the responses that a server keeps for their callers: in memory or in a directory, within bounds of
// number and bytes. A response belongs to the tenant that made it, and no other finds it. It never reads a response, serves no
// HTTP and starts no goroutine.
//
//	s, err := stored.Open(stored.Config{})
//	…
//	err = s.Put("tenant", id, response)
//	response, ok := s.Get("tenant", id)
//
// When there is no room, the response that was not used for longest goes, of the tenant whose responses take the most bytes: so
// no tenant drives out the others' by storing many. Its methods may be called from any goroutine.
package stored
